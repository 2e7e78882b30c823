"""Metrics that clients push: what they are asked for, what is taken, and what becomes of it."""

from __future__ import annotations

import struct
import time
import uuid
from pathlib import Path

import pytest

from kbroker.api import publish
from kbroker.api.context import Context
from kbroker.api.k71_get_telemetry_subscriptions import attributes_of
from kbroker.config.client_metrics import validate_subscription
from kbroker.config.types import ConfigError
from kbroker.errors import ClientError, ErrorCode
from kbroker.ext.compression import compress
from kbroker.limits import TELEMETRY_PLAIN_MAX_BYTES
from kbroker.metrics.exposition import PROMETHEUS, expose
from kbroker.protocol import ApiKey
from kbroker.server.client_metrics import FAMILIES, collect, read
from kbroker.telemetry import Push, Subscription, Telemetry

WHO = {"client_id": "app-1", "client_source_address": "10.0.0.1"}


def telemetry(*subscriptions, bytes_max=1000):
    return Telemetry(bytes_max, lambda: list(subscriptions))


def code_of(call, *arguments):
    with pytest.raises(ClientError) as refused:
        call(*arguments)
    return refused.value.code


def test_who_matches_is_asked_for_all_at_the_shortest_interval():
    broker = telemetry(
        Subscription(("a.", "b."), 9000, {"client_id": "app-.*"}),
        Subscription(("b.", "c."), 5000, {}),
        Subscription(("d.",), 100, {"client_id": "other"}),
        Subscription(("e.",), 100, {"no_such_attribute": ".*"}),
    )
    found = broker.ask(None, WHO, 0)
    assert (found.metrics, found.interval_ms) == (("a.", "b.", "c."), 5000)
    assert broker.ask(None, {"client_id": "x"}, 0).metrics == ("b.", "c.")
    everything = telemetry(Subscription(("a", "*"), 5000, {})).ask(None, WHO, 0)
    assert everything.metrics == ("*",)
    assert telemetry().ask(None, WHO, 0).metrics == ()


def test_an_expression_takes_time_linear_in_a_client_s_text():
    """Python's `re` takes hours for these, and holds the interpreter."""
    hostile = "a" * 20_000 + "!"
    broker = telemetry(
        Subscription(("x.",), 5000, {"client_id": "(a+)+"}),
        Subscription(("y.",), 5000, {"client_id": "(a|aa)*!"}),
        Subscription(("z.",), 5000, {"client_id": r"(a)\1"}),  # of an earlier version
    )
    began = time.monotonic()
    assert broker.ask(None, {"client_id": hostile}, 0).metrics == ("y.",)
    assert broker.ask(None, {"client_id": "\ud800"}, 0).metrics == ()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("wrong", ["client_id=(", r"client_id=(a)\1", "client_id=(?!a)b"])
def test_an_expression_that_re2_does_not_take_is_refused(wrong):
    with pytest.raises(ConfigError, match="the syntax is RE2"):
        validate_subscription({"match": wrong})


def test_the_interval_is_kept():
    broker = telemetry(Subscription(("*",), 5000, {}))
    number = broker.ask(None, WHO, 0).id
    assert code_of(broker.ask, number, WHO, 4999) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    subscription = broker.ask(number, WHO, 5000).subscription_id
    push = (number, WHO, subscription, 0, b"x", False)
    broker.push(*push, 5001)  # the first one after asking may come early
    assert code_of(broker.push, *push, 10_000) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.push(*push, 10_001)
    last = (number, WHO, subscription, 0, b"x", True)
    broker.push(*last, 10_002)  # who ends may say so at once
    assert code_of(broker.push, *push, 99_000) == ErrorCode.INVALID_REQUEST


