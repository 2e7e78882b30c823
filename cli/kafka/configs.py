"""kafka-configs: settings of topics, brokers, groups and client metrics, quotas and SCRAM
credentials of users, clients and addresses (ConfigCommand)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kbroker.cli.kafka.options import (
    Given,
    UsageError,
    check_invalid,
    flag,
    text,
)
from kbroker.cli.kafka.tool import Tool, open_cluster, read_properties, say, start, warn

if TYPE_CHECKING:
    from kbroker.client.admin_configs import ConfigEntry
    from kbroker.client.cluster import Cluster

_TYPES = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups",
          "broker-loggers")  # fmt: skip
_QUOTA_TYPES = ("users", "clients", "ips")
_HAS_DEFAULT = ("users", "clients", "brokers", "ips")

# Flags that name type and entity at once, and those that mean the default of a type.
_ENTITIES = {
    "topic": "topics", "client": "clients", "user": "users", "broker": "brokers",
    "broker-logger": "broker-loggers", "ip": "ips", "client-metrics": "client-metrics",
    "group": "groups",
}  # fmt: skip
_DEFAULTS = {
    "client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers",
    "ip-defaults": "ips",
}  # fmt: skip

_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"

_OPTIONS = (
    text("bootstrap-server", "HOST:PORT", "Brokers to talk to."),
    text("bootstrap-controller", "HOST:PORT", "Controllers to talk to instead."),
    text("command-config", "FILE", "Settings of the admin client, as properties."),
    flag("alter", "Change settings of an entity."),
    flag("describe", "Show settings of entities."),
    flag("all", "Show all settings, with defaults and those of server.properties."),
    text("entity-type", "TYPE", f"{', '.join(_TYPES)}. Users and clients may be given both."),
    text("entity-name", "NAME", "Name of the topic, client id, user, broker id, address, client"
         " metrics or group."),
    flag("entity-default", "The defaults of clients, users, brokers or addresses."),
    text("add-config", "K=V,K=[V,V]", "Settings to set; brackets around values with commas."),
    text("add-config-file", "FILE", "The same, as properties."),
    text("delete-config", "K,K", "Settings to take away."),
    *(text(name, "NAME", f"The same as --entity-type {kind} --entity-name NAME.")
      for name, kind in _ENTITIES.items()),
    *(flag(name, f"The same as --entity-type {kind} --entity-default.")
      for name, kind in _DEFAULTS.items()),
)  # fmt: skip


def main() -> int:
    """The entry point."""
    return start(TOOL)


def entity_types(given: Given) -> list[str]:
    """The kinds of entities meant."""
    flags = _ENTITIES | _DEFAULTS
    return given.values("entity-type") + [flags[name] for name in flags if given.has(name)]


def entity_names(given: Given) -> list[str]:
    """Their names in the order of the command line; empty: the default."""
    told = [option for option in given.order if option[0] in ("entity-name", "entity-default")]
    named = [value or "" for _, value in told]
    named += [given.needed(name) for name in _ENTITIES if given.has(name)]
    return named + ["" for name in _DEFAULTS if given.has(name)]


def _work(given: Given) -> int:
    _check(given)
    types, names = entity_types(given), entity_names(given)
    if given.has("alter") and len(types) != len(names):
        raise ValueError("An entity name must be specified for every entity type")
    file, controllers = given.value("command-config"), given.value("bootstrap-controller")
    with open_cluster(given.value("bootstrap-server"), file, controllers=controllers) as cluster:
        if given.has("alter"):
            _alter(cluster, given, types, names)
        elif types[0] in _QUOTA_TYPES:
            from kbroker.cli.kafka.config_quotas import describe

            describe(cluster, types, names)
        else:
            _describe(cluster, types[0], names[0] if names else None, given.has("all"))
    return 0


def _failed(given: Given, error: Exception) -> int:
    from kbroker.client.errors import KafkaError

    if isinstance(error, KafkaError):
        warn(f"Error while executing config command with args '{' '.join(given.words)}'")
    warn(str(error))
    return 1


def _check(given: Given) -> None:
    if given.has("alter") + given.has("describe") != 1:
        raise UsageError("Command must include exactly one action: --describe, --alter")
    check_invalid(given, "describe", ["add-config", "delete-config"])
    types, names = entity_types(given), entity_names(given)
    if len(types) != len(set(types)):
        twice = ",".join(sorted({kind for kind in types if types.count(kind) > 1}))
        raise ValueError(f"Duplicate entity type(s) specified: {twice}")
    if not given.has("bootstrap-server") and not given.has("bootstrap-controller"):
        raise ValueError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    for kind in types:
        if kind not in _TYPES:
            raise ValueError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(_TYPES)}"
                " with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        raise ValueError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        raise ValueError("Only 'users' and 'clients' entity types may be specified together")
    general = any(map(given.has, ("entity-name", "entity-type", "entity-default")))
    if general and any(map(given.has, (*_ENTITIES, *_DEFAULTS))):
        raise ValueError(
            "--entity-{type,name,default} should not be used in conjunction with specific entity"
            " flags"
        )
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise ValueError(
            "Only one of --bootstrap-server or --bootstrap-controller can be specified"
        )
    _check_names(types[0], [name for name in names if name])
    (_check_alter if given.has("alter") else _check_describe)(given, types, names)


def _check_names(kind: str, names: list[str]) -> None:
    for name in names:
        if kind in ("brokers", "broker-loggers") and not _is_id(name):
            raise ValueError(
                f"The entity name for {kind} must be a valid integer broker id, but it is: {name}"
            )
        if kind == "ips" and not _is_host(name):
            raise ValueError(
                f"The entity name for {kind} must be a valid IP or resolvable host, but it is:"
                f" {name}"
            )


def _is_id(name: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,9}", name, re.ASCII) is not None


def _is_host(name: str) -> bool:
    import socket

    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def _check_describe(given: Given, types: list[str], names: list[str]) -> None:
    if given.has("entity-default") and not set(types) & set(_HAS_DEFAULT):
        raise ValueError(
            f"--entity-default must not be specified with --describe of {','.join(types)}"
        )
    if "broker-loggers" in types and not any(names):
        raise ValueError(
            f"An entity name must be specified with --describe of {','.join(types)}"
        )


def _check_alter(given: Given, types: list[str], names: list[str]) -> None:
    if set(types) & set(_HAS_DEFAULT):
        if not names:
            raise ValueError(
                "An entity-name or default entity must be specified with --alter of users, clients,"
                " brokers or ips"
            )
    elif not any(names):
        raise ValueError(f"An entity name must be specified with --alter of {','.join(types)}")
    if given.has("add-config") and given.has("add-config-file"):
        raise ValueError("Only one of --add-config or --add-config-file must be specified")
    if not any(map(given.has, ("add-config", "add-config-file", "delete-config"))):
        raise ValueError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )


def added(given: Given) -> dict[str, str]:
    """What --add-config and --add-config-file set."""
    from kbroker.cli.kafka.java import split

    found = read_properties(given.value("add-config-file"))
    told = given.value("add-config")
    pairs = [] if told is None else split("," + _OUTSIDE_BRACKETS, told)
    parts = [re.split(r"\s*=\s*" + _OUTSIDE_BRACKETS, pair) for pair in pairs]
    if any(len(part) != 2 for part in parts):
        raise ValueError(
            "requirement failed: Invalid entity config: all configs to be added must be in the"
            ' format "key=val" or  "key=[val1,val2]" to group values which contain commas.'
        )
    found |= {key.strip(): re.sub(r"[\[\]]", "", value).strip() for key, value in parts}
    for key in found:
        if not re.fullmatch("[$a-zA-Z0-9._-]*", key):
            raise ValueError(f"Invalid character found for config key: {key}")
    return found


def _alter(cluster: Cluster, given: Given, types: list[str], names: list[str]) -> None:
    settings = added(given)
    words = [word for told in given.values("delete-config") for word in told.split(",")]
    deleted = [word.strip() for word in words]
    kind, name = types[0], names[0]
    if kind in _QUOTA_TYPES:
        from kbroker.cli.kafka.config_quotas import alter

        alter(cluster, types, names, settings, deleted)
    else:
        from kbroker.client.admin_configs import ConfigOp, alter_resources

        if kind == "broker-loggers":
            _check_loggers(cluster, name, [*deleted, *settings])
        changes = [ConfigOp(key, "", "delete") for key in deleted]
        changes += [ConfigOp(key, value) for key, value in settings.items()]
        alter_resources(cluster, {(_resource(kind), name): changes}).checked()
    if name:
        say(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        say(f"Completed updating default config for {kind} in the cluster.")


def _check_loggers(cluster: Cluster, broker: str, names: list[str]) -> None:
    known = {entry.name for entry in _entries(cluster, "broker-loggers", broker, True)}
    wrong = [name for name in names if name not in known]
    if wrong:
        raise ValueError(f"Invalid broker logger(s): {','.join(wrong)}")


def _resource(kind: str) -> int:
    from kbroker.client import admin_configs

    return {
        "topics": admin_configs.TOPIC,
        "brokers": admin_configs.BROKER,
        "broker-loggers": admin_configs.BROKER_LOGGER,
        "client-metrics": admin_configs.CLIENT_METRICS,
        "groups": admin_configs.GROUP,
    }[kind]


def _describe(cluster: Cluster, kind: str, name: str | None, every: bool) -> None:
    if name is not None and not every:
        if kind == "topics":
            _check_topic(name)
        if name not in _known(cluster, kind, name):
            say(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.")
            return
    for entity in sorted(_known(cluster, kind), key=_last_default) if name is None else [name]:
        if entity:
            which = "All" if every else "Dynamic"
            say(f"{which} configs for {kind[:-1]} {entity} are:")
        else:
            say(f"Default configs for {kind} in the cluster are:")
        for entry in _entries(cluster, kind, entity, every):
            same = ", ".join(
                f"{_SOURCES.get(source, source)}:{key}={_shown(value)}"
                for source, key, value in entry.synonyms
            )
            say(f"  {entry.name}={_shown(entry.value)} sensitive={str(entry.sensitive).lower()}"
                f" synonyms={{{same}}}")  # fmt: skip


def _last_default(entity: str) -> tuple[bool, str]:
    return not entity, entity


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _check_topic(name: str) -> None:
    if name and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) and name not in (".", ".."):
        return
    raise ValueError(f"Topic name is invalid: '{name}'")


def _known(cluster: Cluster, kind: str, name: str | None = None) -> set[str]:
    """The entities of a kind that there are; empty stands for the brokers' defaults. name: the one
    that is looked for; a group counts as there where brokers cannot say that it is not."""
    from kbroker.client.admin_configs import CLIENT_METRICS, list_config_resources

    if kind == "topics":
        return {topic.name for topic in cluster.topics()}
    if kind == "client-metrics":
        return {name for _, name in list_config_resources(cluster, [CLIENT_METRICS])}
    if kind == "groups":
        return _known_groups(cluster, name)
    cluster.refresh([])
    return {"", *map(str, cluster.nodes)}


def _known_groups(cluster: Cluster, name: str | None) -> set[str]:
    """Groups that exist, and those that have settings, where the broker tells (Kafka 4.1)."""
    from kbroker.client.admin_configs import GROUP, list_config_resources
    from kbroker.client.errors import BrokerError, UnsupportedApiError
    from kbroker.client.groups import list_groups
    from kbroker.errors import ErrorCode

    found = {group.group_id for group in list_groups(cluster)}
    try:
        return found | {group for _, group in list_config_resources(cluster, [GROUP])}
    except UnsupportedApiError:
        pass
    except BrokerError as error:
        hidden = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if error.code not in hidden:
            raise
    return found | ({name} if name is not None else set())


# Where a value comes from: the client's word, Kafka's name.
_SOURCES = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker (dynamic)": "DYNAMIC_BROKER_CONFIG",
    "cluster default (dynamic)": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "broker (static)": "STATIC_BROKER_CONFIG",
    "default": "DEFAULT_CONFIG",
    "broker logger": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "client metrics": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "group": "DYNAMIC_GROUP_CONFIG",
}
_OWN = {"topics": "topic", "client-metrics": "client metrics", "groups": "group"}


def _entries(cluster: Cluster, kind: str, name: str, every: bool) -> list[ConfigEntry]:
    """Settings by name: all, or those that were set on the entity itself."""
    from kbroker.client.admin_configs import describe_resources

    resource = (_resource(kind), name)
    found = describe_resources(cluster, [resource], synonyms=True)[resource]
    source = _OWN.get(kind)
    if kind == "brokers":
        source = "broker (dynamic)" if name else "cluster default (dynamic)"
    if every or source is None:
        return found
    return [entry for entry in found if entry.source == source]


TOOL = Tool(
    "Show and change settings of topics, clients, users, brokers, addresses, client metrics and"
    " groups.",
    _OPTIONS,
    _work,
    _failed,
)
