"""The lines of the broker's log, one for each message, as a terminal or a machine reads them best.

    logfmt  ts=2026-01-31T12:00:00.123Z level=info logger=kbroker.server msg="serving ..." key=value
    json    {"ts": "...", "level": "info", "logger": "kbroker.server", "msg": "...", "key": value}

Fields beyond the first four are what a call gives as `extra={"fields": {...}}`; `error` is the
traceback. A message is no longer than a reader bears, and what cannot be printed is escaped: much
of what is told quotes clients, who could write lines of their own else, or fill the disk.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from kbroker.config.definitions_kbroker import LOG_FORMAT, LOG_LEVEL
from kbroker.config.log_levels import ROOT_LOGGER, parse_levels
from kbroker.environment import LOG_FILE
from kbroker.printable import one_line

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

_LOG: Final = logging.getLogger("kbroker.server")

MESSAGE_MAX_CHARS: Final = 2_000
LOG_FILE_MAX_BYTES: Final = 32 << 20
_TURN_AGAIN_S: Final = 60.0  # after a failure
_LEVELS: Final = {"WARNING": "warn", "CRITICAL": "fatal"}
_configured: set[str] = set()  # loggers with a level of the settings
_PLAIN: Final = re.compile(r"[^\s\"=\\]+\Z")


class Logfmt(logging.Formatter):
    """key=value; what is not plain stands in quotes."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        return " ".join(f"{key}={_quoted(value)}" for key, value in _fields(record).items())


class JsonLine(logging.Formatter):
    """A JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        return json.dumps(_fields(record), ensure_ascii=False, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    fields: dict[str, Any] = {
        "ts": f"{moment}.{int(record.msecs):03d}Z",
        "level": _LEVELS.get(record.levelname, record.levelname.lower()),
        "logger": record.name,
        "msg": one_line(record.getMessage(), MESSAGE_MAX_CHARS),
        **getattr(record, "fields", {}),
    }
    if record.exc_info:
        fields["error"] = logging.Formatter().formatException(record.exc_info)
    if record.stack_info:
        fields["stack"] = record.stack_info
    return fields


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if _PLAIN.match(text) and text.isprintable():
        return text
    return json.dumps(text, ensure_ascii=False)


class Lines(logging.Handler):
    """Standard error, in whole lines. One for which there is no room is left out, and that is told
    when there is some; of one that was cut off the rest comes first. (What Python's own handler
    writes instead, a traceback, goes to the same full disk and ends somewhere in it.)"""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line of a record."""
        try:
            line = self._line(record)
        except Exception:
            self.handleError(record)
            return
        if self._lost:
            text = "%d lines are missing here: there was no room for them"
            missing = _LOG.makeRecord(_LOG.name, logging.WARNING, "", 0, text, (self._lost,), None)
            self._lost = 0 if self._put(self._line(missing)) else self._lost
        if self._lost or not self._put(line):
            self._lost += 1

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode("utf-8", "backslashreplace")

    def _put(self, line: bytes) -> bool:
        """Whether it is written, or at least begun."""
        if not self._write_rest():
            return False
        self._rest = line
        if self._write_rest() or len(self._rest) < len(line):
            return True
        self._rest = b""
        return False

    def _write_rest(self) -> bool:
        while self._rest:
            try:
                self._rest = self._rest[os.write(2, self._rest) :]
            except OSError:
                return False
        return True


class TurnedOver(Lines):
    """Standard error where it is a file of ours: a full one is renamed to NAME.1, in the place of
    the one before, and a fresh one taken. What else writes to the descriptor (a traceback of the
    interpreter) goes where the lines go."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._turn_at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """As every handler; the file is turned over behind the line."""
        super().emit(record)
        try:
            if os.fstat(2).st_size >= LOG_FILE_MAX_BYTES and time.monotonic() >= self._turn_at:
                self._turn_over()
        except OSError:  # no room for a fresh one, or a name that cannot be had
            self._turn_at = time.monotonic() + _TURN_AGAIN_S

    def _turn_over(self) -> None:
        named = self._name_of_ours()
        if named is None:
            return  # somebody else's file, or one that somebody has renamed already
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fresh = os.open(f"{self._path}.new", flags, 0o666)
        try:
            os.replace(named, f"{self._path}.1")
            os.replace(f"{self._path}.new", self._path)
            for descriptor in (1, 2):
                os.dup2(fresh, descriptor)
        finally:
            os.close(fresh)

    def _name_of_ours(self) -> str | None:
        """What the file that is written to is called: NAME.1 where only the first half of a turn
        was done, None where neither is it. Raises OSError where there is neither."""
        ours = os.fstat(2)
        try:
            return self._path if os.path.samestat(ours, os.stat(self._path)) else None
        except FileNotFoundError:
            old = f"{self._path}.1"
            return old if os.path.samestat(ours, os.stat(old)) else None


def begin_log() -> None:
    """Log to standard error, until `configure_log` knows better in the form of a terminal's."""
    file = os.environ.get(LOG_FILE)
    handler = TurnedOver(file) if file else Lines()
    handler.setFormatter(_formatter("auto"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def configure_log(config: BrokerConfig) -> None:
    """Form and levels as the settings say; may be called again when they have changed."""
    for handler in logging.root.handlers:
        handler.setFormatter(_formatter(config.string(LOG_FORMAT)))
    levels = parse_levels(LOG_LEVEL, config.string(LOG_LEVEL))
    for name in _configured - levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(None if name == ROOT_LOGGER else name).setLevel(level)
    _configured.clear()
    _configured.update(levels)


def _formatter(form: str) -> logging.Formatter:
    if form == "auto":
        form = "logfmt" if sys.stderr.isatty() else "json"
    return Logfmt() if form == "logfmt" else JsonLine()
