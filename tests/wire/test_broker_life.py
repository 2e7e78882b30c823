"""A broker in this process, over its life: started, stopped, crashed, refused, changed at work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.config import BrokerConfig
from kbroker.errors import OperatorError
from kbroker.metadata.loader import load_image
from kbroker.server import Broker
from kbroker.storage.checkpoints import CLEAN_SHUTDOWN
from tests.reference.crafted_batches import batch, values_of
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    WireConnection,
)

STOP_S = 2.0  # 0.2 s on an idle machine; answers under way are given five


def configured(directory: Path, **settings: str) -> BrokerConfig:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    return BrokerConfig(
        {"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", **texts}
    )


@contextlib.contextmanager
def running(directory: Path, **settings: str) -> Iterator[int]:
    """A broker of this process; its first listener's port."""
    broker = Broker(configured(directory, **settings))
    broker.start()
    try:
        yield next(iter(broker.endpoints.values())).port
    finally:
        assert broker.stop()


def produce(port: int, topic: str, data: bytes, partition: int = 0) -> dict[str, object]:
    body = {
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
    }
    answer = wire.call_once(port, PRODUCE, 9, body)
    (part,) = answer["responses"][0]["partition_responses"]
    return part  # type: ignore[no-any-return]


def fetch(port: int, topic: str, offset: int = 0, partition: int = 0, **fields: int) -> dict:
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    body = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }
    answer = wire.call_once(port, FETCH, 11, body | fields)
    return answer["responses"][0]["partitions"][0]


def values(port: int, topic: str) -> list[bytes | None]:
    return [value for _, value in values_of(fetch(port, topic)["records"])]


def topics_of(port: int) -> dict[str, int]:
    answer = wire.call_once(port, METADATA, 9, {"topics": None})
    return {topic["name"]: topic["error_code"] for topic in answer["topics"]}


def test_topics_and_records_outlive_a_stop(tmp_path):
    with running(tmp_path) as port:
        wire.create_topic(port, "a", 2)
        for number in range(3):
            assert produce(port, "a", batch(b"%d" % number))["base_offset"] == number
        info = runfile.running(tmp_path)
        assert info is not None and info.listeners == [f"PLAINTEXT://127.0.0.1:{port}"]
        assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert (tmp_path / CLEAN_SHUTDOWN).exists() and runfile.read(tmp_path) is None
    assert not list(tmp_path.glob(".kbroker-journal*"))
    with running(tmp_path) as port:
        assert topics_of(port) == {"a": 0}
        assert values(port, "a") == [b"0", b"1", b"2"]
        assert produce(port, "a", batch(b"3"))["base_offset"] == 3


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
def test_what_was_acknowledged_outlives_a_kill(
    start_kbroker: Callable[..., KbrokerProcess], durability: str
):
    broker = start_kbroker({"kbroker.durability": durability})
    wire.create_topic(broker.port, "a")
    before = wire.call_once(broker.port, INIT_PRODUCER_ID, 4, {"transactional_id": None})
    for number in range(20):
        assert produce(broker.port, "a", batch(b"%d" % number))["error_code"] == 0
    broker.kill()
    broker.start()
    assert values(broker.port, "a") == [b"%d" % number for number in range(20)]
    after = wire.call_once(broker.port, INIT_PRODUCER_ID, 4, {"transactional_id": None})
    assert after["producer_id"] > before["producer_id"]
    (topic,) = wire.call_once(broker.port, METADATA, 9, {"topics": [{"name": "a"}]})["topics"]
    assert topic["partitions"][0]["leader_epoch"] == 1
    assert ("page-cache" in broker.log_text()) == (durability == "page-cache")
    assert broker.stop() == 0


def test_a_second_broker_on_the_directory_is_refused(tmp_path):
    with running(tmp_path), pytest.raises(OperatorError, match="in use by process"):
        Broker(configured(tmp_path)).start()
    with running(tmp_path):
        pass


