"""kcat's -m, -v and -d for produce and consume: how long to wait, and how much to say."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

import click

from kbroker.cli.options import SECONDS

__all__ = ["start_log", "talk_options"]

Decorated = TypeVar("Decorated", bound=Any)

_CLIENT = "kbroker.client"
#: librdkafka's debug contexts, by the logger of the client that has the like.
_CONTEXTS = {
    "all": "", "generic": "", "mock": "",
    "broker": ".cluster", "topic": ".cluster", "metadata": ".cluster", "feature": ".cluster",
    "queue": ".cluster", "protocol": ".cluster", "security": ".cluster", "admin": ".cluster",
    "telemetry": ".cluster",
    "msg": ".producer", "eos": ".producer",
    "fetch": ".consumer", "consumer": ".consumer",
    "cgrp": ".group", "assignor": ".group",
    "conf": ".config", "interceptor": ".config", "plugin": ".config",
}  # fmt: skip
_FORMAT = "kbroker: %(message)s"
_LONG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def talk_options(command: Decorated) -> Decorated:
    """The arguments `limit_s`, `verbose` and `debug`."""
    for option in (
        click.option(
            "--debug",
            "-d",
            metavar="CONTEXT[,...]",
            callback=_known,
            help="Log what the client does: all, or what librdkafka calls broker, msg, fetch, cgrp"
            " and so on.",
        ),
        click.option(
            "--verbose",
            "-v",
            count=True,
            help="Say more, also in a pipe: where records went, where the end is, who has which"
            " partitions. Twice: the client's log.",
        ),
        click.option(
            "--timeout",
            "-m",
            "limit_s",
            type=SECONDS,
            metavar="SECONDS",
            help="Wait no longer for the cluster to tell of topics, and for transactions to begin"
            " and end. Default: 60.",
        ),
    ):
        command = option(command)
    return command


def _known(_: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The names of loggers."""
    found = []
    for name in value.split(",") if value else ():
        if name not in _CONTEXTS:
            known = " ".join(_CONTEXTS)
            raise click.BadParameter(f"{name!r} is none of {known}", param=param)
        found.append(_CLIENT + _CONTEXTS[name])
    return tuple(found)


def start_log(verbose: int, debug: tuple[str, ...]) -> None:
    """Warnings of the client, and with -vv or -d more of it, to standard error."""
    more = verbose > 1 or debug
    logging.basicConfig(level=logging.WARNING, format=_LONG_FORMAT if more else _FORMAT)
    if verbose > 1:
        logging.getLogger(_CLIENT).setLevel(logging.DEBUG if verbose > 2 else logging.INFO)
    for name in debug:
        logging.getLogger(name).setLevel(logging.DEBUG)
