"""`python -m kbroker.server [--config FILE] [--set KEY=VALUE]...`: a broker in the foreground.

Prints `listening on PLAINTEXT://HOST:PORT` for each listener once it serves; everything else goes
to standard error. SIGTERM and SIGINT stop it in order. Exit status: 0 after a stop, 1 where the
operator has something to correct, 2 for bad arguments.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

from kbroker.config import load_config
from kbroker.errors import KbrokerError
from kbroker.ext.debug import live_objects
from kbroker.server.broker import Broker
from kbroker.server.lines import begin_log, configure_log

_USAGE: Final = "usage: python -m kbroker.server [--config FILE] [--set KEY=VALUE]..."
_HOOKS: Final = "KBROKER_TEST_HOOKS"
_HOLD_MS: Final = 5000


def main(arguments: list[str]) -> int:
    """Run a broker until a signal ends it."""
    options = _parse(arguments)
    if options is None:
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    begin_log()
    stopping = {signal.SIGTERM, signal.SIGINT}
    hooks = {signal.SIGUSR2} if os.environ.get(_HOOKS) == "1" else set()
    # Blocked before any thread is made, so that only this one ever sees them, in sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping | hooks)
    try:
        config_file, settings = options
        config = load_config(config_file, settings)
        configure_log(config)
        broker = Broker(config)
        broker.start()
    except KbrokerError as error:
        sys.stderr.write(f"kbroker: {error}\n")
        return 1
    for address in broker.addresses:
        sys.stdout.write(f"listening on {address}\n")
    sys.stdout.flush()
    while signal.sigwait(stopping | hooks) not in stopping:
        _hold_gil()
    clean = broker.stop()
    if hooks:
        del broker
        _tell_live_objects()
    return 0 if clean else 1


def _parse(arguments: list[str]) -> tuple[Path | None, list[str]] | None:
    """The two options by hand: argparse costs a tenth of the start."""
    config_file: Path | None = None
    settings: list[str] = []
    rest = iter(arguments)
    for option in rest:
        value = next(rest, None)
        if value is None:
            return None
        if option == "--config":
            config_file = Path(value)
        elif option == "--set":
            settings.append(value)
        else:
            return None
    return config_file, settings


def _hold_gil() -> None:
    """Where tests ask for it: no Python code of this process runs for a while, and the data plane
    must not care. The module is compiled for tests only, so it is looked for by its name."""
    hold_gil = importlib.import_module("kbroker.ext.testing").hold_gil
    for line, hold_ms in (("held", _HOLD_MS), ("free", 0)):
        sys.stdout.write(f"test hook: the GIL is {line}\n")
        sys.stdout.flush()
        hold_gil(hold_ms)


def _tell_live_objects() -> None:
    """For tests of a debug build: what the data plane still counts after a stop; nothing is due."""
    gc.collect()
    left = {kind: count for kind, count in live_objects().items() if count}
    sys.stdout.write(f"test hook: live objects {left}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
