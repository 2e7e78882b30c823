"""What settings belong to: topics, brokers, loggers, groups, client metrics subscriptions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker.api.topic_names import name_fault
from kbroker.config.log_levels import LEVELS, ROOT_LOGGER
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import RESOURCE_TYPES
from kbroker.security.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC

if TYPE_CHECKING:
    from kbroker.api.context import Context

TOPICS: Final = RESOURCE_TYPES["topic"]
BROKERS: Final = RESOURCE_TYPES["broker"]
BROKER_LOGGERS: Final = RESOURCE_TYPES["broker_logger"]
CLIENT_METRICS: Final = RESOURCE_TYPES["client_metrics"]
GROUPS: Final = RESOURCE_TYPES["group"]

NAMES: Final = {number: name for name, number in RESOURCE_TYPES.items()}

_OURS: Final = "kbroker"


def check_topic_name(name: str) -> None:
    """Refuse what no topic can be called. Raises ClientError."""
    fault = name_fault(name)
    if fault is not None:
        raise ClientError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)


def require_configs(context: Context, operation: int, kind: int, name: str) -> None:
    """Refuse who may not see or change the settings of a resource; those of brokers, loggers and
    client metrics are the cluster's. Raises ClientError."""
    if kind == TOPICS:
        if not context.may(operation, TOPIC, name):
            raise ClientError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif kind == GROUPS:
        if not context.may(operation, GROUP, name):
            raise ClientError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif kind in NAMES and not context.may(operation, CLUSTER, CLUSTER_NAME):
        raise ClientError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def parse_node(name: str, node_id: int, noun: str, unexpected: str) -> None:
    """Refuse every broker but this one. Apache Kafka's words differ by request: `noun` is its name
    of a broker, `unexpected` its text for another one's id. Raises ClientError."""
    try:
        found = int(name)
    except ValueError:
        raise ClientError(
            ErrorCode.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {name}"
        ) from None
    if found != node_id:
        raise ClientError(ErrorCode.INVALID_REQUEST, unexpected.format(node_id, found))


def logger_levels() -> dict[str, str]:
    """Level in force by logger, sorted by name, the root first."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith(_OURS))
    return {name: _level(name) for name in (ROOT_LOGGER, *names)}


def check_logger_level(name: str, level: str | None) -> None:
    """Refuse what cannot be a logger's level; None has it follow its parent. Raises ClientError."""
    if name not in logger_levels():
        raise ClientError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if level is None and name == ROOT_LOGGER:
        text = "Removing the log level of the root logger is not allowed"
        raise ClientError(ErrorCode.INVALID_REQUEST, text)
    if level is not None and level not in LEVELS:
        raise ClientError(
            ErrorCode.INVALID_CONFIG, f"Log level must be one of {', '.join(LEVELS)}."
        )


def set_logger_level(name: str, level: str | None) -> None:
    """Give a logger a level that was checked."""
    logger = logging.getLogger(None if name == ROOT_LOGGER else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _level(name: str) -> str:
    number = logging.getLogger(None if name == ROOT_LOGGER else name).getEffectiveLevel()
    return next(text for text, level in LEVELS.items() if level <= number or text == "TRACE")
