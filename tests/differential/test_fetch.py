"""Fetch: positions, limits, sessions (KIP-227), topic ids, epochs."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.harness import Script, same
from tests.support.messages import ZERO_UUID

VERSIONS = range(4, 19)
SOME = (4, 7, 11, 12, 13, 18)
SESSIONS = (7, 11, 12, 13, 18)


def filled(s: Script, batches: int = 5, size: int = 100, **configs: str) -> str:
    """A topic with so many batches of three records."""
    topic = s.topic(**configs)
    for number in range(batches):
        s.produce(topic, s.batch(*(b"%d-%d" % (number, i) + b"x" * size for i in range(3))))
    return topic


@same(VERSIONS)
def test_positions(s: Script, version: int) -> None:
    """A position within a batch brings all of it, the end nothing; beyond is an error."""
    topic = filled(s)
    for offset in (0, 1, 2, 3, 14, 15, 16, 1 << 40, -1, -(2**63)):
        s.fetch(topic, offset, version)


@same(SOME)
def test_limits_of_a_partition(s: Script, version: int) -> None:
    """The first batch comes whole whatever the limits; the next ones are cut off."""
    topic = filled(s, size=300)
    for limit in (0, 1, 61, 1000, 1100, 2100, 1 << 30):
        s.fetch(topic, 0, version, partition_max_bytes=limit)
    for limit in (0, 1, 1000, 1500, 1 << 30):
        s.fetch(topic, 0, version, max_bytes=limit)


@same(SOME)
def test_limits_of_a_request(s: Script, version: int) -> None:
    """max_bytes is shared out over partitions in the order of the request."""
    topic = s.topic(partitions=4)
    for partition in range(4):
        s.produce(topic, s.batch(b"x" * 800), partition=partition)
        s.produce(topic, s.batch(b"y" * 10), partition=partition)
    for limit in (1, 900, 1000, 2000, 10000):
        field = s.topic_field(topic, version >= 13, "topic")
        parts = [
            {"partition": p, "fetch_offset": 0, "partition_max_bytes": 5000} for p in (2, 0, 3, 1)
        ]
        body = {"max_bytes": limit, "topics": [field | {"partitions": parts}]}
        s.call(1, version, body | ({"replica_id": -1} if version < 15 else {}))


@same(SOME)
def test_named_again(s: Script, version: int) -> None:
    """A partition is answered once, at its first place, from the position that was said last."""
    topic = s.topic(partitions=12)
    for partition in range(12):
        s.produce(topic, s.batch(b"a"), partition=partition)
        s.produce(topic, s.batch(b"b"), partition=partition)
    field = s.topic_field(topic, version >= 13, "topic")
    few = [(2, 0), (0, 1), (2, 1), (2, 2), (0, 0)]
    for asked in (few, few * 2, [(number % 12, number % 3) for number in range(30)]):
        parts = [
            {"partition": p, "fetch_offset": at, "partition_max_bytes": 5000} for p, at in asked
        ]
        half = len(parts) // 2
        topics = [field | {"partitions": some} for some in (parts[:half], parts[half:])]
        body = {"max_bytes": 1 << 20, "topics": topics}
        s.call(1, version, body | ({"replica_id": -1} if version < 15 else {}))


@same(SOME)
def test_unknown(s: Script, version: int) -> None:
    topic = filled(s, 1)
    for partition in (1, -1, 5):
        s.fetch(topic, 0, version, partition=partition)
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]
    unknown: list[dict[str, Any]] = [{"topic": s.name("unknown")}, {"topic": ""}]
    if version >= 13:
        unknown = [{"topic_id": uuid.UUID(int=0x77)}, {"topic_id": ZERO_UUID}]
    for field in unknown:
        body = {"topics": [field | {"partitions": parts}]}
        s.call(1, version, body | ({"replica_id": -1} if version < 15 else {}))


@same((9, 11, 12, 13, 18))
def test_leader_epochs(s: Script, version: int) -> None:
    """An older epoch is fenced, a newer one is unknown."""
    topic = filled(s, 1)
    for epoch in (-1, 0, 1, 7, -2):
        s.fetch(topic, 0, version, epoch=epoch)


@same((12, 13, 18))
def test_last_fetched_epoch(s: Script, version: int) -> None:
    """KIP-595: an epoch that the log does not have is told as a diverging one."""
    topic = filled(s, 2)
    for epoch in (-1, 0, 1, 9):
        body = s.fetch_body(topic, 3, version)
        body["topics"][0]["partitions"][0]["last_fetched_epoch"] = epoch
        s.call(1, version, body)


@same((4, 12, 13))
def test_isolation(s: Script, version: int) -> None:
    topic = filled(s, 1)
    for level in (0, 1):
        s.fetch(topic, 0, version, isolation_level=level)


@same((4, 11, 12, 13, 18))
def test_deleted_records(s: Script, version: int) -> None:
    """Positions before the log start offset are out of range."""
    topic = filled(s)
    parts = [{"partition_index": 0, "offset": 7}]
    s.call(21, 2, {"topics": [{"name": topic, "partitions": parts}], "timeout": 5000})
    for offset in (0, 6, 7, 8, 15):
        s.fetch(topic, offset, version)


@same(SOME)
def test_nothing_asked(s: Script, version: int) -> None:
    s.call(1, version, {"max_wait": 10, "min_bytes": 1, "topics": []})


@same((4, 12, 18))
def test_min_bytes_waits(s: Script, version: int) -> None:
    """Nothing to give: an empty answer after max_wait; an error answers at once."""
    topic = filled(s, 1)
    s.fetch(topic, 3, version, max_wait=50, min_bytes=1)
    s.fetch(topic, 0, version, max_wait=50, min_bytes=1 << 20)
    s.fetch(topic, 99, version, max_wait=20_000, min_bytes=1 << 20)


class Session:
    """One incremental session of a script."""

    def __init__(self, s: Script, version: int) -> None:
        self.s, self.version, self.id, self.epoch = s, version, 0, 0

    def fetch(self, *asked: tuple[str, int, int], forget: tuple[str, ...] = ()) -> dict[str, Any]:
        """Asks (topic, partition, offset) and forgets partition 0 of topics; the epoch moves on."""
        by_id = self.version >= 13
        topics = [
            self.s.topic_field(topic, by_id, "topic")
            | {"partitions": [{"partition": partition, "fetch_offset": offset,
                               "partition_max_bytes": 10_000}]}
            for topic, partition, offset in asked
        ]  # fmt: skip
        forgotten = [self.s.topic_field(t, by_id, "topic") | {"partitions": [0]} for t in forget]
        body = {"session_id": self.id, "session_epoch": self.epoch, "topics": topics,
                "forgotten_topics_data": forgotten}  # fmt: skip
        if self.version < 15:
            body["replica_id"] = -1
        answer = self.s.call(1, self.version, body)
        if answer.get("error_code") == 0:
            self.id = answer["session_id"]
            self.epoch += 1
        return answer


@same(SESSIONS)
def test_session(s: Script, version: int) -> None:
    """A full fetch opens a session; then only what changed is told."""
    first, second = filled(s, 1), s.topic("u")
    session = Session(s, version)
    session.fetch((first, 0, 0), (second, 0, 0))
    session.fetch((first, 0, 3))
    session.fetch()
    s.produce(second, s.batch(b"new"))
    session.fetch()
    session.fetch((second, 0, 1))
    session.fetch()
    third = s.topic("v")
    s.produce(third, s.batch(b"third"))
    session.fetch((third, 0, 0))
    session.fetch((third, 0, 1), forget=(first,))
    s.produce(first, s.batch(b"forgotten"))
    session.fetch()
    session.fetch((first, 0, 3))


@same(SESSIONS)
def test_session_errors(s: Script, version: int) -> None:
    topic = filled(s, 1)
    unknown = Session(s, version)
    unknown.id, unknown.epoch = 123456789, 1
    unknown.fetch((topic, 0, 0))
    session = Session(s, version)
    session.fetch((topic, 0, 0))
    session.epoch = 7
    session.fetch()
    session.epoch = 1
    session.fetch()
    session.epoch = -1
    session.fetch((topic, 0, 0))
    session.epoch = 2
    session.fetch()


@same(SESSIONS)
def test_session_with_epoch_and_no_id(s: Script, version: int) -> None:
    topic = filled(s, 1)
    for session_id, epoch in ((0, 1), (0, 5), (0, -1), (5, -1), (5, 0), (-1, 0), (0, -2)):
        session = Session(s, version)
        session.id, session.epoch = session_id, epoch
        session.fetch((topic, 0, 0))


@same(SESSIONS)
def test_session_keeps_errors(s: Script, version: int) -> None:
    """A partition in error is told again each time."""
    topic = filled(s, 1)
    session = Session(s, version)
    session.fetch((topic, 0, 99), (topic, 5, 0))
    session.fetch()
    session.fetch((topic, 0, 0))
    session.fetch()


@same((13, 18))
def test_session_topic_id_that_appears(s: Script, version: int) -> None:
    """UNKNOWN_TOPIC_ID within a session, and a session that goes over to names."""
    topic = filled(s, 1)
    session = Session(s, version)
    session.fetch((topic, 0, 0))
    parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    unknown = {"topic_id": uuid.UUID(int=0x99), "partitions": parts}
    body = {"session_id": session.id, "session_epoch": session.epoch, "topics": [unknown]}
    s.call(1, version, body | ({"replica_id": -1} if version < 15 else {}))
    by_name = Session(s, 12)
    by_name.id, by_name.epoch = session.id, session.epoch + 1
    by_name.fetch((topic, 0, 3))


@same((7, 12, 13))
def test_session_after_topic_deleted(s: Script, version: int) -> None:
    topic, gone = filled(s, 1), s.topic("gone")
    session = Session(s, version)
    session.fetch((topic, 0, 3), (gone, 0, 0))
    s.call(20, 5, {"topic_names": [gone], "timeout": 5000})
    s.until_unknown(gone)
    session.fetch()


@same((4, 11, 12, 13, 14))
def test_as_a_follower(s: Script, version: int) -> None:
    """A replica id that is no broker of this cluster."""
    topic = filled(s, 1)
    for replica in (5, 1, -2):
        s.fetch(topic, 0, version, replica_id=replica)


@same((15, 18))
def test_as_a_follower_with_state(s: Script, version: int) -> None:
    topic = filled(s, 1)
    for replica in (5, -1):
        s.fetch(topic, 0, version, replica_state={"replica_id": replica, "replica_epoch": -1})


@same((11, 12, 18))
def test_rack_and_cluster_id(s: Script, version: int) -> None:
    topic = filled(s, 1)
    s.fetch(topic, 0, version, rack_id="somewhere")
    if version >= 12:
        s.fetch(topic, 0, version, cluster_id="not-this-cluster")
