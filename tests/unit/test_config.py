"""Settings of the broker: values, sources, listeners, and what the log is told."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigError, load_config
from kbroker.config.definitions import BROKER, GROUP, TOPIC
from kbroker.config.properties import parse_properties
from kbroker.config.report import explain, ignored_line, show, without_effect
from kbroker.config.topic import BROKER_SYNONYM, effective, log_config, validate_topic
from kbroker.config.types import format_value, parse_value
from tests.support.tree import ROOT

LOOPBACK = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


@pytest.mark.parametrize("table", [BROKER, TOPIC, GROUP])
def test_every_default_is_a_valid_value(table):
    for key in table.values():
        value = parse_value(key, key.default)
        assert key.type.name in ("CLASS",) or format_value(value) == key.default, key.name
        assert key.doc.endswith(".") and len(key.doc) > 20


def test_every_topic_synonym_is_a_broker_key_of_the_same_type():
    for topic, broker in BROKER_SYNONYM.items():
        assert TOPIC[topic].type is BROKER[broker].type, topic


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "x", "Not a number of type INT"),
        ("num.partitions", str(2**31), "Not a number of type INT"),
        ("log.preallocate", "yes", "Expected value to be either true or false"),
        ("log.cleanup.policy", "delete,", "values must not be empty"),
        ("log.cleanup.policy", "drop", "String must be one of: compact, delete"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("listeners", "", "must not be empty"),
        ("kbroker.durability", "maybe", "String must be one of: fsync, page-cache"),
        ("group.consumer.migration.policy", "sideways", "String must be one of (case ins"),
    ],
)
def test_a_bad_value_is_told_in_one_line_with_its_key(name, text, message):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({name: text})
    assert message in str(caught.value) and name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_are_told(tmp_path: Path):
    """A line each, those of single settings first; what hangs on one of these is not asked."""
    path = tmp_path / "server.properties"
    path.write_text(
        "num.partitons=3\nlisteners=\nlog.roll.ms=0\ncompression.type=none\n"
        "log.dirs=/a,/a/b\nnode.id=x\ninter.broker.listener.name=OTHER\n"
        "group.consumer.min.session.timeout.ms=50000\ngroup.share.min.session.timeout.ms=50000\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    told = [line.removeprefix(f"{path}, ") for line in str(caught.value).splitlines()]
    assert [line.split(" ")[:2] for line in told[:4]] == [
        ["line", f"{number}:"] for number in (1, 2, 4, 6)
    ]
    assert [line.split(" ")[0].rstrip(":") for line in told[4:]] == [
        "log.dirs", "log.roll.ms", "group.consumer.session.timeout.ms",
        "group.share.session.timeout.ms",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.partition", "did you mean num.partitions?"),
        ("zookeeper.connect", "Apache Kafka 4.0 removed it, take the line out"),
        ("auto.include.jmx.reporter", "Apache Kafka 4.0 removed it"),
        ("delegation.token.master.key", "4.0 removed it, write delegation.token.secret.key"),
        ("group.coordinator.new.enable", "Apache Kafka 4.1 removed it"),
        ("host.name", "Apache Kafka 3.0 removed it"),
        ("leader.imbalance.per.broker.percentage", "Apache Kafka 4.0 removed it"),
        ("reserved.broker.max.id", "Apache Kafka 4.0 removed it"),
        ("log.cleaner.threads.count", "did you mean log.cleaner.threads?"),
        ("retention.ms", "it is a setting of topics"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(name, hint):
    with pytest.raises(ConfigError, match="unknown key") as caught:
        BrokerConfig({name: "1"})
    assert hint in str(caught.value)


def test_what_is_compacted_needs_a_thread_and_its_memory():
    none, small = {"log.cleaner.threads": "0"}, {"log.cleaner.dedupe.buffer.size": "10"}
    with pytest.raises(ConfigError, match=r"log\.cleaner\.threads: must be at least 1 while"):
        BrokerConfig(none)
    off = {"log.cleaner.enable": "false"}
    assert BrokerConfig(none | off).integer("log.cleaner.threads") == 0
    with pytest.raises(ConfigError, match="more than 1 MiB for each cleaner thread"):
        BrokerConfig(none | off | small)


def test_a_listener_prefix_makes_a_key_of_one_listener():
    config = BrokerConfig({"listener.name.external.ssl.client.auth": "none"})
    assert config.text("listener.name.external.ssl.client.auth") == "none"
    BrokerConfig({"listener.name.external.scram-sha-256.sasl.jaas.config": "x"})
    with pytest.raises(ConfigError, match="String must be one of"):
        BrokerConfig({"listener.name.external.ssl.client.auth": "perhaps"})


def test_dynamic_settings_win_over_static_ones_and_defaults():
    config = BrokerConfig({"num.io.threads": "4"})
    assert (config.integer("num.io.threads"), config.source("num.io.threads")) == (4, "static")
    config.set_dynamic({}, {"num.io.threads": "5"})
    assert config.integer("num.io.threads") == 5
    config.set_dynamic({"num.io.threads": "6"}, {"num.io.threads": "5"})
    assert config.source("num.io.threads") == "dynamic, this broker"
    config.set_dynamic({"num.io.threads": "junk"}, {})
    assert config.integer("num.io.threads") == 4


def test_limits_of_single_hosts_are_read_as_kafka_reads_them():
    name = "max.connections.per.ip.overrides"
    config = BrokerConfig({name: "10.0.0.1:5, ::1:7,build.example.com:0"})
    assert config.connection_overrides() == {"10.0.0.1": 5, "::1": 7, "build.example.com": 0}
    for text in ("10.0.0.1", "a b:5", "host:-1", "host:many"):
        with pytest.raises(ConfigError, match=f"{name}: .* is not host:count"):
            BrokerConfig({name: text})
    with pytest.raises(ConfigError, match="can be 0 only where"):
        BrokerConfig({"max.connections.per.ip": "0"})
    BrokerConfig({"max.connections.per.ip": "0", name: "10.0.0.1:5"})


def test_times_in_several_units_take_the_finest_that_is_set():
    assert BrokerConfig({}).retention_ms() == 168 * 3_600_000
    assert BrokerConfig({"log.retention.minutes": "5"}).retention_ms() == 300_000
    both = {"log.retention.minutes": "5", "log.retention.ms": "7"}
    assert BrokerConfig(both).retention_ms() == 7
    assert BrokerConfig({"log.retention.hours": "-1"}).retention_ms() == -1
    assert BrokerConfig({"log.roll.hours": "1"}).roll_ms() == 3_600_000


def test_a_topic_setting_comes_from_the_topic_then_the_broker():
    config = BrokerConfig({"log.retention.hours": "1", "log.cleanup.policy": "compact,delete"})
    values = effective(config, {"segment.ms": "11"})
    assert (values["retention.ms"], values["segment.ms"]) == (3_600_000, 11)
    log = log_config(config, {"compression.type": "zstd", "compression.zstd.level": "7"})
    assert (log["cleanup_delete"], log["cleanup_compact"]) == (1, 1)
    assert (log["compression_type"], log["compression_level"]) == (4, 7)
    assert log["timestamp_after_max_ms"] == 3_600_000
    assert all(type(number) is int for number in log.values())


MIB = 1 << 20
RETENTION = {"retention.bytes": str(100 * MIB)}


@pytest.mark.parametrize(
    ("broker", "topic", "share", "segment_bytes"),
    [
        ({}, {}, -1, 1024 * MIB),
        ({}, RETENTION, -1, 25 * MIB),
        ({"log.retention.bytes": str(100 * MIB)}, {}, -1, 25 * MIB),
        ({}, {"retention.bytes": "1000"}, -1, 1_048_588),
        ({}, {"retention.bytes": "1000", "max.message.bytes": "5000000"}, -1, 5_000_000),
        ({}, {"retention.bytes": "1000", "max.message.bytes": "1000"}, -1, MIB),
        ({}, RETENTION | {"cleanup.policy": "compact"}, -1, 1024 * MIB),
        ({}, {}, 256 * MIB, 64 * MIB),
        ({}, {"cleanup.policy": "compact"}, 256 * MIB, 64 * MIB),
        ({}, RETENTION, 256 * MIB, 25 * MIB),
        ({}, {}, 0, 1_048_588),
        ({}, RETENTION | {"segment.bytes": str(512 * MIB)}, 256 * MIB, 512 * MIB),
        ({"log.segment.bytes": str(512 * MIB)}, RETENTION, 256 * MIB, 512 * MIB),
        ({"kbroker.segment.bytes.adaptive": "false"}, RETENTION, 256 * MIB, 1024 * MIB),
    ],
)
def test_segments_adapt_to_what_is_to_be_kept_unless_a_size_was_set(
    broker, topic, share, segment_bytes
):
    config = BrokerConfig(broker)
    assert log_config(config, topic, share)["segment_bytes"] == segment_bytes
    told = int(topic.get("segment.bytes") or broker.get("log.segment.bytes") or 1024 * MIB)
    assert effective(config, topic)["segment.bytes"] == told, "Kafka's value is told"


@pytest.mark.parametrize(
    ("broker", "topic", "age_ms"),
    [
        ({}, {}, 151_200_000),
        ({}, {"retention.ms": "3000"}, 10_000),
        ({"log.retention.minutes": "10"}, {}, 150_000),
        ({}, {"retention.ms": "-1"}, -1),
        ({}, {"cleanup.policy": "compact"}, -1),
        ({}, {"cleanup.policy": "compact,delete"}, -1),
        ({}, {"cleanup.policy": ""}, -1),
        ({}, {"segment.ms": "604800000"}, -1),
        ({"log.roll.hours": "168"}, {}, -1),
        ({"log.roll.ms": "604800000"}, {}, -1),
        ({"kbroker.segment.bytes.adaptive": "false"}, {}, -1),
    ],
)
def test_segments_are_closed_in_time_for_retention_unless_a_time_was_set(broker, topic, age_ms):
    config = BrokerConfig(broker)
    assert log_config(config, topic)["segment_age_ms"] == age_ms
    assert effective(config, topic)["segment.ms"] == 604_800_000, "Kafka's value is told"
    assert log_config(config, topic)["segment_ms"] == 604_800_000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "conflict topic config"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"leader.replication.throttled.replicas": "1-2"}, "Invalid value 1-2"),
    ],
)
def test_bad_topic_settings_are_refused_in_kafkas_words(overrides, message):
    with pytest.raises(ConfigError) as caught:
        validate_topic(BrokerConfig({}), overrides)
    assert str(caught.value).startswith(message)


def test_topic_settings_that_kafka_takes_are_taken():
    validate_topic(
        BrokerConfig({}),
        {
            "cleanup.policy": "",
            "retention.ms": "-1",
            "leader.replication.throttled.replicas": "0:1,1:1",
            "follower.replication.throttled.replicas": "*",
        },
    )


def test_properties_follow_javas_syntax():
    text = (
        "# comment\n! also\n  a = 1\nb:2\r\nc   3\nd=one,\\\n   two\n"
        "key\\ with\\:signs=v\\u0041\\tx\n\nempty=\nonly\nlast=\\\\\ncut=x\\"
    )
    values = {name: found.value for name, found in parse_properties(text).items()}
    assert values == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "one,two",
        "key with:signs": "vA\tx",
        "empty": "",
        "only": "",
        "last": "\\",
        "cut": "x",
    }
    assert parse_properties(text)["d"].line == 6


def test_a_file_of_kafka_is_read_as_it_is(tmp_path: Path):
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        "controller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "num.network.threads=3\nlog.dirs=/tmp/kraft-combined-logs\n"
        "offsets.topic.replication.factor=1\nlog.segment.bytes=1073741824\n"
    )
    config = load_config(path, ["num.network.threads=5"], {"log.dir": "/data", "node.id": "9"})
    assert [(one.name, one.host, one.port) for one in config.listeners] == [("PLAINTEXT", "", 9092)]
    assert config.listeners[0].advertised_host == "localhost"
    assert config.integer("num.network.threads") == 5 and config.node_id == 1
    assert config.source("num.network.threads") == "--set"
    assert config.log_dirs == ["/tmp/kraft-combined-logs"]
    assert "controller.quorum.bootstrap.servers" in (ignored_line(config) or "")


def test_brokers_among_themselves_need_a_listener_that_is_there() -> None:
    """As Apache Kafka: one that is told must be among the listeners; by any case."""
    listeners = "listeners=PLAINTEXT://127.0.0.1:1,OWN://127.0.0.1:2"
    mapped = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,OWN:PLAINTEXT"
    load_config(None, [listeners, mapped, "inter.broker.listener.name=own"])
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name: OTHER is not a name"):
        load_config(None, [listeners, mapped, "inter.broker.listener.name=OTHER"])


def test_a_fault_in_a_file_is_told_with_its_line(tmp_path: Path):
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nnum.partitons=3\n")
    with pytest.raises(ConfigError, match=r"server\.properties, line 2: unknown key"):
        load_config(path)
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none")
    with pytest.raises(ConfigError, match="key=value"):
        load_config(None, ["num.partitions"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
        ({"listeners": "127.0.0.1:9092"}, "is not of the form NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:b:1"}, "'a:b' in 'PLAINTEXT://a:b:1' is neither a name nor"),
        (
            {**LOOPBACK, "advertised.listeners": "PLAINTEXT://[bad:port:x]:9092"},
            "'bad:port:x' in 'PLAINTEXT://[bad:port:x]:9092' is neither",
        ),
        ({"listeners": "PLAINTEXT://a:1,plaintext://b:2"}, "given twice"),
        ({"listeners": "PLAINTEXT://a:1,SSL://b:1"}, "share port 1"),
        ({"listeners": "INSIDE://a:1"}, "no security protocol for listener INSIDE"),
        ({"listeners": "CONTROLLER://a:1"}, "no listener is left"),
        ({**LOOPBACK, "advertised.listeners": "OTHER://a:1"}, "OTHER is not a name in listeners"),
        ({"log.dirs": "/a,/b,/a/"}, "named twice"),
        ({"log.dirs": "/a/c-1,/b,/a"}, "/a/c-1 is inside of /a"),
        ({"log.dirs": "/a,/b/../a/c-1"}, "/a/c-1 is inside of /a"),
        ({"log.dirs": "/a,/b", "metadata.log.dir": "/c"}, "in one of log.dirs"),
        ({"log.dirs": "/a,/b", "cordoned.log.dirs": "/c"}, "must be entries of log.dirs"),
        (
            {"group.consumer.heartbeat.interval.ms": "1000"},
            "group.consumer.heartbeat.interval.ms must be greater than or equal to "
            "group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"group.share.session.timeout.ms": "60001"},
            "group.share.max.session.timeout.ms must be greater than or equal to "
            "group.share.session.timeout.ms",
        ),
        (
            {
                "group.streams.max.heartbeat.interval.ms": "45000",
                "group.streams.heartbeat.interval.ms": "45000",
            },
            "group.streams.heartbeat.interval.ms must be less than "
            "group.streams.session.timeout.ms",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError) as caught:
        BrokerConfig(settings)
    assert message in str(caught.value)


def test_several_listeners_with_addresses_for_clients():
    config = BrokerConfig(
        {
            "listeners": "INSIDE://[::1]:0,OUTSIDE://0.0.0.0:9094",
            "advertised.listeners": "OUTSIDE://broker.example:19094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    inside, outside = config.listeners
    assert (inside.host, inside.port, inside.advertised_host, inside.advertised_port) == (
        "::1",
        0,
        "::1",
        0,
    )
    assert (outside.advertised_host, outside.advertised_port) == ("broker.example", 19094)


def test_show_hides_secrets_and_tells_sources():
    config = BrokerConfig({"ssl.key.password": "hush", "num.io.threads": " 4 "})
    assert [tuple(line) for line in show(config)] == [
        ("num.io.threads", "4", "static"),
        ("ssl.key.password", "(hidden)", "static"),
    ]
    assert len(show(config, with_defaults=True)) > 300


def test_explain_knows_broker_topic_and_near_names():
    lines = explain("log.retention.ms")
    assert lines[0] == "log.retention.ms (broker)"
    assert "  default of the topic setting retention.ms" in lines
    assert "  broker key: log.retention.ms" in explain("retention.ms")
    assert "  effect: none in kbroker" in explain("replica.lag.time.max.ms")
    assert "  update: read-only" in explain("listeners")  # not while it runs, as Kafka's
    throttle = explain("replica.alter.log.dirs.io.max.bytes.per.second")
    assert "  update: cluster-wide" in throttle and "  effect: none in kbroker" not in throttle
    assert "  effect: none in kbroker" in explain("leader.replication.throttled.rate")
    with pytest.raises(ConfigError, match=r"did you mean retention\.ms"):
        explain("retention.mss")
    for key in ("interval.ms", "metrics", "match"):
        lines = explain(key)
        assert lines[0] == f"{key} (client metrics)" and "effect" not in " ".join(lines)
    for key in ("zookeeper.connect", "delegation.token.master.key"):
        with pytest.raises(ConfigError, match=f"{key}: Apache Kafka 4.0 removed it, "):
            explain(key)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.5, "0.5"),
        (1e-5, "1.0E-5"),
        (12345678.0, "1.2345678E7"),
        (100.0, "100.0"),
        (0.0, "0.0"),
    ],
)
def test_doubles_are_shown_as_java_shows_them(value, text):
    assert format_value(value) == text


def test_a_compacted_log_rolls_in_time_for_its_longest_lag(tmp_path):
    """Apache Kafka's LogConfig.maxSegmentMs."""
    config = BrokerConfig({"log.dirs": str(tmp_path)})
    lag = {"max.compaction.lag.ms": "5000", "segment.ms": "9000"}
    assert log_config(config, lag)["segment_ms"] == 9000
    assert log_config(config, lag | {"cleanup.policy": "compact"})["segment_ms"] == 5000
    assert log_config(config, {"cleanup.policy": "compact"})["segment_ms"] == 604_800_000


