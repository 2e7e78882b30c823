"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, of topics and of the broker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.differential.harness import Differ, Script, same

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

#: Broker settings that name a place, and so have another value on each side. Where the value comes
#: from is compared. kbroker listens on loopback alone by default, Apache Kafka on every interface.
PLACES = {"listeners", "log.dirs", "controller.quorum.bootstrap.servers"}


def shared(answer: dict[str, Any]) -> dict[str, Any]:
    """Leave out the values of places, and kbroker's own keys."""
    for result in answer["results"]:
        result["configs"] = [
            entry for entry in result["configs"] if not entry["name"].startswith("kbroker.")
        ]
        for entry in result["configs"]:
            if entry["name"] in PLACES:
                for shown in (entry, *entry["synonyms"]):
                    shown["value"] = shown["value"] is not None
    return answer


def resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def describe(s: Script, version: int, *resources: dict[str, Any], **fields: Any) -> None:
    s.call(32, version, {"resources": resources} | fields, keep=shared)


@same(range(1, 5))
def test_describe_topic(s: Script, version: int) -> None:
    """Every setting of a topic: value, source, type, synonyms."""
    plain = s.topic("plain")
    own = s.topic("own", retention_ms="1000", cleanup_policy="compact", segment_bytes="2000000")
    everything = {"include_synonyms": True}
    if version >= 3:
        everything["include_documentation"] = True
    describe(s, version, resource(TOPIC, plain), resource(TOPIC, own), **everything)
    describe(s, version, resource(TOPIC, own))
    some = ["retention.ms", "no.such.key", "retention.ms", "cleanup.policy"]
    describe(s, version, resource(TOPIC, own, some), **everything)
    describe(s, version, resource(TOPIC, own, []))


@same(range(1, 5))
def test_describe_refused(s: Script, version: int) -> None:
    topic = s.topic()
    describe(
        s, version, resource(TOPIC, s.name("unknown")), resource(TOPIC, topic, ["preallocate"])
    )
    describe(s, version, resource(TOPIC, s.name("bad name")))
    describe(s, version, resource(TOPIC, ""))
    describe(s, version, resource(BROKER, "7"))
    describe(s, version, resource(BROKER, "one"))
    describe(s, version, resource(0, "x"))
    describe(s, version, resource(3, "x"))
    describe(s, version)


@same(range(1, 5))
def test_describe_broker(s: Script, version: int) -> None:
    everything = {"include_synonyms": True}
    if version >= 3:
        everything["include_documentation"] = True
    describe(s, version, resource(BROKER, "1"), **everything)
    describe(s, version, resource(BROKER, "1", ["num.io.threads", "log.retention.ms", "nope"]))
    describe(s, version, resource(BROKER, ""), **everything)


def alter(s: Script, version: int, *resources: dict[str, Any], **fields: Any) -> None:
    s.call(33, version, {"resources": resources} | fields)


def replaced(kind: int, name: str, **configs: str | None) -> dict[str, Any]:
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


@same(range(3))
def test_alter(s: Script, version: int) -> None:
    """AlterConfigs puts a whole new set in place of the old one."""
    topic = s.topic(retention_ms="5000")
    after = resource(TOPIC, topic, ["retention.ms", "max.message.bytes", "cleanup.policy"])
    alter(s, version, replaced(TOPIC, topic, max_message_bytes="2000"))
    s.until_config(topic, "max.message.bytes", "2000")
    describe(s, 4, after)
    alter(s, version, replaced(TOPIC, topic, cleanup_policy="compact"), validate_only=True)
    for bad in ({"retention_ms": "soon"}, {"no_such": "1"}, {"retention_ms": None},
                {"cleanup_policy": "burn"}, {"segment_bytes": "3"}):  # fmt: skip
        alter(s, version, replaced(TOPIC, topic, **bad))
    alter(s, version, replaced(TOPIC, s.name("unknown"), retention_ms="1"))
    alter(s, version, replaced(TOPIC, "", retention_ms="1"))
    alter(s, version, replaced(BROKER, "9", background_threads="4"))
    alter(s, version, replaced(0, "x"))
    describe(s, 4, after)
    alter(s, version, replaced(TOPIC, topic))
    s.until_config(topic, "max.message.bytes", "1048588")
    describe(s, 4, after)


