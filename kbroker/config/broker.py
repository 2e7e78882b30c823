"""The settings of a broker: what the file and the command line said, and what was changed since.

A value comes from the first of these that has one: dynamic for this broker, dynamic for all
brokers, static (file or command line), default. Dynamic values are config records of the
metadata log; `set_dynamic` takes them over after each change. Not thread-safe: the control thread
owns it, others are handed plain values.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from kbroker.config.definitions import (
    BROKER,
    find_broker_key,
    is_ignored,
    is_plugin_key,
    unknown_key_text,
)
from kbroker.config.definitions_kbroker import HTTP_LISTENERS, PAGE_CACHE
from kbroker.config.fitting import OF_START, OF_VALUES, mistakes, passes_over_metadata_dir
from kbroker.config.listeners import (
    Endpoint,
    Listener,
    controller_endpoints,
    http_endpoints,
    resolve_listeners,
)
from kbroker.config.refused import refuse_unheeded
from kbroker.config.types import (
    ConfigError,
    ConfigKey,
    UnreadableError,
    Value,
    format_value,
    parse_value,
)
from kbroker.environment import setting_variables
from kbroker.log_dirs import metadata_first

T = TypeVar("T")
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000

# Keys that say the same in other units, the first that is set wins. What DescribeConfigs calls
# the synonyms of a broker key.
SYNONYMS: Final[tuple[tuple[str, ...], ...]] = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
# What Apache Kafka takes for a host, an IPv6 address among them.
_HOST: Final = re.compile(r"[a-zA-Z0-9\-%._:]+")
_COUNT: Final = re.compile(r"[0-9]{1,10}")
_DERIVED_MAX: Final = 1000  # results that `derived` keeps: topics have few different settings
_FLUSH_SYNONYMS: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Names that set the same as `name`, first the one that counts most."""
    for names in SYNONYMS:
        if name in names:
            return names
    if name == _FLUSH_SYNONYMS[0]:
        return _FLUSH_SYNONYMS
    key = find_broker_key(name)
    return (name,) if key is None or key.name == name else (name, key.name)


