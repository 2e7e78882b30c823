"""All broker keys by name, and what is known about names that are not keys."""

from __future__ import annotations

import re
from typing import Final

from kbroker.config import (
    definitions_cluster,
    definitions_groups,
    definitions_kbroker,
    definitions_log,
    definitions_network,
    definitions_remote,
    definitions_security,
)
from kbroker.config.definitions_topic import CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from kbroker.config.types import ConfigKey


def _by_name(*tables: tuple[ConfigKey, ...]) -> dict[str, ConfigKey]:
    keys = {key.name: key for table in tables for key in table}
    if len(keys) != sum(map(len, tables)):
        raise AssertionError("a config key is defined twice")
    return keys


BROKER: Final = _by_name(
    definitions_cluster.KEYS,
    definitions_groups.KEYS,
    definitions_kbroker.KEYS,
    definitions_log.KEYS,
    definitions_network.KEYS,
    definitions_remote.KEYS,
    definitions_security.KEYS,
)
THROTTLES: Final = _by_name(definitions_network.THROTTLES)
TOPIC: Final = _by_name(TOPIC_KEYS)
GROUP: Final = _by_name(GROUP_KEYS)
CLIENT_METRICS: Final = _by_name(CLIENT_METRICS_KEYS)

# What Apache Kafka takes while it runs, and kbroker with the next start: Kafka opens a listener
# that is added, but does not register it, so that no client is served there.
FIXED_HERE: Final = frozenset({"listeners", "listener.security.protocol.map"})

# Keys that a file for an older Apache Kafka may still hold, by the release that took them away.
_REMOVED_IN: Final = {
    "3.0": ("advertised.host.name", "advertised.port", "host.name", "port"),
    "4.0": (
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "password.encoder.cipher.algorithm",
        "password.encoder.iterations",
        "password.encoder.key.length",
        "password.encoder.keyfactory.algorithm",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "reserved.broker.max.id",
    ),
    "4.1": ("group.coordinator.new.enable",),
}
_REMOVED: Final = {name: release for release, names in _REMOVED_IN.items() for name in names}
_REPLACED: Final = {
    "delegation.token.master.key": "delegation.token.secret.key",
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms",
}

# Settings of one listener (and SASL mechanism), and of plugins that name their own keys.
_PROVIDERS: Final = "config.providers."  # see kbroker.config.providers
_LISTENER: Final = r"listener\.name\.[^.]+\.(?:[a-z0-9-]+\.)??(?P<base>.+)"
# What is asked for a listener by itself; of other keys a listener's has no effect.
PER_LISTENER: Final = frozenset(
    {
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.server.callback.handler.class",
    }
    | {name for name in BROKER if name.startswith("ssl.")}
)
_PLUGIN_PREFIXES: Final = (_PROVIDERS, "rsm.config.", "rlmm.config.")


def find_broker_key(name: str) -> ConfigKey | None:
    """The key that `name` sets, also where it sets it for one listener only."""
    key = BROKER.get(name)
    if key is not None:
        return key
    listener = re.fullmatch(_LISTENER, name) if name.startswith("listener.name.") else None
    if listener is not None:
        base = listener.group("base")
        if base in BROKER:
            return BROKER[base]
        _, dot, rest = base.partition(".")
        return BROKER.get(rest) if dot else None
    return None


def group_broker_key(name: str) -> str | None:
    """The broker key that a group setting without an override takes, None where there is none."""
    broker = f"group.{name}"
    return broker if broker in BROKER else None


def is_plugin_key(name: str) -> bool:
    """Whether `name` belongs to a plugin of Apache Kafka, which says itself what it means."""
    return name.startswith(_PLUGIN_PREFIXES)


def is_ignored(name: str, key: ConfigKey | None) -> bool:
    """Whether nothing comes of `name`, which sets `key`, or belongs to a plugin."""
    if key is None:
        return not name.startswith(_PROVIDERS)
    return not key.effective or (key.name != name and key.name not in PER_LISTENER)


def is_secret(name: str) -> bool:
    """Whether the value of a broker key, or of one for a listener, is never shown."""
    key = find_broker_key(name)
    return key is not None and key.sensitive


def removed_key_text(name: str) -> str | None:
    """One line about a name that was a broker key; None for one that was none, or still is."""
    removed = "4.0" if name.startswith("zookeeper.") else _REMOVED.get(name)
    if removed is None:
        return None
    then = f"write {_REPLACED[name]}" if name in _REPLACED else "take the line out"
    return f"unknown key {name}: Apache Kafka {removed} removed it, {then}"


def unknown_key_text(name: str) -> str:
    """One line about a name that is no broker key, with the nearest one that is."""
    if removed := removed_key_text(name):
        return removed
    if name in TOPIC:
        return f"unknown key {name}: it is a setting of topics, not of the broker"
    import difflib  # noqa: PLC0415  only for a mistake

    near = difflib.get_close_matches(name, BROKER, n=1, cutoff=0.6)
    return f"unknown key {name}" + (f": did you mean {near[0]}?" if near else "")
