"""Settings put into words, for `kbroker config` and the start-up log."""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.config.broker import BrokerConfig, shown_value
from kbroker.config.definitions import (
    BROKER,
    CLIENT_METRICS,
    FIXED_HERE,
    GROUP,
    THROTTLES,
    TOPIC,
    find_broker_key,
    removed_key_text,
)
from kbroker.config.topic import BROKER_SYNONYM
from kbroker.config.types import READ_ONLY, ConfigError, ConfigKey

# What else than a broker has settings.
_TABLES: Final = {"topic": TOPIC, "group": GROUP, "client metrics": CLIENT_METRICS}


class Setting(NamedTuple):
    """One line of `kbroker config show`."""

    name: str
    value: str | None
    source: str


def show(config: BrokerConfig, *, with_defaults: bool = False) -> list[Setting]:
    """What is set, sorted by name; with all keys where defaults are wanted."""
    names = {*config.static, *config.dynamic_broker, *config.dynamic_default}
    if with_defaults:
        names |= {name for name, key in BROKER.items() if not key.internal}
    lines = []
    for name in sorted(names):
        key = find_broker_key(name)
        text = config.text(name)
        shown = text if key is None else shown_value(key, text)
        lines.append(Setting(name, shown, config.source(name)))
    return lines


class Useless(NamedTuple):
    """One line of `kbroker config explain --without-effect`."""

    name: str
    of: str
    doc: str


def without_effect() -> list[Useless]:
    """What Apache Kafka has and means nothing here, by whom it can be set on, sorted by name."""
    tables = {"broker": BROKER | THROTTLES, **_TABLES}
    return [
        Useless(key.name, of, key.doc)
        for of, table in tables.items()
        for _, key in sorted(table.items())
        if not key.effective
    ]


def explain(name: str) -> list[str]:
    """Lines about one key, of whatever it can be set on. Raises ConfigError."""
    rooms = {"broker": find_broker_key(name) or THROTTLES.get(name)}
    rooms |= {of: table.get(name) for of, table in _TABLES.items()}
    lines = [line for kind, key in rooms.items() if key is not None for line in _explain(kind, key)]
    if lines:
        return lines
    if removed := removed_key_text(name):
        raise ConfigError(removed)
    import difflib  # noqa: PLC0415  only for a mistake

    known = [*BROKER, *THROTTLES, *(key for table in _TABLES.values() for key in table)]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f": did you mean {near[0]}?" if near else ""
    raise ConfigError(f"unknown key {name}{hint}")


def _explain(kind: str, key: ConfigKey) -> list[str]:
    lines = [
        f"{key.name} ({kind})",
        f"  {key.doc}",
        f"  type: {key.type.name.lower()}",
        f"  default: {'(none)' if key.default is None else key.default or '(empty)'}",
    ]
    if key.check is not None and key.check.text:
        lines.append(f"  valid: {key.check.text}")
    lines.append(f"  importance: {key.importance}")
    if kind == "broker":
        update = READ_ONLY if key.name in FIXED_HERE else key.update_mode
        lines.append(f"  update: {update}")
        topic = [name for name, broker in BROKER_SYNONYM.items() if broker == key.name]
        lines += [f"  default of the topic setting {name}" for name in topic]
    elif key.name in BROKER_SYNONYM and kind == "topic":
        lines.append(f"  broker key: {BROKER_SYNONYM[key.name]}")
    if not key.effective:
        lines.append("  effect: none in kbroker")
    return lines


def ignored_line(config: BrokerConfig) -> str | None:
    """The one line at start about keys that are known and mean nothing here."""
    if not config.ignored:
        return None
    return f"settings without effect on one node: {', '.join(sorted(config.ignored))}"