#: Our own keys are made to be used.
_PASSED_OVER = "kbroker."


def test_every_key_that_is_said_to_have_an_effect_is_asked_for():
    """By its name, or as a field of settings that are told by names with underscores."""
    files = [*(ROOT / "kbroker").rglob("*.py"), *(ROOT / "ext").glob("*.pyx")]
    text = "\n".join(
        file.read_text()
        for file in files
        if not file.name.startswith("definitions_") and "client" not in file.parts
    )
    names = set(re.findall(r'"([\w.-]+)"', text))
    words = Counter(re.findall(r"\w+", text))
    for table in (BROKER, TOPIC, GROUP):
        for name, key in table.items():
            asked = name in names or words[name.replace(".", "_")] > 1
            if key.effective and not name.startswith(_PASSED_OVER):
                assert asked, f"nobody asks for {name}"


def test_what_means_nothing_here_is_listed():
    listed = {(one.of, one.name) for one in without_effect()}
    assert ("broker", "zookeeper.connect") not in listed
    assert ("broker", "remote.log.manager.copier.thread.pool.size") in listed
    assert ("topic", "remote.storage.enable") in listed
    assert ("broker", "follower.replication.throttled.rate") in listed
    assert ("group", "streams.num.standby.replicas") in listed
    assert not any(name == "log.retention.ms" for _, name in listed)


