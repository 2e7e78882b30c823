"""Levels of the broker's loggers, by Apache Kafka's names."""

from __future__ import annotations

import logging
from typing import Final

from kbroker.config.types import Check, ConfigError, Value

ROOT_LOGGER: Final = "root"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


def parse_levels(name: str, text: str) -> dict[str, int]:
    """`INFO,kbroker.group=DEBUG` as numbers of Python's logging by logger, the root among them.

    Raises ConfigError that names the key."""
    found = {ROOT_LOGGER: logging.INFO}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        logger, equals, level = entry.rpartition("=")
        if level.strip().upper() not in LEVELS or (equals and not logger.strip()):
            raise ConfigError(
                f"{name}: {entry} is no level; write one of {', '.join(LEVELS)}, or LOGGER=LEVEL"
            )
        found[logger.strip() or ROOT_LOGGER] = LEVELS[level.strip().upper()]
    return found


def levels() -> Check:
    """A text that `parse_levels` takes."""

    def ensure(name: str, value: Value) -> None:
        parse_levels(name, str(value))

    return Check("LEVEL[,LOGGER=LEVEL...]", ensure)