def change(s: Script, version: int, *resources: dict[str, Any], **fields: Any) -> None:
    s.call(44, version, {"resources": resources} | fields)


def step(kind: int, name: str, *changes: tuple[str, int, str | None]) -> dict[str, Any]:
    rows = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


@same((0, 1))
def test_change(s: Script, version: int) -> None:
    """IncrementalAlterConfigs: set, delete, append and subtract."""
    topic = s.topic()
    keys = ["retention.ms", "cleanup.policy", "max.message.bytes"]
    for change_set, key, value in (
        ([("retention.ms", SET, "7000")], "retention.ms", "7000"),
        ([("cleanup.policy", APPEND, "compact")], "cleanup.policy", "delete,compact"),
        ([("cleanup.policy", SUBTRACT, "delete")], "cleanup.policy", "compact"),
        ([("retention.ms", DELETE, None), ("max.message.bytes", SET, "99")],
         "max.message.bytes", "99"),
    ):  # fmt: skip
        change(s, version, step(TOPIC, topic, *change_set))
        s.until_config(topic, key, value)
        describe(s, 4, resource(TOPIC, topic, keys), include_synonyms=True)


@pytest.mark.parametrize(
    "changes",
    [
        [("retention.ms", APPEND, "1")],
        [("retention.ms", SUBTRACT, "1")],
        [("retention.ms", SET, None)],
        [("retention.ms", SET, "soon")],
        [("retention.ms", SET, "-2")],
        [("retention.ms", SET, "")],
        [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        [("no.such.key", SET, "1")],
        [("no.such.key", DELETE, None)],
        [("", SET, "1")],
        [("cleanup.policy", APPEND, "burn")],
        [("cleanup.policy", APPEND, "delete")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", SET, "")],
        [("min.insync.replicas", SET, "0")],
        [("compression.zstd.level", SET, "50")],
        [("preallocate", SET, "maybe")],
        [("segment.bytes", SET, "99999999999")],
        [("min.cleanable.dirty.ratio", SET, "1.5")],
        [("message.timestamp.type", SET, "logappendtime")],
        [("remote.storage.enable", SET, "true")],
        [],
    ],
    ids=str,
)
def test_change_refused(
    differ: Differ, now_ms: int, changes: list[tuple[str, int, str | None]]
) -> None:
    """Alone and only validated, then beside a good change of another topic."""

    def run(s: Script) -> None:
        topic, other = s.topic("a"), s.topic("b")
        change(s, 1, step(TOPIC, topic, *changes), validate_only=True)
        good = step(TOPIC, other, ("retention.ms", SET, "123"))
        change(s, 1, step(TOPIC, topic, *changes), good)
        s.until_config(other, "retention.ms", "123")
        names = [key for key, _, _ in changes] or ["retention.ms"]
        describe(s, 4, resource(TOPIC, topic, names), resource(TOPIC, other, ["retention.ms"]))

    differ.compare(run, now_ms)


@same((0, 1))
def test_change_of_what(s: Script, version: int) -> None:
    topic = s.topic()
    one = ("retention.ms", SET, "1")
    change(s, version, step(TOPIC, s.name("unknown"), one), step(TOPIC, topic, one))
    change(s, version, step(TOPIC, s.name("bad name"), one))
    change(s, version, step(TOPIC, "", one))
    change(s, version, step(0, "x", one), step(3, "y", one))
    change(s, version, step(TOPIC, topic, one), step(TOPIC, topic, one))
    change(s, version)


@same((0, 1))
def test_change_broker(s: Script, version: int) -> None:
    """Settings that can change while the broker runs, those that cannot, and back again."""
    for name in ("1", ""):
        dynamic = ("message.max.bytes", SET, "2000000")
        change(s, version, step(BROKER, name, dynamic))
        s.until_config(name, "message.max.bytes", "2000000", BROKER)
        describe(s, 4, resource(BROKER, name, ["message.max.bytes"]), include_synonyms=True)
        change(s, version, step(BROKER, name, ("message.max.bytes", DELETE, None)))
        if name:
            s.until_config(name, "message.max.bytes", "1048588", BROKER)
        for bad in (("message.max.bytes", SET, "many"), ("num.partitions", SET, "3"),
                    ("log.retention.ms", SET, "0"), ("num.io.threads", SET, "0"),
                    ("no.such.key", SET, "1"), ("process.roles", SET, "broker")):  # fmt: skip
            change(s, version, step(BROKER, name, bad), validate_only=True)
    change(s, version, step(BROKER, "7", ("message.max.bytes", SET, "2000000")))
    change(s, version, step(BROKER, "x", ("message.max.bytes", SET, "2000000")))


@same((0, 1))
def test_lists_that_repeat(s: Script, version: int) -> None:
    """An element of a list that is named twice counts once."""
    topic = s.topic("new", cleanup_policy="compact,compact")
    policy, throttled = "cleanup.policy", "leader.replication.throttled.replicas"
    asked = resource(TOPIC, topic, [policy, throttled])
    describe(s, 4, asked, include_synonyms=True)
    for key, op, value, shown in (
        (policy, SET, "delete,delete,compact", "delete,compact"),
        (policy, APPEND, "delete,delete", "delete,compact"),
        (policy, SUBTRACT, "delete,delete", "compact"),
        (policy, APPEND, "compact,delete,delete", "compact,delete"),
        (throttled, SET, "0:1,0:1", "0:1,0:1"),
    ):
        change(s, version, step(TOPIC, topic, (key, op, value)))
        s.until_config(topic, key, shown)
        describe(s, 4, asked, include_synonyms=True)
    lists = [("log.cleanup.policy", "delete,delete"), ("ssl.enabled.protocols", "TLSv1.3,TLSv1.3"),
             ("listener.name.none.sasl.enabled.mechanisms", "PLAIN,PLAIN")]  # fmt: skip
    for key, value in lists:
        name = "" if key.startswith("log") else "1"
        change(s, version, step(BROKER, name, (key, SET, value)))
        shown = value.split(",")[0] if key.startswith("ssl") else value
        s.until_config(name, key, shown, BROKER)
        describe(s, 4, resource(BROKER, name, [key]), include_synonyms=True)
        change(s, version, step(BROKER, name, (key, DELETE, None)))


@same()
def test_throttles(s: Script, version: int) -> None:
    """Settings that no file holds are shown as what they are, once they are set."""
    names = ["replica.alter.log.dirs.io.max.bytes.per.second", "leader.replication.throttled.rate"]
    for name in ("1", ""):
        change(s, 1, step(BROKER, name, *((key, SET, "1000000") for key in names)))
        s.until_config(name, names[0], "1000000", BROKER)
        describe(s, 4, resource(BROKER, name, names), include_synonyms=True,
                 include_documentation=True)  # fmt: skip
        change(s, 1, step(BROKER, name, *((key, DELETE, None) for key in names)))


@same()
def test_settings_of_listeners(s: Script, version: int) -> None:
    """By their prefix, for one broker or for all, told beside what they stand for."""
    prefix = "listener.name.plaintext."
    own = [(f"{prefix}max.connections", SET, "100"), (f"{prefix}plain.sasl.jaas.config", SET, "x"),
           (f"{prefix}sasl.enabled.mechanisms", SET, "PLAIN, GSSAPI"),
           (f"{prefix}connections.max.reauth.ms", SET, "60000"),
           ("listener.name.none.ssl.keystore.location", SET, "/none"),
           ("listener.name.none.ssl.keystore.password", SET, "secret")]  # fmt: skip
    shared = [(f"{prefix}max.connection.creation.rate", SET, "1000"), *own[:1]]
    asked = [resource(BROKER, "1", [name for name, _, _ in own + shared]), resource(BROKER, "")]
    for name, changes in (("1", own), ("", shared)):
        for one in own:
            change(s, 1, step(BROKER, name, one), validate_only=True)
        change(s, 1, step(BROKER, name, *changes))
        s.until_config(name, *changes[0][::2], BROKER)
        describe(s, 4, *asked, include_synonyms=True, include_documentation=True)
    for name, changes in (("1", own), ("", shared)):
        change(s, 1, step(BROKER, name, *((key, DELETE, None) for key, _, _ in changes)))


@same()
def test_setting_takes_effect(s: Script, version: int) -> None:
    """A changed max.message.bytes holds for the next produce."""
    topic = s.topic()
    s.produce(topic, s.batch(b"x" * 500))
    change(s, 1, step(TOPIC, topic, ("max.message.bytes", SET, "300")))
    s.until_config(topic, "max.message.bytes", "300")
    s.produce(topic, s.batch(b"x" * 500))
    s.produce(topic, s.batch(b"x" * 50))


@same(range(1, 5))
def test_describe_others(s: Script, version: int) -> None:
    """Groups and subscriptions to client metrics, with and without settings of their own."""
    everything = {"include_synonyms": True}
    if version >= 3:
        everything["include_documentation"] = True
    group, metrics = s.name("g"), s.name("m")
    describe(s, version, resource(GROUP, group), resource(CLIENT_METRICS, metrics), **everything)
    change(s, 1, step(GROUP, group, ("consumer.session.timeout.ms", SET, "46000")),
           step(CLIENT_METRICS, metrics, ("interval.ms", SET, "1000"),
                ("match", SET, "client_id=a,client_software_name=b"),
                ("metrics", SET, "org.apache.kafka.producer.")))  # fmt: skip
    s.until_config(group, "consumer.session.timeout.ms", "46000", GROUP)
    s.until_config(metrics, "interval.ms", "1000", CLIENT_METRICS)
    describe(s, version, resource(GROUP, group), resource(CLIENT_METRICS, metrics), **everything)
    describe(s, version, resource(GROUP, ""), resource(CLIENT_METRICS, ""), **everything)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (GROUP, [("consumer.session.timeout.ms", SET, "1")]),
        (GROUP, [("consumer.session.timeout.ms", SET, "99999999")]),
        (GROUP, [("consumer.session.timeout.ms", SET, "soon")]),
        (GROUP, [("consumer.heartbeat.interval.ms", SET, "15000")]),
        (GROUP, [("consumer.heartbeat.interval.ms", APPEND, "1")]),
        (GROUP, [("share.isolation.level", SET, "read_committed")]),
        (GROUP, [("share.isolation.level", SET, "no")]),
        (GROUP, [("share.auto.offset.reset", SET, "by_duration:PT1H")]),
        (GROUP, [("share.auto.offset.reset", SET, "by_duration:1H")]),
        (GROUP, [("streams.num.standby.replicas", SET, "2")]),
        (GROUP, [("streams.num.standby.replicas", SET, "9")]),
        (GROUP, [("streams.initial.rebalance.delay.ms", SET, "7")]),
        (GROUP, [("no.such", SET, "1")]),
        (CLIENT_METRICS, [("interval.ms", SET, "99")]),
        (CLIENT_METRICS, [("interval.ms", SET, "3600001")]),
        (CLIENT_METRICS, [("interval.ms", SET, "x")]),
        (CLIENT_METRICS, [("match", SET, "client_id")]),
        (CLIENT_METRICS, [("match", SET, "no_such=1")]),
        (CLIENT_METRICS, [("match", SET, "client_id=(")]),
        (CLIENT_METRICS, [("match", SET, "client_id=[a-z]+,client_source_port=9.*")]),
        (CLIENT_METRICS, [("match", SET, "")]),
        (CLIENT_METRICS, [("metrics", SET, "")]),
        (CLIENT_METRICS, [("metrics", APPEND, "a.b,c.")]),
        (CLIENT_METRICS, [("metrics", APPEND, "a"), ("interval.ms", DELETE, None)]),
        (CLIENT_METRICS, [("no.such", SET, "1")]),
    ],
    ids=str,
)
def test_change_others(
    differ: Differ, now_ms: int, kind: int, changes: list[tuple[str, int, str | None]]
) -> None:
    def run(s: Script) -> None:
        name = s.name("r")
        change(s, 1, step(kind, name, *changes), validate_only=True)
        change(s, 1, step(kind, "", *changes))

    differ.compare(run, now_ms)


