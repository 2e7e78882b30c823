"""How a script runs: reads its options, does its work, ends with the status that Kafka's has.

A Tool names its options and what it does with them. `start` turns what goes wrong into text and
status: a mistake in the command line into the text, the help and 1; a failure into what the tool's
`failed` makes of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from kbroker.cli.kafka.options import Given, Option, OptionError, UsageError, check_help, help_text
from kbroker.printable import escaped

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = [
    "KAFKA_VERSION",
    "Tool",
    "client_settings",
    "is_failure",
    "open_cluster",
    "read_properties",
    "say",
    "shown",
    "start",
    "warn",
]

KAFKA_VERSION = "4.3.0"
_INTERRUPTED = 130
_LAYOUT: Final = ("\n", "\t")
_PARTS: Final = re.compile("([\n\t])")


class Tool(NamedTuple):
    """A script. what: its purpose, for --help; work: gives the exit status; failed: the status of
    a failure (an error of the client or ValueError), which it has told."""

    what: str
    options: tuple[Option, ...]
    work: Callable[[Given], int]
    failed: Callable[[Given, Exception], int]


def say(line: str = "", end: str = "\n") -> None:
    """A line to standard output."""
    sys.stdout.write(_tame(line, sys.stdout) + end)


def warn(line: str) -> None:
    """A line to standard error."""
    sys.stderr.write(_tame(line, sys.stderr) + "\n")


def shown(name: str, where: TextIO | None = None) -> str:
    """A name of anybody's making in a line (to standard output unless told), which stays one line
    on a terminal; a program that reads it gets what Kafka's tool would print."""
    return escaped(name) if (where or sys.stdout).isatty() else name


def _tame(text: str, where: TextIO) -> str:
    """On a terminal, what steers it is escaped; the tool's own line ends and tabs stay."""
    if not where.isatty():
        return text
    return "".join(part if part in _LAYOUT else escaped(part) for part in _PARTS.split(text))


def start(tool: Tool, words: Sequence[str] | None = None) -> int:
    """Runs a script with these words, or those of this process; gives its exit status."""
    try:
        status = _run(tool, sys.argv[1:] if words is None else words)
        sys.stdout.flush()
        return status
    except UsageError as error:
        warn(f"{error}\n{help_text(tool.options)}")
    except OptionError as error:
        warn(str(error))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _run(tool: Tool, words: Sequence[str]) -> int:
    given = Given(tool.options, words)
    if check_help(given, tool.what):
        say(KAFKA_VERSION)
        return 0
    try:
        return tool.work(given)
    except Exception as error:
        if not is_failure(error):
            raise
        return tool.failed(given, error)


def is_failure(error: Exception) -> bool:
    """True for errors that a user can meet; others are bugs of ours."""
    from kbroker.client.errors import KafkaError
    from kbroker.errors import KbrokerError

    if isinstance(error, BrokenPipeError):
        return False
    return isinstance(error, KafkaError | KbrokerError | ValueError | OSError | OptionError)


def read_properties(path: str | None) -> dict[str, str]:
    """The settings of a properties file; none without a file."""
    if path is None:
        return {}
    from kbroker.config.properties import property_values

    return property_values(Path(path))


def client_settings(kind: type, settings: dict[str, str]) -> dict[str, str]:
    """The settings that a client of this config class knows; others are told of and passed over,
    as Kafka's clients do: one file often serves several kinds of them. ValueError for interceptors,
    which are classes of Java's."""
    from kbroker.client.config_types import specs_of

    known = specs_of(kind)
    if settings.get("interceptor.classes"):
        told = settings["interceptor.classes"]
        raise ValueError(f"interceptor.classes={told}: classes of Java's cannot run here")
    for name in settings:
        if name.replace(".", "_") not in known:
            warn(f"WARN {name} is no setting of this client and has no effect")
    return {name: value for name, value in settings.items() if name.replace(".", "_") in known}


def open_cluster(
    bootstrap: str | None,
    config_file: str | None = None,
    *,
    timeout_ms: int | None = None,
    controllers: str | None = None,
) -> Cluster:
    """The way to the cluster of --bootstrap-server, or by its controllers of
    --bootstrap-controller, with the settings of --command-config."""
    import logging

    from kbroker.client.cluster import Cluster
    from kbroker.client.config_admin import AdminConfig, admin_config

    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("kbroker.client.cluster").setLevel(logging.INFO)  # whom it cannot reach
    settings = client_settings(AdminConfig, read_properties(config_file))
    settings.pop("bootstrap.servers" if controllers else "bootstrap.controllers", None)
    settings["bootstrap.controllers" if controllers else "bootstrap.servers"] = (
        controllers or bootstrap or ""
    )
    if timeout_ms is not None:
        settings["default.api.timeout.ms"] = str(timeout_ms)
        settings["request.timeout.ms"] = str(min(timeout_ms, 30_000))
    config = admin_config(settings, {})
    if not controllers:
        return Cluster.of(config)
    from kbroker.client.controllers import ControllerCluster

    return ControllerCluster.of(config, config.bootstrap_controllers)
