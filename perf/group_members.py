"""Members of consumer groups, thousands of them on one epoll: a connection each, as real ones have.

A member answers each answer with what a Java consumer would send next, and nothing else: no polls,
no records. Time is time.perf_counter, in seconds.
"""

from __future__ import annotations

import heapq
import itertools
import random
import select
import socket
import struct
import time
import uuid
from collections.abc import Callable

from perf import group_wire as wire
from perf.group_wire import Owned

RETRY_S = 0.1
SESSION_MS = 45_000
REBALANCE_MS = 300_000

Clock = time.perf_counter


class Loop:
    """Sockets and moments; one thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._epoll = select.epoll()
        self._by_fd: dict[int, Member] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.errors: dict[int, int] = {}

    def close(self) -> None:
        for member in self._by_fd.values():
            member.socket.close()
        self._epoll.close()

    def add(self, member: Member) -> None:
        self._by_fd[member.socket.fileno()] = member
        self._epoll.register(member.socket.fileno(), select.EPOLLIN)

    def at(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment, next(self._order), do))

    def error(self, code: int) -> None:
        """An error that is none of a group's ordinary life."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Until that moment, or True as soon as `stop` says so."""
        while not stop():
            now = Clock()
            if now >= until:
                return False
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()
            wait = min(until, self._due[0][0] if self._due else until) - Clock()
            for fd, _ in self._epoll.poll(max(wait, 0), 256):
                self._by_fd[fd].receive()
        return True