@same((0, 1))
def test_change_loggers(s: Script, version: int) -> None:
    """Only what is refused: the names of loggers are each broker's own."""
    for name in ("", "7", "x"):
        change(s, version, step(BROKER_LOGGER, name, ("root", SET, "INFO")))
    for bad in (("root", DELETE, None), ("root", SET, "LOUD"), ("root", APPEND, "INFO"),
                ("root", SUBTRACT, "INFO"), ("no.such.logger", SET, "INFO"),
                ("no.such.logger", DELETE, None), ("root", SET, None)):  # fmt: skip
        change(s, version, step(BROKER_LOGGER, "1", bad), validate_only=True)
        change(s, version, step(BROKER_LOGGER, "1", bad))
    alter(s, 2, replaced(BROKER_LOGGER, "1", root="INFO"))


@pytest.mark.parametrize(
    "changes",
    [
        [("log.cleanup.policy", APPEND, "compact")],
        [("log.cleanup.policy", SUBTRACT, "delete")],
        [("log.cleanup.policy", APPEND, "burn")],
        [("log.retention.ms", SET, "-1")],
        [("log.retention.ms", SET, "-2")],
        [("log.roll.ms", SET, "0")],
        [("log.roll.jitter.ms", SET, "-1")],
        [("log.segment.bytes", SET, "13")],
        [("log.cleaner.threads", SET, "3")],
        [("log.cleaner.threads", SET, "0")],
        [("log.cleaner.dedupe.buffer.size", SET, "1000000")],
        [("log.cleaner.io.buffer.load.factor", SET, "x")],
        [("max.connections", SET, "-1")],
        [("max.connections.per.ip", SET, "0")],
        [("max.connections.per.ip.overrides", SET, "127.0.0.1:5,h:6")],
        [("max.connections.per.ip.overrides", SET, "127.0.0.1")],
        [("max.connection.creation.rate", SET, "0")],
        [("listener.name.plaintext.max.connections", SET, "100")],
        [("listener.name.plaintext.max.connections", SET, "0")],
        [("listener.name.plaintext.max.connection.creation.rate", SET, "0")],
        [("listener.name.plaintext.max.connection.creation.rate", SET, "x")],
        [("listener.name.plaintext.num.network.threads", SET, "4")],
        [("listener.name.plaintext.num.network.threads", SET, "9")],
        [("listener.name.plaintext.num.network.threads", SET, "0")],
        [("listener.name.plaintext.max.connections.per.ip", SET, "5")],
        [("listener.name.plaintext.ssl.keystore.location", SET, "/none")],
        [("listener.name.plaintext.ssl.client.auth", SET, "maybe")],
        [("listener.name.plaintext.sasl.enabled.mechanisms", SET, "NO-SUCH")],
        [("listener.name.plaintext.principal.builder.class", SET, "no.such.Class")],
        [("listener.name.plaintext.no.such", SET, "1")],
        [("listener.name.plaintext.num.io.threads", SET, "x")],
        [("listener.name.plaintext.log.retention.hours", SET, "1")],
        [("listener.name.none.max.connections", SET, "0")],
        [("listener.name.max.connections", SET, "5")],
        [("sasl.enabled.mechanisms", SET, "PLAIN")],
        [("sasl.jaas.config", SET, "x")],
        [("ssl.client.auth", SET, "required")],
        [("ssl.cipher.suites", SET, "x")],
        [("principal.builder.class", SET, "no.such.Class")],
        [("connections.max.reauth.ms", SET, "1")],
        [("listener.name.plaintext.max.connections", SET, "x")],
        [("num.io.threads", SET, "3")],
        [("num.network.threads", SET, "7")],
        [("num.replica.fetchers", SET, "3")],
        [("min.insync.replicas", SET, "0")],
        [("min.insync.replicas", SET, "1")],
        [("compression.type", SET, "best")],
        [("unclean.leader.election.enable", SET, "maybe")],
        [("follower.replication.throttled.rate", SET, "1")],
        [("leader.replication.throttled.rate", SET, "-1")],
        [("ssl.keystore.location", SET, "/x")],
        [("listeners", SET, "PLAINTEXT://127.0.0.1:1")],
        [("advertised.listeners", SET, "PLAINTEXT://127.0.0.1:1")],
        [("log.retention.hours", SET, "1")],
        [("auto.create.topics.enable", SET, "false")],
        [("group.consumer.session.timeout.ms", SET, "46000")],
        [("producer.id.expiration.ms", SET, "1000")],
        [("transaction.partition.verification.enable", SET, "false")],
        [("remote.fetch.max.wait.ms", SET, "0")],
        [("my.plugin", SET, "x")],
        [("metric.reporters", SET, "")],
        [("log.retention.ms", SET, "x"), ("log.roll.ms", SET, "5")],
    ],
    ids=str,
)
def test_change_broker_validated(
    differ: Differ, now_ms: int, changes: list[tuple[str, int, str | None]]
) -> None:
    """What either would say of a change, for one broker and for all."""

    def run(s: Script) -> None:
        for name in ("1", ""):
            change(s, 1, step(BROKER, name, *changes), validate_only=True)

    differ.compare(run, now_ms)