class BrokerConfig:
    """Typed, checked settings with their sources."""

    def __init__(self, static: Mapping[str, str], sources: Mapping[str, str] | None = None) -> None:
        """`static` holds the text of every key that was set; `sources` tells where, for the user.

        Raises ConfigError for unknown names, bad values and settings that exclude each other: all
        of them, a line each.
        """
        self.static: dict[str, str] = {}
        self.dynamic_broker: dict[str, str] = {}
        self.dynamic_default: dict[str, str] = {}
        self.ignored: list[str] = []
        self._sources = dict(sources or {})
        self.stored_cordoned: frozenset[str] = frozenset()
        """What is stored is no reason to refuse another change, even if it is none of log.dirs."""
        self._values: dict[str, Value] = {}
        self._derived: dict[Hashable, Any] = {}
        self._unreadable: set[str] = set()
        found = []
        for name, text in _resolved(static, self._placed).items():
            try:
                self._set_static(name, text)
            except ConfigError as error:
                found.append(str(error))
                self._unreadable.add(name)
        self.listeners: list[Listener] = self._check(found)

    def _set_static(self, name: str, text: str) -> None:
        key = find_broker_key(name)
        if key is None and not is_plugin_key(name):
            raise ConfigError(self._placed(name, unknown_key_text(name)))
        if key is not None:
            try:
                parse_value(key, text)
                refuse_unheeded(key, name, text)
            except ConfigError as error:
                raise ConfigError(self._placed(name, str(error))) from None
        if is_ignored(name, key):
            self.ignored.append(name)
        self.static[name] = text.strip()

    def _placed(self, name: str, text: str) -> str:
        return f"{self._sources[name]}: {text}" if name in self._sources else text

    def _check(self, found: list[str]) -> list[Listener]:
        """Settings that must fit together. Raises what was found before and what is found here."""
        self._mirror_node_id()
        listeners: list[Listener] = []

        def resolved(_: BrokerConfig) -> str | None:
            http_endpoints(self.words(HTTP_LISTENERS))
            listeners[:] = self._resolved_listeners()
            between = self.string("inter.broker.listener.name")
            if between and between.upper() not in {one.name for one in listeners}:
                return f"inter.broker.listener.name: {between} is not a name in listeners"
            return None

        found = [*found, *mistakes(self, (*OF_START, resolved))]
        if found:
            raise ConfigError("\n".join(found))
        if passes_over_metadata_dir(self):
            self.ignored.append("metadata.log.dir")
        return listeners

    def _mirror_node_id(self) -> None:
        """Give `node.id` and `broker.id` each the value of the other, as Apache Kafka does."""
        for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if other in self.static:
                self.static.setdefault(name, self.static[other])

    def _resolved_listeners(self) -> list[Listener]:
        return resolve_listeners(
            self.words("listeners"),
            self.words("advertised.listeners") or None,
            self.string("listener.security.protocol.map"),
            self.words("controller.listener.names"),
        )

    def check_values(self) -> None:
        """Rules over several keys or units, which dynamic settings must keep too."""
        for told in mistakes(self, OF_VALUES):
            raise ConfigError(told)

    def preview(self, broker: Mapping[str, str], default: Mapping[str, str]) -> BrokerConfig:
        """These settings with other dynamic ones, to see what would hold."""
        other = copy.copy(self)
        other._values, other._derived = {}, {}
        other.set_dynamic(broker, default)
        other.stored_cordoned = self.stored_cordoned
        return other

    def adopt_node_id(self, node_id: int) -> None:
        """Take the id that the data directory was formatted with, where none was configured."""
        self.static.setdefault("node.id", str(node_id))
        self._mirror_node_id()
        self._forget()

    def source(self, name: str) -> str:
        """Where the value of `name` comes from, in words for the user."""
        if name in self.dynamic_broker:
            return "dynamic, this broker"
        if name in self.dynamic_default:
            return "dynamic, all brokers"
        if name in self.static:
            return self._sources.get(name, "static")
        return "default"

    def replace_static(self, texts: Mapping[str, str | None], origin: BrokerConfig) -> None:
        """Other static texts, None for no longer set, from settings that were checked by
        themselves. Raises ConfigError, and changes nothing, where they do not fit the others."""
        before = dict(self.static)
        for name, text in texts.items():
            if text is None:
                del self.static[name]
            else:
                self.static[name] = text
        self._forget()
        try:
            self.check_values()
        except ConfigError:
            self.static = before
            self._forget()
            raise
        for name in texts:
            self._sources.pop(name, None)
            if name in origin._sources:
                self._sources[name] = origin._sources[name]

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Take over the dynamic settings of this broker and of all brokers.

        A value that no longer parses (written by another version) counts as not set.
        """
        self.dynamic_broker = _valid(broker)
        self.dynamic_default = _valid(default)
        self._forget()
        self.stored_cordoned = frozenset(self.words("cordoned.log.dirs"))

    def is_set(self, name: str) -> bool:
        """Whether somebody gave `name` a value, the default being nobody's."""
        layers = (self.dynamic_broker, self.dynamic_default, self.static)
        return any(name in layer for layer in layers)

    def text(self, name: str) -> str | None:
        """The text of the value that holds, None where there is none."""
        for layer in (self.dynamic_broker, self.dynamic_default, self.static):
            if name in layer:
                return layer[name]
        key = BROKER.get(name)
        return None if key is None else key.default

    def text_of(self, listener: str, name: str, mechanism: str = "") -> str | None:
        """The text that holds for one listener, or one SASL mechanism of it; what is set for all
        counts where nothing else is."""
        return self.text(self.name_of(listener, name, mechanism))

    def name_of(self, listener: str, name: str, mechanism: str = "") -> str:
        """The name in full that somebody gave the value which holds there."""
        prefix = f"listener.name.{listener.lower()}."
        names = [prefix + name, name]
        if mechanism:
            names.insert(0, f"{prefix}{mechanism.lower()}.{name}")
        return next((one for one in names if self.is_set(one)), name)

    def words_of(self, listener: str, name: str) -> list[str]:
        """Value of a LIST key for one listener."""
        value = parse_value(BROKER[name], self.text_of(listener, name))
        return value if isinstance(value, list) else []

    def is_set_for(self, listener: str, name: str) -> bool:
        """Whether somebody gave `name` a value, for one listener or for all."""
        return self.is_set(name) or self.is_set(f"listener.name.{listener.lower()}.{name}")

    def value(self, name: str) -> Value:
        """The typed value that holds. Raises KeyError for a name that is no key, and, while static
        settings are checked, UnreadableError for one whose text is a mistake."""
        if name not in self._values:
            if name in self._unreadable:
                raise UnreadableError(name)
            self._values[name] = parse_value(BROKER[name], self.text(name))
        return self._values[name]

    def derived(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` returns, which follows from these settings and `key` alone: computed once
        until the settings change. Callers share the result and do not change it."""
        if key in self._derived:
            known: T = self._derived[key]
            return known
        result = compute()
        if len(self._derived) >= _DERIVED_MAX:
            self._derived.clear()
        self._derived[key] = result
        return result

    def _forget(self) -> None:
        """The settings have changed."""
        self._values.clear()
        self._derived.clear()

    def integer(self, name: str) -> int:
        """Value of a key that is a whole number and has a default."""
        value = self.value(name)
        if isinstance(value, int):
            return value
        raise TypeError(f"{name} is no whole number")

    def flag(self, name: str) -> bool:
        """Value of a BOOLEAN key."""
        return bool(self.value(name))

    def string(self, name: str) -> str:
        """Value of a STRING key; an unset one is empty."""
        return format_value(self.value(name)) or ""

    def words(self, name: str) -> list[str]:
        """Value of a LIST key; an unset one is empty."""
        value = self.value(name)
        return value if isinstance(value, list) else []

    @property
    def node_id(self) -> int:
        """Id of this node."""
        return self.integer("node.id")

    @property
    def log_dirs(self) -> list[str]:
        """Data directories as configured, that of the metadata log first."""
        found = self.words("log.dirs") or self.words("log.dir")
        return metadata_first(found, self.string("metadata.log.dir"))

    @property
    def controller_endpoints(self) -> list[Endpoint]:
        """The controller listeners that the settings name, as clients would reach them."""
        return controller_endpoints(
            self.words("listeners"),
            self.words("advertised.listeners"),
            self.words("controller.listener.names"),
        )

    @property
    def cordoned_log_dirs(self) -> list[str]:
        """Those of log.dirs that take no new partitions."""
        named = self.words("cordoned.log.dirs")
        return self.log_dirs if named == ["*"] else named

    @property
    def http_listeners(self) -> list[Endpoint]:
        """Where metrics and health are served."""
        return http_endpoints(self.words(HTTP_LISTENERS))

    @property
    def durable(self) -> bool:
        """Whether acks=all waits for the disk."""
        return self.value("kbroker.durability") != PAGE_CACHE

    def roll_ms(self) -> int:
        """log.roll.ms, else log.roll.hours."""
        return self._first_set("log.roll.ms", ("log.roll.hours", HOUR_MS))

    def roll_jitter_ms(self) -> int:
        """log.roll.jitter.ms, else log.roll.jitter.hours."""
        return self._first_set("log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR_MS))

    def retention_ms(self) -> int:
        """log.retention.ms, else minutes, else hours; -1 for no limit."""
        minutes, hours = ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)
        found = self._first_set("log.retention.ms", minutes, hours)
        return found if found >= 0 else -1

    def flush_ms(self) -> int:
        """log.flush.interval.ms, else log.flush.scheduler.interval.ms."""
        return self._first_set("log.flush.interval.ms", ("log.flush.scheduler.interval.ms", 1))

    def connection_overrides(self) -> dict[str, int]:
        """max.connections.per.ip.overrides: host to most connections. Raises ConfigError."""
        name = "max.connections.per.ip.overrides"
        overrides = {}
        for entry in filter(None, (part.strip() for part in self.string(name).split(","))):
            host, colon, count = entry.rpartition(":")
            if not colon or not _HOST.fullmatch(host) or not _COUNT.fullmatch(count.strip()):
                raise ConfigError(f"{name}: {entry} is not host:count")
            overrides[host.strip()] = int(count)
        return overrides

    def _first_set(self, name: str, *others: tuple[str, int]) -> int:
        for other, factor in ((name, 1), *others):
            value = self.value(other)
            if isinstance(value, int):
                return value * factor
        raise TypeError(f"{name} has no default")


def _resolved(static: Mapping[str, str], placed: Callable[[str, str], str]) -> Mapping[str, str]:
    """Static texts with what their variables stand for, where config.providers says that they have
    any. Raises ConfigError, with the place of the line by `placed`."""
    if not any(name.startswith("config.providers") for name in static):
        return static
    from kbroker.config.providers import providers_of, resolve  # noqa: PLC0415  not every start

    providers = providers_of(static)
    found = {}
    for name, text in static.items():
        try:
            plain = not providers or name.startswith("config.providers")
            found[name] = text if plain else resolve(text, providers)
        except ConfigError as error:
            raise ConfigError(placed(name, f"{name}: {error}")) from None
    return found


def _valid(texts: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, text in texts.items():
        key = find_broker_key(name)
        if key is not None:
            try:
                parse_value(key, text)
            except ConfigError:
                continue
        kept[name] = text
    return kept


def parse_assignment(text: str) -> tuple[str, str]:
    """Key and value of one `--set key=value`. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {text}: write it as key=value")
    return name.strip(), value.strip()


def load_config(
    path: Path | None = None,
    assignments: Iterable[str] = (),
    defaults: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Settings of the file at `path`, then of the environment, then of `--set` arguments: the last
    that says something counts.

    `defaults` are the caller's own, used where neither says anything. Raises ConfigError.
    """
    texts: dict[str, str] = {}
    sources: dict[str, str] = {}
    if path is not None:
        from kbroker.config.properties import read_properties  # noqa: PLC0415  not every start

        for name, found in read_properties(path).items():
            texts[name] = found.value
            sources[name] = f"{path}, line {found.line}"
    if setting_variables(os.environ):
        from kbroker.config.environment import environment_settings  # noqa: PLC0415  as above

        for name, variable in environment_settings(os.environ).items():
            texts[name] = os.environ[variable]
            sources[name] = variable
    for assignment in assignments:
        name, value = parse_assignment(assignment)
        texts[name] = value
        sources[name] = "--set"
    for name, value in (defaults or {}).items():
        if name not in texts:
            texts[name] = value
            sources[name] = "kbroker default"
    return BrokerConfig(texts, sources)


def shown_value(key: ConfigKey, text: str | None) -> str | None:
    """`text` as it may be shown: in canonical form, secrets hidden."""
    if key.sensitive:
        return None if text is None else "(hidden)"
    return format_value(parse_value(key, text))
