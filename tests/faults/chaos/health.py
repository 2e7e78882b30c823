"""Checks that everything works: pages, topics, changes, groups, transactions, folders."""

from __future__ import annotations

import itertools
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kbroker import runfile
from kbroker.group.partition import group_partition
from kbroker.storage.folders import DELETE_SUFFIX, METADATA_FOLDER, SET_ASIDE
from tests.faults.chaos.group_commits import PROTOCOLS
from tests.faults.chaos.topic_churn import CHECK, EXISTS, UNKNOWN_TOPIC
from tests.faults.chaos.transactions import InterruptedTransactionError, PatientProducer
from tests.faults.chaos.workload import Session, UnansweredError
from tests.reference.crafted_batches import batch, values_of
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import passes
from tests.support.wire import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    ConnectionClosedError,
)

RETRY_S = 0.05
FOLDERS_S = 10.0


class FailedCheckError(Exception):
    """A check that failed; the text says which."""


class Check(NamedTuple):
    """A name, and a function that raises until its feature works; its argument is the deadline."""

    name: str
    run: Callable[[float], None]


class Health:
    """Checks of a broker. No check writes to the topics in `spared`."""

    def __init__(
        self, broker: KbrokerProcess, topic: str, groups: int, transactions: int,
        spared: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """`groups` and `transactions`: how many partitions the coordinators' topics have."""
        self.broker, self.topic, self.spared = broker, topic, frozenset(spared)
        self._number = itertools.count(1)
        self.checks = [Check("pages", self._pages), Check("topics", self._topics),
                       Check("create and delete", self._change)]  # fmt: skip
        for protocol in PROTOCOLS:
            self.checks += [
                Check(f"{protocol} group {name}", self._group_check(protocol, name))
                for name in names_of_each(f"check-{protocol}", groups)
            ]
        self.checks += [
            Check(f"transaction {name}", self._transaction_check(name))
            for name in names_of_each("check", transactions)
        ]

    def recover(self, within_s: float) -> tuple[list[str], float]:
        """Wait until every check has passed once. Return the failures, and the seconds it took."""
        begun = time.monotonic()
        left, errors = self.checks, dict[str, str]()
        while left and time.monotonic() < begun + within_s:
            left = [check for check in left if not self._passes(check, begun + within_s, errors)]
            if left:
                passes(1000 * RETRY_S)
        took_s = time.monotonic() - begun
        return [f"{check.name}: {errors.get(check.name, 'not tried')}" for check in left], took_s

    @staticmethod
    def _passes(check: Check, deadline: float, errors: dict[str, str]) -> bool:
        if time.monotonic() > deadline:
            return False
        try:
            check.run(deadline)
        except (FailedCheckError, UnansweredError, ConnectionClosedError, OSError,
                InterruptedTransactionError, AssertionError) as error:  # fmt: skip
            errors[check.name] = f"{type(error).__name__}: {error}"
            return False
        return True

    def _pages(self, deadline: float) -> None:
        info = runfile.running(self.broker.data_dir)
        if info is None:
            raise FailedCheckError("no run file")
        for page in ("livez", "readyz"):
            left_s = max(0.1, deadline - time.monotonic())
            with urllib.request.urlopen(f"{info.http[0]}/{page}", timeout=left_s) as answer:
                if answer.status != 200:
                    raise FailedCheckError(f"/{page}: {answer.status}")

    def _topics(self, deadline: float) -> None:
        """Check that each partition has a leader, and takes and returns a record."""
        session = Session(self.broker, deadline)
        try:
            partitions = led_partitions(_answer(session, METADATA, 9, {"topics": None}))
            partitions = [one for one in partitions if one[0] not in self.spared]
            value = CHECK + b" %d" % next(self._number)
            offsets = self._written(session, partitions, value)
            self._read(session, offsets, value)
        finally:
            session.close()

    def _written(
        self, session: Session, partitions: list[tuple[str, int]], value: bytes
    ) -> dict[tuple[str, int], int]:
        """Write the value to each partition; return the offsets."""
        topics = [
            {"name": name, "partition_data": [{"index": index, "records": batch(value)}]}
            for name, index in partitions
        ]
        body = {"acks": -1, "timeout": 5_000, "topic_data": topics}
        offsets = {}
        topics = _answer(session, PRODUCE, 9, body)["responses"]
        for name, part in _parts(topics, "name", "partition_responses"):
            if part["error_code"]:
                raise FailedCheckError(f"produce to {name}: {part}")
            offsets[name, part["index"]] = part["base_offset"]
        return offsets

    @staticmethod
    def _read(session: Session, offsets: dict[tuple[str, int], int], value: bytes) -> None:
        topics = [
            {"topic": name, "partitions": [{"partition": index, "fetch_offset": offset,
                                            "partition_max_bytes": 1 << 16}]}
            for (name, index), offset in offsets.items()
        ]  # fmt: skip
        body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "topics": topics}
        topics = _answer(session, FETCH, 11, body)["responses"]
        for name, part in _parts(topics, "topic", "partitions"):
            if part["error_code"]:
                raise FailedCheckError(f"fetch from {name}: {part}")
            found = dict(values_of(part["records"] or b""))
            if found.get(offsets.pop((name, part["partition_index"]))) != value:
                raise FailedCheckError(f"{value!r} is not in {name}: {found}")
        if offsets:
            raise FailedCheckError(f"{value!r} is not in {list(offsets)}")

    def _change(self, deadline: float) -> None:
        """Check that a topic can be created and deleted."""
        session = Session(self.broker, deadline)
        wanted = {"name": "check", "num_partitions": 2, "replication_factor": 1}
        body = {"topics": [wanted], "timeout": 5_000}
        try:
            code = _answer(session, CREATE_TOPICS, 7, body)["topics"][0]["error_code"]
            if code not in (0, EXISTS):
                raise FailedCheckError(f"create: error {code}")
            body = {"topic_names": ["check"], "timeout": 5_000}
            code = _answer(session, DELETE_TOPICS, 5, body)["responses"][0]["error_code"]
            if code not in (0, UNKNOWN_TOPIC):
                raise FailedCheckError(f"delete: error {code}")
        finally:
            session.close()

    def _group_check(self, protocol: str, name: str) -> Callable[[float], None]:
        """Check that a group can be joined and left, and keeps an offset."""

        def run(deadline: float) -> None:
            session = Session(self.broker, deadline)
            member = PROTOCOLS[protocol](session, name, self.topic)
            number = next(self._number)
            works: dict[str, Callable[[], int | None]] = {
                "find": member.find, "join": member.join,
                "commit": lambda: member.commit(number),
                "fetch": lambda: 0 if member.fetch() == (0, number) else -1,
                "leave": member.leave,
            }  # fmt: skip
            try:
                for what, work in works.items():
                    if code := work():
                        raise FailedCheckError(f"{what}: error {code}")
            finally:
                session.close()

        return run

    def _transaction_check(self, name: str) -> Callable[[float], None]:
        """Check that a transaction can be committed."""

        def run(deadline: float) -> None:
            session = Session(self.broker, deadline)
            producer = PatientProducer(session, name, 2, lambda: time.monotonic() > deadline)
            try:
                producer.init()
                producer.send(self.topic, 0, CHECK + b" %d" % next(self._number))
                producer.end(commit=True)
            finally:
                session.close()

        return run


