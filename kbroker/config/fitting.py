"""Settings that must fit together or their unit: rules over the values of a broker's settings.

Each tells a mistake in one line, the setting's name first, or None. What depends on a value that is
itself a mistake is not asked (see BrokerConfig.value).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.config.definitions_security import AUTHORIZERS
from kbroker.config.group_bounds import GROUP_KINDS, ORDERS, check_beat, check_order
from kbroker.config.types import ConfigError, UnreadableError
from kbroker.limits import LOG_DIRS_MAX_COUNT

if TYPE_CHECKING:
    from kbroker.config.broker import BrokerConfig

Rule = Callable[["BrokerConfig"], str | None]


def mistakes(config: BrokerConfig, rules: Iterable[Rule]) -> Iterator[str]:
    """What is wrong by these rules, a line each."""
    for rule in rules:
        try:
            told = rule(config)
        except ConfigError as error:
            told = str(error)
        except UnreadableError:
            continue
        if told is not None:
            yield told


def _node_id(config: BrokerConfig) -> str | None:
    if config.integer("node.id") < 0:
        return "node.id: must be at least 0"
    if "broker.id" in config.static and config.integer("broker.id") != config.integer("node.id"):
        return "broker.id: must be the same as node.id, where both are set"
    return None


def _roles(config: BrokerConfig) -> str | None:
    if "broker" in config.words("process.roles"):
        return None
    return "process.roles: kbroker is broker and controller; write both"


def _authorizer(config: BrokerConfig) -> str | None:
    if config.string("authorizer.class.name") in AUTHORIZERS:
        return None
    return (
        "authorizer.class.name: kbroker has an authorizer of its own, which does what "
        "Apache Kafka's does; write authorizer.class.name=kbroker, or "
        f"{AUTHORIZERS[1]}"
    )


def _super_users(config: BrokerConfig) -> str | None:
    for one in filter(None, map(str.strip, config.string("super.users").split(";"))):
        if not all(one.partition(":")):
            return f"super.users: {one!r} is no principal: write TYPE:NAME"
    return None


def _log_dirs(config: BrokerConfig) -> str | None:
    if not 0 < len(config.log_dirs) <= LOG_DIRS_MAX_COUNT:
        return f"log.dirs: name 1 to {LOG_DIRS_MAX_COUNT} directories"
    real = _resolved(config.log_dirs)
    if len(set(real)) < len(real):
        return "log.dirs: the same directory is named twice"
    for outer in real:
        if inner := next((one for one in real if outer in one.parents), None):
            return f"log.dirs: {inner} is inside of {outer}"
    return None


def passes_over_metadata_dir(config: BrokerConfig) -> bool:
    """Whether metadata.log.dir names none of log.dirs, where the metadata log is kept."""
    first = config.string("metadata.log.dir")
    return bool(first) and _resolved([first])[0] not in _resolved(config.log_dirs)


def _metadata_dir(config: BrokerConfig) -> str | None:
    if len(config.log_dirs) == 1 or not passes_over_metadata_dir(config):
        return None
    return "metadata.log.dir: kbroker keeps the metadata log in one of log.dirs"


def _cordoned(config: BrokerConfig) -> str | None:
    for path in config.cordoned_log_dirs:
        if path not in config.log_dirs and path not in config.stored_cordoned:
            return (
                f"Invalid entry in cordoned.log.dirs: {path}. All cordoned log dirs must be "
                "entries of log.dirs or log.dir."
            )
    return None


def _resolved(paths: Iterable[str]) -> list[Path]:
    return sorted(Path(os.path.realpath(path)) for path in paths)


def _queued_bytes(config: BrokerConfig) -> str | None:
    queued = config.integer("queued.max.request.bytes")
    if queued <= 0 or queued >= config.integer("socket.request.max.bytes"):
        return None
    return "queued.max.request.bytes: must be at least socket.request.max.bytes, or -1"


def _cleaner_threads(config: BrokerConfig) -> str | None:
    if not config.flag("log.cleaner.enable") or config.integer("log.cleaner.threads") >= 1:
        return None
    return "log.cleaner.threads: must be at least 1 while log.cleaner.enable is true"


def _roll(config: BrokerConfig) -> str | None:
    return "log.roll.ms: must be at least 1" if config.roll_ms() < 1 else None


def _jitter(config: BrokerConfig) -> str | None:
    return "log.roll.jitter.ms: must be at least 0" if config.roll_jitter_ms() < 0 else None


def _per_ip(config: BrokerConfig) -> str | None:
    if config.connection_overrides() or config.integer("max.connections.per.ip") != 0:
        return None
    return "max.connections.per.ip: can be 0 only where overrides for single hosts are set"


def _retention(config: BrokerConfig) -> str | None:
    if config.retention_ms() != 0:
        return None
    return "log.retention.ms: must be -1 for no limit, or at least 1"


def _dedupe_buffer(config: BrokerConfig) -> str | None:
    buffer_bytes = config.integer("log.cleaner.dedupe.buffer.size")
    if buffer_bytes > max(config.integer("log.cleaner.threads"), 1) << 20:
        return None
    return "log.cleaner.dedupe.buffer.size: must be more than 1 MiB for each cleaner thread"


def _order(less: str, more: str) -> Rule:
    return lambda config: check_order(config.integer, less, more)


def _beat(kind: str) -> Rule:
    return lambda config: check_beat(config.integer, kind)


# Those that dynamic settings must keep too, and those of the static ones alone.
OF_VALUES: Final[tuple[Rule, ...]] = (
    _cordoned, _roll, _jitter, _per_ip, _retention, _dedupe_buffer,
    *(_order(less, more) for less, more in ORDERS), *map(_beat, GROUP_KINDS),
)  # fmt: skip
OF_START: Final[tuple[Rule, ...]] = (
    _node_id, _roles, _authorizer, _super_users, _log_dirs, _metadata_dir, _queued_bytes,
    _cleaner_threads, *OF_VALUES,
)  # fmt: skip
