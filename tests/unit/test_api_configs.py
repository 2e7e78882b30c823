"""Settings through the handlers: described, replaced, changed one by one."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from kbroker.metadata.builders import alter_configs
from kbroker.protocol import ApiKey
from tests.support.waits import wait_for

DESCRIBE, REPLACE, CHANGE = (
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(control, kind, name, version=4, keys=None, **fields):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    answer = control.call(DESCRIBE, version, resources=[resource], **fields)
    (result,) = answer["results"]
    assert (result["resource_type"], result["resource_name"]) == (kind, name)
    return result


def settings(control, kind, name, **fields):
    result = describe(control, kind, name, **fields)
    assert result["error_code"] == 0, result
    return {one["name"]: one for one in result["configs"]}


def change(control, kind, name, *operations, **fields):
    configs = [{"name": n, "config_operation": o, "value": v} for n, o, v in operations]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = control.call(CHANGE, 1, resources=[resource], **fields)
    return answer["responses"][0]["error_code"]


def replace(control, kind, name, configs, **fields):
    given = [{"name": n, "value": v} for n, v in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": given}
    answer = control.call(REPLACE, 2, resources=[resource], **fields)
    return answer["responses"][0]["error_code"]


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_is_described_at_every_version(control, version):
    control.create("a", retention_ms="77")
    result = describe(control, TOPIC, "a", version, include_synonyms=True)
    names = [one["name"] for one in result["configs"]]
    assert names == sorted(names) and len(names) == 33
    retention = next(one for one in result["configs"] if one["name"] == "retention.ms")
    assert retention["value"] == "77" and not retention["read_only"]
    assert retention["config_source"] == 1
    assert retention["synonyms"] == [{"name": "retention.ms", "value": "77", "source": 1}]
    if version >= 3:
        assert retention["config_type"] == 5 and retention["documentation"] is None


def test_sources_and_synonyms_of_topic_settings(control_with):
    control = control_with(log_retention_hours="1", log_roll_ms="9", compression_type="zstd")
    control.create("a", segment_ms="5")
    found = settings(control, TOPIC, "a", include_synonyms=True, include_documentation=True)
    # In another unit than the key's own: the value counts, but Kafka lists no synonyms.
    assert (found["retention.ms"]["value"], found["retention.ms"]["config_source"]) == (
        "3600000",
        5,
    )
    assert found["retention.ms"]["synonyms"] == []
    assert [tuple(one.values()) for one in found["segment.ms"]["synonyms"]] == [
        ("segment.ms", "5", 1),
        ("log.roll.ms", "9", 4),
        ("log.roll.hours", "168", 5),
    ]
    assert found["compression.type"]["config_source"] == 4
    assert found["min.insync.replicas"]["config_source"] == 3
    assert found["segment.bytes"]["synonyms"] == [
        {"name": "log.segment.bytes", "value": "1073741824", "source": 5}
    ]
    assert found["min.cleanable.dirty.ratio"]["value"] == "0.5"
    assert found["segment.ms"]["documentation"].endswith(".")


def test_only_the_keys_asked_for_are_described(control):
    control.create("a")
    assert set(settings(control, TOPIC, "a", keys=["retention.ms", "nothing"])) == {"retention.ms"}
    assert len(settings(control, TOPIC, "a", keys=[])) == 33


def test_a_resource_that_is_named_again_is_answered_once_with_all_keys(control):
    control.create("a")

    def answered(*keys):
        resources = [{"resource_type": TOPIC, "resource_name": "a", "configuration_keys": one}
                     for one in keys]  # fmt: skip
        (result,) = control.call(DESCRIBE, 4, resources=resources)["results"]
        return {one["name"] for one in result["configs"]}

    two = {"retention.ms", "segment.ms"}
    assert answered(["retention.ms"], ["segment.ms"], ["retention.ms"]) == two
    assert len(answered(["retention.ms"], None, ["segment.ms"])) == 33


def test_the_broker_is_described(control_with):
    control = control_with(
        num_io_threads="4", ssl_key_password="hush", log_initial_task_delay_ms="5"
    )
    found = settings(control, BROKER, "1", include_synonyms=True)
    assert (found["num.io.threads"]["value"], found["num.io.threads"]["config_source"]) == ("4", 4)
    assert not found["num.io.threads"]["read_only"]
    assert found["num.partitions"]["read_only"]
    assert found["ssl.key.password"]["is_sensitive"] and found["ssl.key.password"]["value"] is None
    assert found["ssl.key.password"]["synonyms"][0]["value"] is None
    assert found["log.initial.task.delay.ms"]["value"] == "5"
    assert "kbroker.durability" in found and "server.max.startup.time.ms" not in found
    assert found["log.retention.ms"]["value"] is None


def test_settings_of_all_brokers_are_those_that_were_set(control):
    assert change(control, BROKER, "", ("log.retention.ms", SET, "50")) == 0
    found = settings(control, BROKER, "", include_synonyms=True)
    assert set(found) == {"log.retention.ms", "min.insync.replicas"}
    assert found["log.retention.ms"]["synonyms"] == [
        {"name": "log.retention.ms", "value": "50", "source": 3}
    ]
    control.create("a")
    assert settings(control, TOPIC, "a")["retention.ms"]["value"] == "50"
    assert control.log("a").config["retention_ms"] == 50
    assert change(control, BROKER, "1", ("log.retention.ms", SET, "60")) == 0
    assert control.log("a").config["retention_ms"] == 60
    assert settings(control, BROKER, "1")["log.retention.ms"]["config_source"] == 2
    assert change(control, BROKER, "1", ("log.retention.ms", DELETE, None)) == 0
    assert control.log("a").config["retention_ms"] == 50


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no", 3),
        (TOPIC, "bad name", 17),
        (BROKER, "2", 42),
        (BROKER, "x", 42),
        (LOGGER, "", 42),
        (GROUP, "", 42),
        (METRICS, "", 42),
        (3, "x", 42),
    ],
)
def test_what_cannot_be_described_is_an_error_of_that_resource(control, kind, name, code):
    control.create("a")
    bad = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    good = {"resource_type": TOPIC, "resource_name": "a", "configuration_keys": None}
    answer = control.call(DESCRIBE, 4, resources=[bad, good])
    assert [one["error_code"] for one in answer["results"]] == [code, 0]
    assert answer["results"][0]["configs"] == []
    assert bool(answer["results"][0]["error_message"]) == (code != 3)


def test_groups_take_the_brokers_settings(control):
    assert change(control, GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")) == 0
    found = settings(control, GROUP, "g", include_synonyms=True)
    assert [tuple(one.values()) for one in found["consumer.session.timeout.ms"]["synonyms"]] == [
        ("consumer.session.timeout.ms", "46000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert found["share.auto.offset.reset"]["value"] == "latest"
    assert change(control, GROUP, "g", ("no.such", SET, "1")) == 40
    assert change(control, GROUP, "", ("share.isolation.level", SET, "read_committed")) == 42


@pytest.mark.parametrize("version", range(2))
def test_settings_are_changed_one_by_one(control, version):
    control.create("a", retention_ms="5", cleanup_policy="delete")
    configs = [
        {"name": "segment.ms", "config_operation": SET, "value": "9"},
        {"name": "retention.ms", "config_operation": DELETE, "value": None},
        {"name": "cleanup.policy", "config_operation": APPEND, "value": "compact"},
    ]
    resource = {"resource_type": TOPIC, "resource_name": "a", "configs": configs}
    answer = control.call(CHANGE, version, resources=[resource])
    assert answer["responses"][0]["error_code"] == 0
    configs = control.store.image.configs(("topic", "a"))
    assert configs == {"segment.ms": "9", "cleanup.policy": "delete,compact"}
    assert control.log("a").config["segment_ms"] == 9
    assert control.log("a").config["cleanup_compact"] == 1
    assert change(control, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete,none")) == 0
    assert control.store.image.configs(("topic", "a"))["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (("retention.ms", APPEND, "1"), 40),
        (("no.such", APPEND, "1"), 40),
        (("no.such", SET, "1"), 40),
        (("retention.ms", SET, "-5"), 40),
        (("retention.ms", SET, None), 42),
        (("retention.ms", 9, "1"), 42),
        (("retention.ms", SET, "9" * 30_000), 40),
        (("remote.storage.enable", SET, "true"), 40),
    ],
)
def test_one_bad_change_leaves_the_whole_topic_as_it_was(control, operation, code):
    control.create("a", retention_ms="5")
    assert change(control, TOPIC, "a", ("segment.ms", SET, "9"), operation) == code
    assert control.store.image.configs(("topic", "a")) == {"retention.ms": "5"}


def test_changes_of_what_is_not_there_or_named_twice(control):
    control.create("a")
    one = ("segment.ms", SET, "9")
    assert change(control, TOPIC, "no", one) == 3
    assert change(control, TOPIC, "", one) == 42
    assert change(control, TOPIC, "bad name", one) == 17
    assert change(control, 3, "x", one) == 42
    assert change(control, TOPIC, "a", one, one) == 42
    resource = {"resource_type": TOPIC, "resource_name": "a", "configs": []}
    answer = control.call(CHANGE, 1, resources=[resource, resource])
    assert [one["error_code"] for one in answer["responses"]] == [42, 42]


def test_a_message_that_quotes_the_request_fits_a_string(control):
    control.create("a")
    configs = [{"name": f"name-{n}" * 20, "value": None} for n in range(1000)]
    resource = {"resource_type": TOPIC, "resource_name": "a", "configs": configs}
    (answer,) = control.call(CHANGE, 0, resources=[resource])["responses"]
    assert answer["error_code"] == 42 and 1000 < len(answer["error_message"]) <= 4000


def test_validate_only_changes_nothing(control):
    control.create("a")
    operation = ("segment.ms", SET, "9")
    assert change(control, TOPIC, "a", operation, validate_only=True) == 0
    assert replace(control, TOPIC, "a", {"segment.ms": "9"}, validate_only=True) == 0
    assert control.store.image.configs(("topic", "a")) == {}


@pytest.mark.parametrize("version", range(3))
def test_all_settings_are_replaced_at_every_version(control, version):
    control.create("a", retention_ms="5", segment_ms="6")
    given = [{"name": "segment.ms", "value": "7"}]
    resource = {"resource_type": TOPIC, "resource_name": "a", "configs": given}
    answer = control.call(REPLACE, version, resources=[resource])
    assert answer["responses"][0]["error_code"] == 0
    assert control.store.image.configs(("topic", "a")) == {"segment.ms": "7"}
    assert replace(control, TOPIC, "a", {"segment.ms": "x"}) == 40
    assert replace(control, TOPIC, "no", {}) == 3
    assert replace(control, LOGGER, "1", {}) == 42


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("", "num.partitions", "3", 42),
        ("", "log.retention.ms", "x", 42),
        ("", "log.retention.ms", "0", 42),
        ("", "num.io.threads", "17", 42),
        ("", "num.io.threads", "16", 0),
        ("", "listeners", "PLAINTEXT://:1", 42),
        ("2", "log.retention.ms", "1", 42),
        ("1", "ssl.keystore.location", "x", 42),
        ("1", "min.insync.replicas", "1", 40),
        ("1", "follower.replication.throttled.rate", "100", 0),
        ("1", "my.plugin.key", "x", 0),
    ],
)
def test_broker_settings_that_cannot_change_at_run_time_are_refused(
    control, name, key, value, code
):
    assert change(control, BROKER, name, (key, SET, value)) == code


def test_names_that_nobody_answers_for_hold_up_nothing(control, monkeypatch):
    """Addresses count at once, and so do names that are soon found; others when they are found."""
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def slow(host, *arguments, flags=0):
        numeric = bool(flags & socket.AI_NUMERICHOST)
        if host == "slow" and not numeric:
            answered.wait(30)
        elif host == "none" and not numeric:
            raise socket.gaierror("nobody knows")
        return look_up(host if numeric else "10.0.0.2", *arguments, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    one, two = (bytes(10) + b"\xff\xff\x0a\0\0" + bytes([last]) for last in (1, 2))

    def limits(hosts):
        value = ",".join(f"{host}:7" for host in hosts)
        set_to = ("max.connections.per.ip.overrides", SET, value)
        assert change(control, BROKER, "1", set_to) == 0
        return control.data_plane.limits[2]

    assert limits(["10.0.0.1"]) == [(one, 7)]
    assert limits(["10.0.0.1", "quick", "none"]) == [(one, 7), (two, 7)]
    control.run_posted()
    assert control.data_plane.limits[2] == [(one, 7), (two, 7)]
    assert limits(["10.0.0.1", "slow"]) == [(one, 7)]
    assert limits(["slow", "10.0.0.1"]) == [(one, 7)]  # while that is still looked up
    answered.set()
    wait_for("an answer", lambda: control.posted, 10)
    control.run_posted()
    assert control.data_plane.limits[2] == [(two, 7), (one, 7)]


def test_a_host_without_an_address_is_told_of_once(control, monkeypatch, caplog):
    """As a warning, though all are looked up with every change, of a quota too."""
    look_up, unknown = socket.getaddrinfo, {"none"}

    def answer(host, *arguments, flags=0):
        numeric = bool(flags & socket.AI_NUMERICHOST)
        if host in unknown and not numeric:
            raise socket.gaierror("nobody knows")
        return look_up(host if numeric else "10.0.0.2", *arguments, flags=flags)

    monkeypatch.setattr(socket, "getaddrinfo", answer)

    def alter(name, value):
        assert change(control, BROKER, "1", (name, SET, value)) == 0
        wait_for("the look-up", lambda: control.posted, 10)
        control.run_posted()

    def told():
        return [one.levelname for one in caplog.records if "no address of none" in one.getMessage()]

    alter("max.connections.per.ip.overrides", "none:7")
    alter("log.retention.ms", "7")
    assert told() == ["WARNING"]
    unknown.clear()
    alter("log.retention.ms", "8")
    unknown.add("none")
    alter("log.retention.ms", "9")
    assert told() == ["WARNING"] * 2


@pytest.mark.parametrize("api", [CHANGE, ApiKey.ALTER_CONFIGS])
def test_more_changes_than_one_request_may_make_are_refused(control, api):
    """As by Apache Kafka's controller. Brokers may have settings of names that nobody knows."""
    kinds = {"config_operation": SET} if api == CHANGE else {}
    for count, code in ((10_000, 0), (10_001, 44)):
        configs = [{"name": f"plugin.{n}", "value": "1", **kinds} for n in range(count)]
        resource = {"resource_type": BROKER, "resource_name": "1", "configs": configs}
        (answer,) = control.call(api, 1, resources=[resource])["responses"]
        assert answer["error_code"] == code


