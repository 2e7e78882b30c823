"""Our table of config keys against the definitions in Apache Kafka's own jars."""

from __future__ import annotations

from kbroker.config.definitions import BROKER, GROUP, TOPIC
from tests.support.tool_jvm import program_output

TABLES = {"broker": BROKER, "topic": TOPIC, "group": GROUP}

#: Kafka demands these, or has another default; a broker that starts by itself needs its own.
OWN_DEFAULTS = {"node.id", "process.roles", "controller.listener.names", "listeners"}

#: Checks whose text in Kafka says less, or the same in other words.
OTHER_CHECKS = {"null", "non-null string", "non-empty list", ""}

#: Kafka's StandardAuthorizer reads these by itself.
OF_THE_AUTHORIZER = {("broker", "super.users"), ("broker", "allow.everyone.if.no.acl.found")}


def _kafkas_keys() -> list[list[str]]:
    output = program_output("ConfigKeys")
    return [line.split("\t") for line in output.splitlines() if line.count("\t") == 7]


def test_every_key_of_kafka_is_known_with_its_type_default_range_and_update_mode():
    keys = _kafkas_keys()
    assert len(keys) > 400
    for kind, name, type_name, default, check, importance, mode, internal in keys:
        key = TABLES[kind][name]
        assert key.type.name == type_name, name
        assert key.importance == importance, name
        assert key.internal == (internal == "true"), name
        if kind == "broker":
            assert key.update_mode == mode, name
        if name not in OWN_DEFAULTS:
            assert str("null" if key.default is None else key.default) == default, name
        if check not in OTHER_CHECKS:
            assert key.check is not None and key.check.text == check, name
    ours = {(kind, name) for kind, table in TABLES.items() for name in table}
    extra = ours - {(kind, name) for kind, name, *_ in keys}
    extra -= OF_THE_AUTHORIZER
    assert all(name.startswith("kbroker.") for _, name in extra), extra