def test_what_is_refused_may_be_asked_for_again_at_once():
    broker = telemetry(Subscription(("*",), 5000, {}))
    found = broker.ask(None, WHO, 0)
    number, subscription = found.id, found.subscription_id
    push = (number, WHO, subscription + 1, 0, b"", False)
    assert code_of(broker.push, *push, 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert broker.ask(number, WHO, 2).id == number
    push = (number, WHO, subscription, 9, b"", False)
    assert code_of(broker.push, *push, 5001) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    broker.ask(number, WHO, 5002)
    push = (number, WHO, subscription, 0, b"x" * 1001, False)
    assert code_of(broker.push, *push, 10_001) == ErrorCode.TELEMETRY_TOO_LARGE
    for nobody in (None, uuid.UUID(int=1)):
        push = (nobody, WHO, subscription, 0, b"", False)
        assert code_of(broker.push, *push, 10_002) == ErrorCode.INVALID_REQUEST


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("kbroker.telemetry.TELEMETRY_INSTANCES_MAX_COUNT", 10)
    monkeypatch.setattr("kbroker.telemetry.TELEMETRY_KEPT_MAX_BYTES", 4500)
    broker = telemetry(Subscription(("*",), 5000, {}))
    for now_ms in range(100):
        found = broker.ask(None, WHO, now_ms)
        broker.push(found.id, WHO, found.subscription_id, 0, b"x" * 1000, False, now_ms)
    assert len(broker.pushes()) == 4
    broker.ask(None, WHO, 10**6)
    assert broker.pushes() == [], "who is quiet for long is forgotten"


def test_software_is_matched():
    broker = telemetry(
        Subscription(("a.",), 5000, {"client_software_name": "apache-kafka-java"}),
        Subscription(("b.",), 5000, {"client_software_version": "4[.]3[.].*"}),
        Subscription(("c.",), 5000, {"client_software_name": "java"}),
    )
    software = {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.0"}
    assert broker.ask(None, WHO | software, 0).metrics == ("a.", "b.")


def test_an_instance_is_matched_by_its_id_as_kafka_writes_it():
    number = uuid.UUID("12345678-9abc-4def-8123-fedcba987654")
    text = "EjRWeJq8Te-BI_7cuph2VA"
    broker = telemetry(
        Subscription(("a.",), 5000, {"client_instance_id": text}),
        Subscription(("b.",), 5000, {"client_instance_id": str(number)}),
    )
    assert broker.ask(number, WHO, 0).metrics == ("a.",)
    broker.push(number, WHO, broker.ask(number, WHO, 5000).subscription_id, 0, DATA, False, 5001)
    assert f'instance="{text}"' in page(collect(broker.pushes()))


@pytest.mark.parametrize(
    ("peer", "told"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "0:0:0:0:0:0:0:1"), ("fe80::a:b", "fe80:0:0:0:0:0:a:b")],
)
def test_an_address_is_matched_as_java_writes_it(peer, told, control):
    context = Context(control.services, 0, "PLAINTEXT", "c", (peer, 50_000), None)
    attributes = attributes_of(context)
    assert attributes["client_source_address"] == told
    assert attributes["client_source_port"] == "50000"


# ---- OpenTelemetry


def field(number, value):
    if isinstance(value, bytes):
        return bytes([number << 3 | 2, *varint(len(value))]) + value
    return bytes([number << 3, *varint(value)])


def varint(value):
    while value >= 0x80:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def point(value, **attributes):
    if isinstance(value, float):
        number = bytes([4 << 3 | 1]) + struct.pack("<d", value)
    else:
        number = bytes([6 << 3 | 1]) + struct.pack("<q", value)
    told = b"".join(
        field(7, field(1, key.encode()) + field(2, field(1, text.encode())))
        for key, text in attributes.items()
    )
    return number + told


def metrics(*named):
    inner = b"".join(
        field(2, field(1, name.encode()) + field(kind, field(1, data)))
        for name, kind, data in named
    )
    return field(1, field(1, b"") + field(2, inner))


DATA = metrics(("a.total", 7, point(5, topic="t", node="1")), ("a.rate", 5, point(1.5)))


def test_numbers_are_read():
    assert [tuple(one) for one in read(DATA)] == [
        ("a.total", "node=1,topic=t", 5), ("a.rate", "", 1.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [(3, 2**64 - 1, "-1"), (3, 2**63, str(-(2**63))), (3, 2**63 - 1, str(2**63 - 1)), (3, 0, "0"),
     (3, 2**70 - 1, "-1"), (2, 0, "0"), (2, 1, "1")],
)  # fmt: skip
def test_whole_numbers_and_booleans_as_attributes(kind, value, told):
    attribute = field(7, field(1, b"node.id") + field(2, field(kind, value)))
    (found,) = read(metrics(("a", 5, point(1) + attribute)))
    assert found.attributes == f"node.id={told}"


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd", "lz4", "snappy"])
def test_the_page(codec):
    data = DATA if codec == "none" else compress(codec, DATA)
    text = page(collect([Push(uuid.UUID(int=7), "c", codec, data)]))
    assert 'metric="a.total"' in text and text.endswith("unreadable 0\n")


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "snappy"])
def test_bombs(codec):
    """They are left out and counted; the memory that they take is bounded, and given back."""
    compressed = compress(codec, bytes(16 * TELEMETRY_PLAIN_MAX_BYTES))
    pushes = [Push(uuid.UUID(int=number), "b", codec, compressed) for number in range(20)]
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory_kib("VmRSS")
    text = page(collect([*pushes, Push(uuid.UUID(int=99), "c", "none", DATA)]))
    grown = memory_kib("VmHWM") - before
    assert 'metric="a.total"' in text and text.endswith("unreadable 20\n")
    assert grown < 4 * TELEMETRY_PLAIN_MAX_BYTES >> 10


def memory_kib(what):
    return int(Path("/proc/self/status").read_text().partition(f"{what}:")[2].split()[0])


def page(samples):
    return expose(FAMILIES, samples, PROMETHEUS).decode()


def test_garbage_is_counted_and_left_out():
    pushes = [
        Push(uuid.UUID(int=number), "c", "none", DATA[:number] + b"\xff" * number)
        for number in range(1, len(DATA))
    ]
    collect(pushes)


# ---- the handlers


def test_the_apis_are_offered_where_they_are_turned_on(control):
    publish.tell_versions(control.services)
    assert not {key for key, *_ in control.data_plane.engine.keys} & {71, 72}
    control.config.static["kbroker.client.telemetry"] = "true"
    control.config.set_dynamic({}, {})
    publish.tell_versions(control.services)
    assert {key for key, *_ in control.data_plane.engine.keys} >= {71, 72}


def test_asked_and_pushed(control):
    settings = [{"name": name, "value": value, "config_operation": 0}
                for name, value in (("metrics", "a.,b."), ("interval.ms", "100"))]  # fmt: skip
    resources = [{"resource_type": 16, "resource_name": "s", "configs": settings}]
    control.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
    asked = control.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=None)
    assert asked["error_code"] == 0 and asked["requested_metrics"] == ["a.", "b."]
    assert asked["push_interval"] == 100 and not asked["delta_temporality"]
    pushed = {
        "client_instance_id": asked["client_instance_id"],
        "subscription_id": asked["subscription_id"],
        "terminating": False,
        "compression_type": 0,
        "metrics": DATA,
    }
    assert control.call(ApiKey.PUSH_TELEMETRY, 0, **pushed)["error_code"] == 0
    assert control.call(ApiKey.PUSH_TELEMETRY, 0, **pushed)["error_code"] == 89
    assert [one.data for one in control.services.telemetry.pushes()] == [DATA]