def test_the_last_cleaner_thread_stays(control):
    threads = "log.cleaner.threads"
    configs = [{"name": threads, "config_operation": SET, "value": "0"}]
    for name in ("1", ""):
        resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        (refused,) = control.call(CHANGE, 1, resources=[resource])["responses"]
        assert refused["error_code"] == 42
        assert refused["error_message"] == "Log cleaner threads should be at least 1"
    assert settings(control, BROKER, "1")[threads]["value"] == "1"


def test_a_directory_without_cleaner_threads_finds_its_way_back(control):
    """Stored by an earlier version, which took a 0 and then nothing else."""
    threads = "log.cleaner.threads"
    control.store.append(alter_configs(("broker", "1"), {threads: "0"}))
    control.services.config.set_dynamic({threads: "0"}, {})
    assert change(control, BROKER, "1", ("log.retention.ms", SET, "50")) == 0
    assert change(control, BROKER, "1", ("log.cleaner.dedupe.buffer.size", SET, "10")) == 42
    assert change(control, BROKER, "1", (threads, SET, "2")) == 0
    assert settings(control, BROKER, "1")[threads]["value"] == "2"


def test_no_threads_are_taken_where_nothing_is_cleaned(control_with):
    control = control_with(log_cleaner_enable="false")
    assert change(control, BROKER, "1", ("log.cleaner.threads", SET, "0")) == 0


