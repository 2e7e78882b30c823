"""Latency probes: an ordinary client's requests at fixed times, and how long each answer takes.

The latency of a request counts from the time at which it was due, although it waits for the answer
to the request before. A pause of five seconds delays 100 requests, not one.
"""

from __future__ import annotations

import math
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kbroker import runfile
from tests.faults.chaos.group_commits import PROTOCOLS
from tests.faults.chaos.workload import Session, UnansweredError
from tests.support.processes import BrokerProcess
from tests.support.wire import API_VERSIONS, FIND_COORDINATOR, METADATA

INTERVAL_S = 0.05
#: A probe gives up on an answer after this time.
ANSWER_S = 10.0
P99_S = 1.0
NOT_AVAILABLE = 15


class Latency(NamedTuple):
    """Seconds from when requests were due until they were answered."""

    answers: int
    p50_s: float
    p99_s: float
    worst_s: float

    @classmethod
    def of(cls, seconds: list[float]) -> Latency:
        ordered = sorted(seconds) or [math.inf]
        places = [min(len(ordered), math.ceil(part * len(ordered))) - 1 for part in (0.5, 0.99)]
        return cls(len(seconds), ordered[places[0]], ordered[places[1]], ordered[-1])

    def __str__(self) -> str:
        milliseconds = "/".join(f"{1000 * one:.0f}" for one in self[1:])
        return f"{milliseconds} ms of {self.answers}"


class Probe(threading.Thread):
    """A thread that calls `request` at fixed times; `request` returns an error code.

    `disk_calls` is how many calls of the disk, one after the other, an answer waits for.
    """

    def __init__(
        self,
        name: str,
        request: Callable[[], int | None],
        allowed: tuple[int, ...] = (0,),
        disk_calls: int = 0,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._request, self._allowed = request, allowed
        self.disk_calls = disk_calls
        self._ends = threading.Event()
        self.seconds: list[float] = []
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        due = time.monotonic()
        while not self._ends.wait(max(0.0, due - time.monotonic())):
            try:
                code = self._request()
                if code not in self._allowed:
                    self.errors[f"error {code}"] += 1
            except UnansweredError as error:
                self.errors[str(error)] += 1
            answered = time.monotonic()
            while due <= answered:
                self.seconds.append(answered - due)
                due += INTERVAL_S

    def end(self) -> None:
        self._ends.set()

    def latency(self) -> Latency:
        """Return the latency once the last request is answered."""
        self.join(2 * ANSWER_S)
        return Latency.of(self.seconds)

    def faults(self, p99_s: float = P99_S) -> list[str]:
        """Return the errors that are not allowed, and a latency over the limit."""
        latency = self.latency()
        found = [f"probe {self.name}: {count} x {error}" for error, count in self.errors.items()]
        if self.is_alive():
            found.append(f"probe {self.name}: its last request is not answered")
        if latency.p99_s > p99_s:
            limit = f"the limit is {p99_s:.1f} s"
            found.append(f"probe {self.name}: p50/p99/worst are {latency}, {limit}")
        return found


def api_versions(broker: BrokerProcess) -> Probe:
    """Probe ApiVersions. Network threads answer it, so that it shows how busy the machine is."""
    session = Session(broker)

    def request() -> int | None:
        answer = session.call(API_VERSIONS, 0, {}, ANSWER_S)
        return None if answer is None else int(answer["error_code"])

    return Probe("ApiVersions", request)


def metadata(broker: BrokerProcess, topic: str) -> Probe:
    """Probe Metadata of a topic."""
    session = Session(broker)
    body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

    def request() -> int | None:
        answer = session.call(METADATA, 9, body, ANSWER_S)
        return None if answer is None else int(answer["topics"][0]["error_code"])

    return Probe("Metadata", request)


def find_coordinator(broker: BrokerProcess, group: str) -> Probe:
    """Probe FindCoordinator of a group. `__consumer_offsets` may not exist yet."""
    session = Session(broker)
    body = {"key_type": 0, "coordinator_keys": [group]}

    def request() -> int | None:
        answer = session.call(FIND_COORDINATOR, 4, body, ANSWER_S)
        return None if answer is None else int(answer["coordinators"][0]["error_code"])

    return Probe("FindCoordinator", request, (0, NOT_AVAILABLE))


def heartbeat(broker: BrokerProcess, protocol: str, group: str, topic: str) -> Probe:
    """Probe heartbeats of the only member of a group, which joins first.

    As in Apache Kafka, a heartbeat of a consumer group is answered when the records are durable
    that its coordinator has written before, those of other groups too: a write and a sync. Where an
    append takes longer than a second its partition refuses requests with COORDINATOR_NOT_AVAILABLE,
    which clients repeat (kbroker/group/pauses.py); the health checks find one that stays so.
    """
    member = PROTOCOLS[protocol](Session(broker), group, topic)
    assert member.join() == 0
    disk_calls = 2 if protocol == "consumer" else 0
    name = f"heartbeat of a {protocol} group"
    return Probe(name, member.beat, (0, NOT_AVAILABLE), disk_calls)


def live_page(broker: BrokerProcess) -> Probe:
    """Probe /livez of the HTTP listener."""
    info = runfile.running(broker.data_dir)
    assert info is not None
    address = info.http[0]

    def request() -> int:
        try:
            with urllib.request.urlopen(f"{address}/livez", timeout=ANSWER_S) as answer:
                return 0 if answer.status == 200 else int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            raise UnansweredError("/livez is not answered") from None

    return Probe("/livez", request)
