"""Configuration of clients: names, values, combinations, and what an error tells."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.client.address import parse_address
from kbroker.client.config import (
    ConfigError,
    ProducerConfig,
    admin_config,
    consumer_config,
    producer_config,
)

AT = {"bootstrap.servers": "127.0.0.1:9092"}


def producer(**more: Any) -> ProducerConfig:
    return producer_config(AT, more)


def test_dots_and_underscores_are_the_same_in_dicts_and_in_arguments():
    made = producer_config(
        {"bootstrap_servers": "a:1, b:2", "linger.ms": "7"}, {"batch.size": 9, "acks": 1}
    )
    assert made.bootstrap_servers == ("a:1", "b:2")
    assert (made.linger_ms, made.batch_size, made.acks) == (7, 9, 1)
    assert made.given == {"bootstrap_servers", "linger_ms", "batch_size", "acks"}
    assert consumer_config(None, {"bootstrap_servers": ["a:1", "b:2"]}).bootstrap_servers == (
        "a:1",
        "b:2",
    )


def test_what_is_no_dict_of_settings_is_told():
    with pytest.raises(ConfigError, match="in a dict or by keyword, not as str"):
        producer_config("localhost:9092", {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"linger_msec": 5}, "no setting is named 'linger_msec'; did you mean linger.ms?"),
        ({"bootstrap_server": "a:1"}, "did you mean bootstrap.servers?"),
        ({"qwertz": 5}, "no setting is named 'qwertz'; see kbroker.client.config"),
        ({"group.id": "g"}, "'group.id'; only a consumer has it"),
        ({"message.timeout.ms": 5}, "'message.timeout.ms'; Kafka's name is delivery.timeout.ms"),
        ({"ssl_cafile": "a"}, "'ssl_cafile'; Kafka's name is ssl.ca.location"),
        ({"stats_cb": print}, r"'stats_cb'; metrics\(\) tells when it is asked"),
        ({"ssl_check_hostname": False}, r"ssl\.endpoint\.identification\.algorithm is https"),
        ({"rebalance_timeout_ms": 5}, r"max\.poll\.interval\.ms is also the time"),
        ({"ssl.crl.location": "a"}, "certificates that were revoked are not looked for"),
        ({"ssl_crlfile": "a"}, "certificates that were revoked are not looked for"),
        ({"topic.blacklist": "a"}, "a pattern that does not match"),
        ({"linger_ms": -1}, "linger.ms=-1: must be at least 0"),
        ({"linger_ms": "soon"}, "linger.ms='soon': must be a whole number of 64 bits"),
        ({"linger_ms": True}, "linger.ms=True: must be a whole number"),
        ({"linger_ms": 1.5}, "must be a whole number"),
        ({"batch_size": 1 << 31}, "batch.size=2147483648: must be a whole number of 32 bits"),
        ({"linger.ms": 1, "linger_ms": 1}, "linger_ms is given twice"),
        ({"compression_type": "zst"}, "did you mean zstd?"),
        ({"acks": 2}, "acks=2: must be all, 1 or 0"),
        ({"enable_idempotence": "yes"}, "must be True or False"),
        ({"client_id": b"x"}, "client.id=b'x': must be a str"),
        ({"bootstrap_servers": 5}, "must be a list"),
        ({"bootstrap_servers": "a:1,,b:2"}, "empty entries"),
        ({"acks": 1, "enable_idempotence": True}, "acks=1 and enable.idempotence=true exclude"),
        ({"retries": 0, "enable_idempotence": True}, "retries=0 and enable.idempotence=true"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5 with enable.idempotence"),
        ({"delivery_timeout_ms": 1000}, "at least linger.ms \\+ request.timeout.ms = 30005"),
        ({"transactional_id": "t", "acks": "1"}, "transactional.id needs enable.idempotence"),
        ({"transactional_id": "é" * 16384}, "transactional.id has 32768 bytes: at most 32767"),
        ({"transactional_id": "\ud800"}, "transactional.id='.ud800': cannot be written in UTF-8"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism='GSSAPI': must be one of PLAIN"),
        ({"security_protocol": "SLL"}, "did you mean SSL?"),
        ({"sasl_jaas_config": 5}, "hidden"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(settings, told):
    with pytest.raises(ConfigError, match=told):
        producer_config({**({} if "bootstrap_servers" in settings else AT), **settings}, {})


def test_bootstrap_servers_are_needed():
    for make in (producer_config, consumer_config, admin_config):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers is not given"):
            make({}, {})


def test_idempotence_by_default_gives_way_to_what_was_asked_for():
    assert producer().enable_idempotence
    assert not producer(acks=0).enable_idempotence
    assert not producer(retries=0).enable_idempotence


def test_the_delivery_timeout_by_default_grows_with_its_parts():
    assert producer(linger_ms=200_000).delivery_timeout_ms == 230_000
    assert producer(request_timeout_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1


def test_one_reconnect_backoff_alone_does_not_grow():
    assert producer(reconnect_backoff_ms=5).reconnect_backoff_max_ms == 5
    assert producer().reconnect_backoff_max_ms == 1000


def test_auto_commit_needs_a_group():
    assert not consumer_config(AT, {}).enable_auto_commit
    assert consumer_config(AT, {"group_id": "g"}).enable_auto_commit
    with pytest.raises(ConfigError, match="needs a group"):
        consumer_config(AT, {"enable_auto_commit": True})


@pytest.mark.parametrize(
    "settings",
    [
        {"group_protocol": "CONSUMER", "session_timeout_ms": 9000},
        {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
        {"group_remote_assignor": "uniform"},
        {"heartbeat_interval_ms": 45_000},
        {"auto_offset_reset": "by_duration:P"},
    ],
)
def test_settings_of_groups_that_do_not_go_together(settings):
    with pytest.raises(ConfigError):
        consumer_config(AT, {"group_id": "g", **settings})


def test_clients_get_names():
    assert producer(transactional_id="t").client_id == "producer-t"
    longest = "x" * (32767 - len("producer-"))
    assert producer(transactional_id=longest).client_id == f"producer-{longest}"
    assert len(producer(transactional_id=longest + "x").client_id) < 100
    assert producer(client_id="me").client_id == "me"
    assert consumer_config(AT, {"group_id": "g", "group_instance_id": "i"}).client_id == (
        "consumer-g-i"
    )


def test_secrets_are_not_shown():
    made = producer(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="u",
        sasl_password="hush", linger_ms=3,
    )  # fmt: skip
    assert "hush" not in repr(made)
    assert "linger_ms=3" in repr(made) and "sasl_password=[hidden]" in repr(made)


def test_credentials_in_addresses_are_not_shown():
    url = "https://ann:hush@host/token?key=hush"
    made = producer(sasl_oauthbearer_token_endpoint_url=url)
    assert made.sasl_oauthbearer_token_endpoint_url == url
    assert "url='https://host/token'" in repr(made) and "hush" not in repr(made)
    for address in ("ann:hush@host:9092", "PLAINTEXT://ann:hush@host:9092", "SSL://ann:hush@h:1"):
        with pytest.raises(ValueError, match=r"sasl\.password") as refused:
            parse_address(address)
        assert "hush" not in str(refused.value)
