"""Settings of clients against the definitions in Apache Kafka's own jars."""

from __future__ import annotations

import dataclasses
from typing import Any

from kbroker.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from kbroker.client.config_types import specs_of
from tests.support.tool_jvm import program_output

KINDS: dict[str, type[Any]] = {
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
    "admin": AdminConfig,
}

#: Defaults that name Java classes, for which ours name the same by other words, or nothing.
JAVA_DEFAULTS = {
    "metric.reporters",
    "partition.assignment.strategy",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
}

#: Rules of Kafka's without a text, and sets that it prints in the order of their hashes.
OTHER_CHECKS = {"null", ""}

#: What Kafka does not know.
OURS = {
    "sasl.username", "sasl.password", "ssl.ca.location", "ssl.certificate.location",
    "ssl.key.location", "enable.sasl.oauthbearer.unsecure.jwt", "queued.max.messages.kbytes",
    "sasl.oauthbearer.token.callback",
}  # fmt: skip

#: Kafka has these where they mean something; here they are settings of every client.
SHARED = {"default.api.timeout.ms", "retries"}


def _kafkas_keys() -> list[list[str]]:
    output = program_output("ConfigDefs")
    return [line.split("\t") for line in output.splitlines() if line.count("\t") == 4]


def _words(text: str) -> list[str]:
    text = text.removeprefix("(case insensitive) ")
    return sorted(text.lower().replace("[", " ").replace("]", " ").replace(",", " ").split())


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def test_every_key_of_kafka_is_known_with_its_type_default_and_range():
    keys = _kafkas_keys()
    assert len(keys) > 250
    for kind, name, type_name, default, check in keys:
        attribute = name.replace(".", "_")
        spec = specs_of(KINDS[kind])[attribute]
        fields = {field.name: field.default for field in dataclasses.fields(KINDS[kind])}
        assert {"plugins": "list"}.get(spec.kind, spec.kind) == type_name, name
        if default != "required" and name not in JAVA_DEFAULTS | {"acks"}:
            assert _shown(fields[attribute]) == default, name
        if check not in OTHER_CHECKS:
            assert spec.check is not None and _words(spec.check.text) == _words(check), name
    theirs = {(kind, name) for kind, name, *_ in keys}
    for kind, config in KINDS.items():
        ours = {(kind, name.replace("_", ".")) for name in specs_of(config)}
        assert {name for _, name in ours - theirs} <= OURS | SHARED
