"""`python -m kbroker.server [--config FILE] [--set KEY=VALUE]...`: a broker in the foreground.

Prints `listening on PLAINTEXT://HOST:PORT` for each listener once it serves; everything else goes
to standard error, or with fields to the journal where that is what standard error is. SIGTERM and
SIGINT stop it in order, SIGHUP has it read the settings file again (on a terminal, whose end that
signal tells, it stops). Exit status: 0 after a stop, 1 where the operator has something to correct,
78 (EX_CONFIG) where that is the settings, so that trying again is of no use, 2 for bad arguments.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker import descriptors
from kbroker.config import BrokerConfig, ConfigError, load_config
from kbroker.environment import START_FILE, START_SETTINGS, START_USERS
from kbroker.errors import KbrokerError
from kbroker.ext.debug import live_objects
from kbroker.ext.open_files import limit_open_files
from kbroker.owner import refuse_foreign
from kbroker.server.lines import begin_log, configure_log
from kbroker.server.service import Busy, Notifier, Started, Watchdog

if TYPE_CHECKING:
    from kbroker.metadata.records.access import UserScramCredentialRecord
    from kbroker.server.broker import Broker

_USAGE: Final = "usage: python -m kbroker.server [--config FILE] [--set KEY=VALUE]..."
_HOOKS: Final = "KBROKER_TEST_HOOKS"
_HOLD_MS: Final = 60_000
_GC_THRESHOLDS: Final = (5_000, 20, 1_000_000)
"""The whole heap is looked through by `FullCollection` alone (kbroker.server.control): it holds the
interpreter for as long as there are objects, which are millions while a large request is served."""
_SWITCH_S: Final = 0.001  # the control thread waits for the interpreter no longer beside another
_RELOAD_S: Final = 30.0
_LOG: Final = logging.getLogger("kbroker.server")


def main(arguments: list[str]) -> int:
    """Run a broker until a signal ends it."""
    options = _parse(arguments)
    if options is None:
        sys.stderr.write(f"{_USAGE}\n")
        return 2
    sys.setswitchinterval(_SWITCH_S)
    gc.disable()  # what a start makes stays: looking for garbage in it takes a tenth of the time
    started = Started()
    notifier = started.notifier
    begin_log()
    _use_journal()
    stopping = {signal.SIGTERM, signal.SIGINT}
    if os.isatty(0):
        stopping.add(signal.SIGHUP)
    hooks = {signal.SIGUSR2} if os.environ.get(_HOOKS) == "1" else set()
    # Blocked before any thread is made, so that only this one ever sees them, in sigwait.
    taken = stopping | hooks | {signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, taken)
    try:
        options[1].extend(_handed_settings())
        config = load_config(*options)
        configure_log(config)
        for place in config.log_dirs:
            refuse_foreign(Path(place))
        limit_open_files(descriptors.segments_max(descriptors.raise_limit()))
        broker = _made(config, started)
        with Busy(notifier, broker.doing):
            broker.start()
    except KbrokerError as error:
        sys.stderr.write(f"kbroker: {error}\n")
        notifier.tell(status=f"not started: {error}")
        return os.EX_CONFIG if isinstance(error, ConfigError) else 1
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    notifier.tell("READY=1", status=broker.doing())
    if started.watchdog_s:
        faulthandler.enable()  # who kills by SIGABRT finds the tracebacks in the log
    watchdog = Watchdog(notifier, started.watchdog_s, broker.fault, broker.doing)
    watchdog.start()
    for address in broker.addresses:
        _say(f"listening on {address}")
    while (number := signal.sigwait(taken)) not in stopping:
        if number == signal.SIGHUP:
            _reload(broker, notifier, options)
        else:
            _hold_gil()
    notifier.tell("STOPPING=1", status="stopping")
    watchdog.stop()
    with Busy(notifier, broker.doing):
        clean = broker.stop()
    if hooks:
        del broker, watchdog  # which asks the broker how it is
        _tell_live_objects()
    return 0 if clean else 1


def _made(config: BrokerConfig, started: Started) -> Broker:
    """Imported here, where garbage is not collected."""
    from kbroker.server.broker import Broker  # noqa: PLC0415

    users: list[UserScramCredentialRecord] = []
    if START_USERS in os.environ:
        from kbroker.security.handed import taken  # noqa: PLC0415  not every start

        users = taken(os.environ)
    return Broker(config, started.notifier, started.sockets, users)


def _handed_settings() -> list[str]:
    """Those that are no arguments, since they are secret."""
    if START_FILE not in os.environ and START_SETTINGS not in os.environ:
        return []
    from kbroker.security.handed import take_file, taken_settings  # noqa: PLC0415  as above

    take_file(os.environ)
    return taken_settings(os.environ)


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


def _use_journal() -> None:
    if os.environ.get("JOURNAL_STREAM"):
        from kbroker.server import journald  # noqa: PLC0415  no cost elsewhere

        if journald.is_there():
            logging.root.handlers = [journald.JournalHandler()]


def _reload(broker: Broker, notifier: Notifier, options: tuple[Path | None, list[str]]) -> None:
    notifier.reloading()
    try:
        changed = broker.reload(load_config(*options), _RELOAD_S)
        _LOG.info("reload: %s", ", ".join(changed) or "nothing has changed")
    except KbrokerError as error:
        _LOG.error("reload: %s", error)
    notifier.tell("READY=1", status=broker.doing())


def _hold_gil() -> None:
    """Where tests ask for it: no Python code of this process runs until the next such signal, and
    the data plane must not care. The module is compiled for tests only, so it is looked for by its
    name."""
    hold_gil = importlib.import_module("kbroker.ext.testing").hold_gil
    _say("test hook: the GIL is held")
    hold_gil(signal.SIGUSR2, _HOLD_MS)
    _say("test hook: the GIL is free")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _tell_live_objects() -> None:
    """For tests of builds that count: what the data plane still has after a stop; none is due."""
    gc.unfreeze()
    gc.collect()
    left = {kind: count for kind, count in live_objects().items() if count}
    sys.stdout.write(f"test hook: live objects {left}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