def _answer(session: Session, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
    answer = session.call(api, version, body)
    if answer is None:
        raise FailedCheckError(f"API {api}: the connection is closed")
    return answer


def _parts(
    topics: list[dict[str, Any]], name: str, parts: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each partition of an answer with its topic. A topic may occur more than once."""
    return ((topic[name], part) for topic in topics for part in topic[parts])


def names_of_each(prefix: str, partitions: int) -> list[str]:
    """Return a name for each partition of a coordinator's topic."""
    found: dict[int, str] = {}
    for number in itertools.count():
        name = f"{prefix}-{number}"
        found.setdefault(group_partition(name, partitions), name)
        if len(found) == partitions:
            return [found[index] for index in range(partitions)]
    raise AssertionError


def led_partitions(answer: dict[str, Any]) -> list[tuple[str, int]]:
    """Return all partitions but those of internal topics. Raises where one has no leader."""
    found = []
    for topic in answer["topics"]:
        if topic["error_code"]:
            raise FailedCheckError(f"topic {topic['name']}: error {topic['error_code']}")
        for part in topic["partitions"]:
            if part["error_code"] or part["leader_id"] < 0:
                raise FailedCheckError(f"{topic['name']}-{part['partition_index']}: {part}")
            if not topic["is_internal"]:
                found.append((topic["name"], part["partition_index"]))
    return found


def wrong_folders(session: Session, directories: list[Path]) -> list[str]:
    """Return how the folders of the log directories differ from Metadata. Folders that wait for
    their deletion do not count."""
    answer = _answer(session, METADATA, 9, {"topics": None})
    wanted = {
        f"{topic['name']}-{part['partition_index']}"
        for topic in answer["topics"]
        for part in topic["partitions"]
    }
    found = [
        path.name
        for directory in directories
        for path in directory.iterdir()
        if path.is_dir() and path.name != METADATA_FOLDER and not path.name.endswith(DELETE_SUFFIX)
    ]
    wrong = [f"folder {name} is left" for name in found if SET_ASIDE.match(name)]
    found = [name for name in found if not SET_ASIDE.match(name)]
    wrong += [f"folder {name} is there twice" for name in set(found) if found.count(name) > 1]
    wrong += [f"folder {name} is of no topic" for name in set(found) - wanted]
    return wrong + [f"folder {name} is missing" for name in wanted - set(found)]


def settle_folders(broker: KbrokerProcess, within_s: float = FOLDERS_S) -> list[str]:
    """Wait until the folders are those of the partitions in Metadata. Return the differences."""
    deadline = time.monotonic() + within_s
    session = Session(broker, deadline)
    while True:
        try:
            wrong = wrong_folders(session, [broker.data_dir, *broker.more_dirs])
        except (UnansweredError, FailedCheckError, FileNotFoundError) as error:
            wrong = [f"folders: {error}"]
        if not wrong or time.monotonic() > deadline:
            session.close()
            return wrong
        passes(1000 * RETRY_S)
