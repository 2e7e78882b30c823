"""Groups of both protocols whose only member joins, commits, reads its offset and leaves."""

from __future__ import annotations

import uuid
from typing import Any

from tests.faults.chaos.workload import Session, Workload
from tests.support.oracle import CommitHistory, judge_commit
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR

COMMIT, FETCH, JOIN, BEAT, LEAVE, SYNC, NEXT_BEAT = 8, 9, 11, 12, 13, 14, 68
UNKNOWN_MEMBER, MEMBER_ID_REQUIRED = 25, 79
#: Loading, not available, not the coordinator: the same request may succeed later.
AGAIN = {14, 15, 16}
#: Old generation, unknown member, rebalance, fenced or old epoch: the member joins again.
REJOIN = {22, 25, 27, 110, 113}
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
SESSION_MS = 6_000
PAUSE_S = 0.05
JUDGE_S = 10


class Protocol:
    """A member of one of the two protocols. Methods return an error code, None for no answer."""

    version = 8

    def __init__(self, session: Session, group: str, topic: str) -> None:
        self.session, self.group, self.topic = session, group, topic
        self.id, self.epoch = "", -1

    def _call(self, api: int, version: int, body: dict[str, Any]) -> dict[str, Any] | None:
        return self.session.call(api, version, {"group_id": self.group} | body)

    def find(self) -> int | None:
        body = {"key_type": 0, "coordinator_keys": [self.group]}
        answer = self.session.call(FIND_COORDINATOR, 4, body)
        return None if answer is None else int(answer["coordinators"][0]["error_code"])

    def join(self) -> int | None:
        raise NotImplementedError

    def beat(self) -> int | None:
        raise NotImplementedError

    def leave(self) -> int | None:
        raise NotImplementedError

    def commit(self, offset: int) -> int | None:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        body = {"generation_id_or_member_epoch": self.epoch, "member_id": self.id,
                "topics": [{"name": self.topic, "partitions": [part]}]}  # fmt: skip
        answer = self._call(COMMIT, self.version, body)
        return None if answer is None else int(answer["topics"][0]["partitions"][0]["error_code"])

    def fetch(self) -> tuple[int, int] | None:
        """Return (error code, committed offset)."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        body = {"groups": [{"group_id": self.group, "topics": topics}], "require_stable": True}
        answer = self.session.call(FETCH, 8, body)
        if answer is None:
            return None
        (group,) = answer["groups"]
        if group["error_code"]:
            return int(group["error_code"]), -1
        (part,) = group["topics"][0]["partitions"]
        return int(part["error_code"]), int(part["committed_offset"])


class ClassicProtocol(Protocol):
    """JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

    def join(self) -> int | None:
        code = self._join()
        if code == UNKNOWN_MEMBER:
            self.id = ""
        return code

    def _join(self) -> int | None:
        protocols = [{"name": "range", "metadata": SUBSCRIPTION}]
        body = {"session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS,
                "protocol_type": "consumer", "protocols": protocols,
                "member_id": self.id}  # fmt: skip
        answer = self._call(JOIN, 9, body)
        if answer is not None and answer["error_code"] == MEMBER_ID_REQUIRED:
            self.id = answer["member_id"]
            answer = self._call(JOIN, 9, body | {"member_id": self.id})
        if answer is None or answer["error_code"]:
            return None if answer is None else int(answer["error_code"])
        self.id, self.epoch = answer["member_id"], answer["generation_id"]
        body = {"generation_id": self.epoch, "member_id": self.id,
                "assignments": [{"member_id": self.id, "assignment": b"all"}]}  # fmt: skip
        answer = self._call(SYNC, 4, body)
        return None if answer is None else int(answer["error_code"])

    def beat(self) -> int | None:
        answer = self._call(BEAT, 4, {"generation_id": self.epoch, "member_id": self.id})
        return None if answer is None else int(answer["error_code"])

    def leave(self) -> int | None:
        answer = self._call(LEAVE, 4, {"members": [{"member_id": self.id}]})
        if answer is None:
            return None  # the member may still be in the group: it joins again by its id
        self.id = ""
        return int(answer["error_code"] or answer["members"][0]["error_code"])


class NextProtocol(Protocol):
    """ConsumerGroupHeartbeat (KIP-848)."""

    version = 9

    def join(self) -> int | None:
        self.id = self.id or str(uuid.uuid4())
        self.epoch = 0
        more = {"rebalance_timeout": 10_000, "subscribed_topic_names": [self.topic],
                "topic_partitions": []}  # fmt: skip
        return self._beat(0, more)

    def beat(self) -> int | None:
        return self._beat(self.epoch, {})

    def leave(self) -> int | None:
        return self._beat(-1, {})

    def _beat(self, epoch: int, more: dict[str, Any]) -> int | None:
        body = {"member_id": self.id, "member_epoch": epoch, "rebalance_timeout": -1,
                "subscribed_topic_names": None, "topic_partitions": None}  # fmt: skip
        answer = self._call(NEXT_BEAT, 1, body | more)
        if answer is None:
            return None
        if not answer["error_code"]:
            self.epoch = answer["member_epoch"]
        return int(answer["error_code"])


PROTOCOLS = {"classic": ClassicProtocol, "consumer": NextProtocol}


class GroupCommits(Workload):
    """One group that commits ever higher offsets of a topic's partition 0."""

    def __init__(
        self, name: str, broker: BrokerProcess, seed: str, protocol: str, topic: str
    ) -> None:
        super().__init__(name, broker, seed)
        self.member = PROTOCOLS[protocol](self.session, name, topic)
        self.history = CommitHistory(name, answered=-1)
        self._found = self._joined = False

    def step(self) -> None:
        if not self._found:
            self._found = self._settle("find", self.member.find())
        elif not self._joined:
            self._joined = self._settle("join", self.member.join())
        else:
            works = (self._commit, self._fetch, self._beat, self._leave)
            self.chance.choices(works, (8, 4, 4, 1))[0]()
        self.pause(PAUSE_S)

    def _settle(self, what: str, code: int | None) -> bool:
        """Return whether the request succeeded; note a fault for an error that is not expected."""
        self.counts[f"{what}: {code}"] += 1
        if code == 0:
            return True
        if code is None or code in AGAIN:
            self.pause(4 * PAUSE_S)
        elif code in REJOIN:
            self._joined = False
        else:
            self.fault(f"{what}: error {code}")
        return False

    def _commit(self) -> None:
        self.history.sent += 1
        offset = self.history.sent
        if self._settle("commit", self.member.commit(offset)):
            self.history.answered = offset

    def _fetch(self) -> None:
        found = self.member.fetch()
        code, offset = (None, -1) if found is None else found
        if self._settle("fetch", code):
            self.faults += judge_commit(self.history, offset)

    def _beat(self) -> None:
        self._settle("heartbeat", self.member.beat())

    def _leave(self) -> None:
        self._settle("leave", self.member.leave())
        self._joined = False

    def judge(self) -> list[str]:
        """Compare the committed offset with what was answered and seen."""
        session = Session(self.broker)
        member = PROTOCOLS["classic"](session, self.member.group, self.member.topic)
        member.find()

        def stored() -> tuple[int, ...]:
            found = member.fetch()
            return () if found is None or found[0] else (found[1],)

        try:
            (offset,) = wait_for(f"{self.name}: its committed offset", stored, JUDGE_S, PAUSE_S)
        except TimeoutError as error:
            return [str(error)]
        finally:
            session.close()
        return judge_commit(self.history, offset)