_OTHER = "org.foo.Other"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", "com.example.OtherAuthorizer"),
        ("process.roles", "controller"),
        ("alter.config.policy.class.name", _OTHER),
        ("client.quota.callback.class", _OTHER),
        ("create.topic.policy.class.name", _OTHER),
        ("principal.builder.class", _OTHER),
        ("listener.name.x.principal.builder.class", _OTHER),
        ("sasl.oauthbearer.jwt.validator.class", _OTHER),
        ("listener.name.x.oauthbearer.sasl.oauthbearer.jwt.validator.class", _OTHER),
        ("sasl.server.callback.handler.class", _OTHER),
        ("listener.name.x.plain.sasl.server.callback.handler.class", "org.foo.LdapHandler"),
        ("listener.name.x.scram-sha-256.sasl.server.callback.handler.class", _OTHER),
        ("security.providers", _OTHER),
        ("ssl.engine.factory.class", _OTHER),
        ("listener.name.x.ssl.engine.factory.class", _OTHER),
        ("remote.log.storage.system.enable", "true"),
    ],
)
def test_what_would_not_be_done_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"^{re.escape(name)}: kbroker "):
        BrokerConfig({name: value})


def test_kafkas_own_classes_are_taken():
    """A file may name the default."""
    for name, key in BROKER.items():
        if key.type.name == "CLASS" and key.default is not None:
            BrokerConfig({name: key.default})
    oauth = "org.apache.kafka.common.security.oauthbearer"
    BrokerConfig(
        {
            "listener.name.x.oauthbearer.sasl.server.callback.handler.class":
                f"{oauth}.OAuthBearerValidatorCallbackHandler",
            "remote.log.storage.system.enable": "false",
            "create.topic.policy.class.name": "",
        }
    )  # fmt: skip
