"""kbroker as a child process, started the way a user starts it."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.support.processes import BrokerProcess

_BOUND = re.compile(r"^listening on (\w+)://127\.0\.0\.1:(\d+)", re.MULTILINE)


_HTTP = "kbroker.http.listeners"


@cache
def kbroker_is_built() -> bool:
    """True where the broker's packages can be imported."""
    try:
        return find_spec("kbroker.cli") is not None and find_spec("kbroker.server") is not None
    except ModuleNotFoundError:
        return False


class KbrokerProcess(BrokerProcess):
    """`kbroker start` on a port that the kernel picks, read back from what it prints.

    `hooks` sets KBROKER_TEST_HOOKS=1, which lets SIGUSR2 make the broker hold its GIL; `environ`
    is what it gets beyond this process's environment. `listeners` are names of more listeners,
    whose ports are in `ports`. `more_dirs` are log directories beside the data directory.
    """

    name = "kbroker"
    start_timeout_s = 120.0
    stop_timeout_s = 30.0

    def __init__(  # noqa: PLR0917
        self, home: Path, settings: dict[str, str] | None = None, data_dir: Path | None = None,
        hooks: bool = False, environ: dict[str, str] | None = None,
        listeners: tuple[str, ...] = (), more_dirs: tuple[Path, ...] = (),
    ) -> None:  # fmt: skip
        # The default port of metrics is for one broker of the machine.
        super().__init__(home, {_HTTP: "HTTP://127.0.0.1:0"} | (settings or {}), data_dir)
        self.hooks, self.environ = hooks, dict(environ or {})
        self.ports = dict.fromkeys(listeners, 0)
        self.more_dirs = more_dirs

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "kbroker.cli", "start", "--data-dir", str(self.data_dir),
                   "--listen", f"127.0.0.1:{self.port}"]  # fmt: skip
        for directory in self.more_dirs:
            command += ["--data-dir", str(directory)]
        for name, port in self.ports.items():
            command += ["--listen", f"{name}://127.0.0.1:{port}"]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONFAULTHANDLER="1")
        if self.hooks:
            environment["KBROKER_TEST_HOOKS"] = "1"
        return environment | self.environ

    def is_ready(self) -> bool:
        found = dict(_BOUND.findall(self.log_text()[self._log_start :]))
        if not {"PLAINTEXT", *self.ports} <= found.keys():
            return False
        self.port = int(found["PLAINTEXT"])
        self.ports = {name: int(found[name]) for name in self.ports}
        return super().is_ready()