def test_min_insync_replicas_of_the_cluster_cannot_be_removed(control):
    assert change(control, BROKER, "", ("min.insync.replicas", DELETE, None)) == 40
    assert change(control, BROKER, "", ("min.insync.replicas", SET, "2")) == 0


def test_the_audit_names_the_settings_that_got_another_value(control, caplog):
    """Of brokers all are written anew."""
    password = "listener.name.x.ssl.keystore.password"
    change(control, BROKER, "1", (password, SET, "secret"), ("log.retention.ms", SET, "5"))
    control.create("t")
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        change(control, BROKER, "1", ("log.retention.ms", SET, "7"))
        change(control, BROKER, "1", (password, SET, "another"), ("log.retention.ms", SET, "7"))
        change(control, BROKER, "1", (password, SET, "another"))
        change(control, BROKER, "1", (password, DELETE, None))
        change(control, BROKER, "", ("log.retention.ms", SET, "8"))
        replace(control, TOPIC, "t", {"retention.ms": "9"})
    told = [
        tuple(record.fields[key] for key in ("kind", "name", "settings"))
        for record in caplog.records if record.getMessage() == "settings changed"
    ]  # fmt: skip
    assert told == [
        ("broker", "1", "log.retention.ms"), ("broker", "1", password),
        ("broker", "1", password), ("broker", "", "log.retention.ms"),
        ("topic", "t", "retention.ms"),
    ]  # fmt: skip