def test_a_taken_port_is_told_and_leaves_the_directory_free(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(OperatorError, match="cannot listen on 127"):
            Broker(configured(tmp_path, listeners=taken)).start()
    with running(tmp_path) as port:
        assert topics_of(port) == {}


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_that_is_not_here_leaves_the_disk_as_it_was(tmp_path, host):
    """One that nobody knows, and one that is somebody else's (RFC 5737)."""
    place = tmp_path / "new"
    with pytest.raises(OperatorError, match=f"cannot listen on {host}:9092: "):
        Broker(configured(place, listeners=f"PLAINTEXT://{host}:9092")).start()
    assert not place.exists()


def test_the_node_id_of_the_directory_counts(tmp_path):
    with running(tmp_path, node_id="7") as port:
        (broker,) = wire.call_once(port, METADATA, 9, {"topics": []})["brokers"]
        assert broker["node_id"] == 7
    with running(tmp_path) as port:
        (broker,) = wire.call_once(port, METADATA, 9, {"topics": []})["brokers"]
        assert broker["node_id"] == 7
    with pytest.raises(OperatorError, match="belongs to node 7"):
        Broker(configured(tmp_path, node_id="8")).start()


def test_each_listener_tells_its_own_address(tmp_path):
    config = configured(
        tmp_path,
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        advertised_listeners="OUTSIDE://broker.example:19092",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    broker = Broker(config)
    broker.start()
    try:
        inside, outside = (int(one.rpartition(":")[2]) for one in broker.addresses)
        for port, told in ((inside, ("127.0.0.1", inside)), (outside, ("broker.example", 19092))):
            (found,) = wire.call_once(port, METADATA, 9, {"topics": []})["brokers"]
            assert (found["host"], found["port"]) == told
    finally:
        assert broker.stop()


def test_partitions_settings_and_trimming_reach_the_data_plane(tmp_path):
    with running(tmp_path) as port:
        wire.create_topic(port, "a", 1)
        assert produce(port, "a", batch(b"x"), partition=1)["error_code"] == 3
        grown = {"topics": [{"name": "a", "count": 2, "assignments": None}], "timeout": 1000}
        wire.call_once(port, CREATE_PARTITIONS, 2, grown)
        assert produce(port, "a", batch(b"x"), partition=1)["error_code"] == 0

        change = {"name": "max.message.bytes", "config_operation": 0, "value": "100"}
        resource = {"resource_type": 2, "resource_name": "a", "configs": [change]}
        wire.call_once(port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        assert produce(port, "a", batch(b"y" * 200))["error_code"] == 10
        assert produce(port, "a", batch(b"y"))["error_code"] == 0

        trim = {"name": "a", "partitions": [{"partition_index": 1, "offset": -1}]}
        wire.call_once(port, DELETE_RECORDS, 2, {"topics": [trim], "timeout": 1000})
        assert fetch(port, "a", partition=1)["error_code"] == 1
        assert fetch(port, "a", 1, partition=1)["error_code"] == 0
    with running(tmp_path) as port:
        assert fetch(port, "a", partition=1)["error_code"] == 1
        assert produce(port, "a", batch(b"y" * 200))["error_code"] == 10


def test_a_reader_that_waits_is_told_when_its_topic_goes(tmp_path):
    with running(tmp_path) as port:
        wire.create_topic(port, "a")
        with WireConnection(port) as reader:
            asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
            waiting = reader.send(
                FETCH,
                11,
                {
                    "replica_id": -1,
                    "max_wait": 60_000,
                    "min_bytes": 1,
                    "topics": [{"topic": "a", "partitions": [asked]}],
                },
            )
            wire.call_once(port, METADATA, 9, {"topics": None})
            wire.call_once(port, DELETE_TOPICS, 4, {"topic_names": ["a"], "timeout": 1000})
            answer = reader.receive(FETCH, 11, waiting)
        assert answer["responses"][0]["partitions"][0]["error_code"] in (3, 6)
        assert topics_of(port) == {}
        wire.create_topic(port, "a")
        assert produce(port, "a", batch(b"anew"))["base_offset"] == 0
        assert values(port, "a") == [b"anew"]


def test_a_topic_made_by_a_metadata_request_can_be_written_to(tmp_path):
    with running(tmp_path, num_partitions="2") as port:
        wire.call_once(port, METADATA, 9, {"topics": [{"name": "a"}]})
        wire.wait_for_topic(port, "a", 2)
        assert produce(port, "a", batch(b"1"))["error_code"] == 0


def test_threads_have_names_for_top_and_follow_their_settings(
    start_kbroker: Callable[..., KbrokerProcess],
) -> None:
    broker = start_kbroker({"num.network.threads": "2", "num.io.threads": "1"})

    def nice() -> dict[str, int]:
        found = {}
        for task in Path(f"/proc/{broker.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name = (task / "comm").read_text().strip()
                found[name] = os.getpriority(os.PRIO_PROCESS, int(task.name))
        return found

    def names() -> set[str]:
        return set(nice())

    assert names() >= {
        "kbroker-accept", "kbroker-net-0", "kbroker-net-1", "kbroker-io-0", "kbroker-flush",
        "kbroker-chkpt", "kbroker-control", "kbroker-upkeep", "kbroker-disk",
    }  # fmt: skip
    assert not {"kbroker-net-2", "kbroker-io-1"} & names()
    values = {"num.network.threads": "3", "num.io.threads": "2"}
    configs = [{"name": name, "value": value, "config_operation": 0}
               for name, value in values.items()]  # fmt: skip
    resource = {"resource_type": 4, "resource_name": "", "configs": configs}
    wire.call_once(broker.port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    wait_for("more of them", lambda: names() >= {"kbroker-net-2", "kbroker-io-1"}, 60)
    assert len(set(nice().values())) == 1


def test_a_signal_stops_the_process_with_everything_flushed(
    start_kbroker: Callable[..., KbrokerProcess],
):
    broker = start_kbroker()
    wire.create_topic(broker.port, "a")
    assert produce(broker.port, "a", batch(b"1"))["error_code"] == 0
    assert broker.process is not None
    broker.process.send_signal(signal.SIGINT)
    process = broker.process
    wait_for("the broker ends", lambda: process.poll() is not None, 60)
    assert process.returncode == 0
    assert (broker.data_dir / CLEAN_SHUTDOWN).exists()
    assert not list(broker.data_dir.glob(".kbroker-journal*"))
    broker.process = None


def test_a_stop_answers_readers_that_wait(
    start_kbroker: Callable[..., KbrokerProcess], topic: str
) -> None:
    """They get what there is, which is nothing, and the process ends without waiting them out."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    poll = {"replica_id": -1, "max_wait": 600_000, "min_bytes": 1,
            "topics": [{"topic": topic, "partitions": [asked]}]}  # fmt: skip
    info = runfile.running(broker.data_dir)
    assert info is not None

    def polls_waiting() -> bool:
        with urllib.request.urlopen(f"{info.http[0]}/status") as page:
            return bool(json.load(page)["requests_waiting"] == 3)

    with WireConnection(broker.port) as one, WireConnection(broker.port) as other:
        waiting = [(one, one.send(FETCH, 11, poll)) for _ in range(2)]
        waiting.append((other, other.send(FETCH, 11, poll)))
        wait_for("the readers wait", polls_waiting, 10)
        began = time.monotonic()
        assert broker.stop() == 0
        took_s = time.monotonic() - began
        for connection, number in waiting:
            (answer,) = connection.receive(FETCH, 11, number)["responses"]
            (part,) = answer["partitions"]
            assert (part["error_code"], part["records"] or b"") == (0, b"")
    assert took_s < STOP_S, "the stop waited for readers"


def test_what_was_set_is_there_after_a_start(tmp_path: Path) -> None:
    """Settings of one broker, of all, of a topic, a group and a subscription, a feature's level;
    and a broker that was unregistered stops and starts as any other."""
    kinds = {"": (4, "log.retention.ms", "77"), "1": (4, "message.max.bytes", "2000"),
             "t": (2, "retention.ms", "55"), "g": (32, "consumer.session.timeout.ms", "46000"),
             "m": (16, "interval.ms", "900")}  # fmt: skip

    def told(port: int) -> dict[str, str]:
        asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
                 for name, (kind, key, _) in kinds.items()]  # fmt: skip
        answer = wire.call_once(port, wire.DESCRIBE_CONFIGS, 4, {"resources": asked})
        return {one["resource_name"]: one["configs"][0]["value"] for one in answer["results"]}

    def level(port: int) -> int:
        names = {"client_software_name": "t", "client_software_version": "1"}
        rows = wire.call_once(port, wire.API_VERSIONS, 4, names)["finalized_features"]
        return next((one["max_version_level"] for one in rows if one["name"] == "share.version"), 0)

    with running(tmp_path) as port:
        wire.create_topic(port, "t")
        for name, (kind, key, value) in kinds.items():
            row = {"name": key, "config_operation": 0, "value": value}
            resource = {"resource_type": kind, "resource_name": name, "configs": [row]}
            answer = wire.call_once(port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
            assert answer["responses"][0]["error_code"] == 0, answer
        assert level(port) == 1
        down = {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
        assert wire.call_once(port, 57, 2, {"feature_updates": [down]})["error_code"] == 0
        assert level(port) == 0
        assert wire.call_once(port, 64, 0, {"broker_id": 1})["error_code"] == 0
        (broker,) = wire.call_once(port, 60, 2, {})["brokers"]
        assert broker["broker_id"] == 1
    mark = json.loads((tmp_path / CLEAN_SHUTDOWN).read_text())
    assert mark["brokerEpoch"] == load_image(tmp_path).brokers[1].broker_epoch
    wanted = {name: value for name, (_, _, value) in kinds.items()}
    with running(tmp_path) as port:
        assert (told(port), level(port)) == (wanted, 0)