class Member:
    """A connection with one request in flight; `took` has the seconds of each answer of a kind."""

    def __init__(self, loop: Loop, group: str, topic: str) -> None:
        self.loop = loop
        self.group = group
        self.topic = topic
        self.socket = socket.create_connection(("127.0.0.1", loop.port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stable_at: float | None = None
        self._input = b""
        self._then: Callable[[bytes], None] | None = None
        self._waiting: list[tuple[bytes, Callable[[bytes], None]]] = []
        loop.add(self)

    def ask(self, frame: bytes, then: Callable[[bytes], None]) -> None:
        """Send, or when the one before was answered."""
        if self._then is not None:
            self._waiting.append((frame, then))
            return
        self._then = then
        self.socket.sendall(frame)

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is due: then a real client does not send the next heartbeat."""
        return self._then is not None

    def receive(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError(f"{self.group}: the broker closed the connection")
        data = self._input + data
        if len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            self._input = data
            return
        self._input = b""
        then, self._then = self._then, None
        if then is not None:
            then(data[8:])
        if self._waiting and self._then is None:
            self.ask(*self._waiting.pop(0))

    def later(self, do: Callable[[], None]) -> None:
        self.loop.at(Clock() + RETRY_S, do)


class ClassicMember(Member):
    """The classic protocol: joins, and as the leader assigns partitions in turn."""

    def __init__(
        self, loop: Loop, group: str, topic: str, partitions: int, interval_s: float
    ) -> None:
        super().__init__(loop, group, topic)
        self.partitions = partitions
        self.interval_s = interval_s
        self.member_id = ""
        self.generation = -1
        self.beats: list[float] = []
        self._beating = False

    def join(self) -> None:
        self.stable_at = None
        frame = wire.join(self.group, self.member_id, self.topic, SESSION_MS, REBALANCE_MS)
        self.ask(frame, self._joined)

    def _joined(self, answer: bytes) -> None:
        found = wire.read_join(answer)
        if found.code == wire.MEMBER_ID_REQUIRED:
            self.member_id = found.member_id
            self.join()
        elif found.code in wire.NOT_YET:
            self.later(self.join)
        elif found.code != wire.NONE:
            self.loop.error(found.code)
        else:
            self.member_id, self.generation = found.member_id, found.generation
            assigned = {}
            if found.leader == self.member_id:
                step = len(found.members)
                assigned = {
                    name: wire.assignment(self.topic, range(first, self.partitions, step))
                    for first, name in enumerate(found.members)
                }
            frame = wire.sync(self.group, self.generation, self.member_id, assigned)
            self.ask(frame, self._synced)

    def _synced(self, answer: bytes) -> None:
        code = wire.read_code(answer)
        if code == wire.REBALANCE_IN_PROGRESS:
            self.join()
        elif code != wire.NONE:
            self.loop.error(code)
        else:
            self.stable_at = Clock()
            self.beat_frame = wire.heartbeat(self.group, self.generation, self.member_id)
            if not self._beating:
                self._beating = True
                self.loop.at(Clock() + random.random() * self.interval_s, self._beat)

    def _beat(self) -> None:
        begun = Clock()
        self.loop.at(begun + self.interval_s, self._beat)
        if self.stable_at is not None and not self.is_waiting:
            self.ask(self.beat_frame, lambda answer: self._beaten(answer, begun))

    def _beaten(self, answer: bytes, begun: float) -> None:
        self.beats.append(Clock() - begun)
        code = wire.read_code(answer)
        if code == wire.REBALANCE_IN_PROGRESS:
            self.join()
        elif code != wire.NONE:
            self.loop.error(code)


class Committing(ClassicMember):
    """Commits its partitions, once every `every_s` from a moment of its own."""

    def __init__(
        self, loop: Loop, group: str, topic: str, partitions: int, interval_s: float
    ) -> None:
        super().__init__(loop, group, topic, partitions, interval_s)
        self.commits: list[float] = []
        self._offset = 0

    def commit(self, indexes: range, every_s: float) -> None:
        """From the moment when it was due, so that a stall is charged to all that it delays."""
        begun = Clock()

        def answered(answer: bytes) -> None:
            self.commits.append(Clock() - begun)
            code = wire.read_commit(answer)
            if code != wire.NONE:
                self.loop.error(code)

        self._offset += 1
        self.loop.at(begun + every_s, lambda: self.commit(indexes, every_s))
        member = (self.group, self.generation, self.member_id)
        self.ask(wire.commit(member, self.topic, indexes, self._offset), answered)


class Flooding(Member):
    """A simple consumer that commits one partition without pause: always `depth` commits under way,
    so that the broker finds the next where it answers one."""

    def __init__(self, loop: Loop, group: str, topic: str, partition: int, depth: int) -> None:
        super().__init__(loop, group, topic)
        self._frame = wire.commit((group, -1, ""), topic, (partition,), 1)
        self.socket.sendall(self._frame * depth)

    def receive(self) -> None:
        data = self._input + self.socket.recv(1 << 16)
        if len(data) == len(self._input):
            raise ConnectionError(f"{self.group}: the broker closed the connection")
        at = answered = 0
        while len(data) >= at + 4 and len(data) >= at + 4 + (size := wire.read_size(data, at)):
            code = wire.read_commit(data[at + 8 : at + 4 + size])
            if code != wire.NONE:
                self.loop.error(code)
            at += 4 + size
            answered += 1
        self._input = data[at:]
        if answered:
            self.socket.sendall(self._frame * answered)


class ConsumerMember(Member):
    """The protocol of KIP-848: what it is told to give up or to take it does at once."""

    def __init__(self, loop: Loop, group: str, topic: str) -> None:
        super().__init__(loop, group, topic)
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned = Owned(bytes(16), ())
        self.changed_at = 0.0

    def join(self) -> None:
        frame = wire.consumer_heartbeat(self.group, self.member_id, 0, self.topic, self.owned)
        self.ask(frame, self._beaten)

    def _beat(self) -> None:
        frame = wire.consumer_heartbeat(self.group, self.member_id, self.epoch, None, None)
        self.ask(frame, self._beaten)

    def _beaten(self, answer: bytes) -> None:
        found = wire.read_consumer_heartbeat(answer)
        if found.code in wire.NOT_YET:
            self.later(self.join if self.epoch == 0 else self._beat)
            return
        if found.code != wire.NONE:
            self.loop.error(found.code)
            return
        if found.epoch != self.epoch:
            self.epoch, self.changed_at = found.epoch, Clock()
        if found.assigned is not None and found.assigned.partitions != self.owned.partitions:
            self.owned, self.changed_at = found.assigned, Clock()
            frame = wire.consumer_heartbeat(
                self.group, self.member_id, self.epoch, None, self.owned
            )
            self.ask(frame, self._beaten)
            return
        self.loop.at(Clock() + found.interval_ms / 1000, self._beat)