def test_loggers_are_changed_at_run_time(control):
    logger = logging.getLogger("kbroker.test.config")
    name = logger.name
    try:
        assert change(control, LOGGER, "1", (name, SET, "DEBUG")) == 0
        assert logger.level == logging.DEBUG
        assert settings(control, LOGGER, "1")[name]["value"] == "DEBUG"
        assert change(control, LOGGER, "1", (name, DELETE, None)) == 0
        assert logger.level == logging.NOTSET
        assert change(control, LOGGER, "1", (name, SET, "LOUD")) == 40
        assert change(control, LOGGER, "1", ("no.such", SET, "INFO")) == 40
        assert change(control, LOGGER, "1", ("root", DELETE, None)) == 42
        assert change(control, LOGGER, "2", (name, SET, "DEBUG")) == 42
    finally:
        logger.setLevel(logging.NOTSET)


def test_client_metrics_subscriptions_are_kept(control):
    assert change(control, METRICS, "s", ("interval.ms", SET, "1000")) == 0
    found = settings(control, METRICS, "s")
    assert (found["interval.ms"]["value"], found["interval.ms"]["config_source"]) == ("1000", 7)
    assert found["match"]["config_source"] == 5
    assert change(control, METRICS, "s", ("no.such", SET, "1")) == 42


def test_variables_of_providers_are_not_looked_up_for_who_alters_settings(control_with):
    control = control_with(
        config_providers="env",
        config_providers_env_class="org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )
    name = "listener.name.plaintext.ssl.cipher.suites"
    assert change(control, BROKER, "1", (name, SET, "${env:PATH}")) == 42
    assert change(control, BROKER, "1", (name, SET, "${env:PATH")) == 0
