"""Clients of a quick log directory beside a slow one."""

from __future__ import annotations

import itertools

from tests.faults.chaos.group_commits import PROTOCOLS, Protocol
from tests.faults.chaos.health import names_of_each
from tests.faults.chaos.latency import ANSWER_S, Probe, heartbeat
from tests.faults.chaos.workload import Session
from tests.faults.test_log_dirs import in_directory
from tests.reference.crafted_batches import batch
from tests.support.kbroker import KbrokerProcess
from tests.support.wire import FETCH, PRODUCE

OFFSETS_TOPIC = "__consumer_offsets"


def first_directory_probes(
    broker: KbrokerProcess, topic: str, partitions: int, offsets: int
) -> list[Probe]:
    """Return probes of records, commits and heartbeats that the first directory alone serves."""
    index = in_directory(broker.data_dir, topic)[0]
    assert index < partitions
    here = in_directory(broker.data_dir, OFFSETS_TOPIC)
    names = names_of_each("first", offsets)
    probes = [_produce(broker, topic, index), _fetch(broker, topic, index)]
    for protocol, place in zip(PROTOCOLS, itertools.cycle(here), strict=False):
        probes.append(_commit(broker, protocol, f"{names[place]}", topic))
        probes.append(heartbeat(broker, protocol, names_of_each("beat", offsets)[place], topic))
    return probes


def _produce(broker: KbrokerProcess, topic: str, index: int) -> Probe:
    session = Session(broker)
    body = {"acks": -1, "timeout": 10_000, "topic_data": [
        {"name": topic, "partition_data": [{"index": index, "records": batch(b"check probe")}]}
    ]}  # fmt: skip

    def request() -> int | None:
        answer = session.call(PRODUCE, 9, body, ANSWER_S)
        if answer is None:
            return None
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    return Probe("produce to the first directory", request)


def _fetch(broker: KbrokerProcess, topic: str, index: int) -> Probe:
    session = Session(broker)
    part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_000}
    body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0,
            "topics": [{"topic": topic, "partitions": [part]}]}  # fmt: skip

    def request() -> int | None:
        answer = session.call(FETCH, 11, body, ANSWER_S)
        if answer is None:
            return None
        return int(answer["responses"][0]["partitions"][0]["error_code"])

    return Probe("fetch from the first directory", request)


def _commit(broker: KbrokerProcess, protocol: str, group: str, topic: str) -> Probe:
    member: Protocol = PROTOCOLS[protocol](Session(broker), group, topic)
    assert member.join() == 0
    numbers = itertools.count(1)
    return Probe(f"commit of a {protocol} group", lambda: member.commit(next(numbers)))
