"""The consumer's control thread: where each partition is read from, and from which offset on.

The loop asks brokers and takes their answers (kbroker.ext.client_fetch_drive); whatever it cannot
settle by itself waits as `Fetcher.attention`: no leader, no position, an error code. This thread
has the cluster asked and the fetcher told, for each broker on a thread of its own (`Errands`), so
that one that does not answer holds up its own partitions only. What the user has to know is kept as
an error that the next poll raises; the partition is tried again meanwhile, so that it heals without
another consumer.
"""

from __future__ import annotations

import functools
import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.config_consumer import ConsumerConfig
from kbroker.client.consumer_failures import Failures
from kbroker.client.consumer_leaders import partition_of
from kbroker.client.consumer_links import Links
from kbroker.client.consumer_told import MOVED, Told
from kbroker.client.errands import Errands
from kbroker.client.errors import (
    BrokerError,
    ClosedError,
    ConnectError,
    CorruptDataError,
    KafkaError,
    LogTruncationError,
    NoOffsetError,
    RequestTimeoutError,
)
from kbroker.client.metadata import NO_ID, Leader, PartitionInfo
from kbroker.client.native_threads import is_current, thread
from kbroker.client.offsets import EARLIEST, LATEST, duration_ms, list_offsets
from kbroker.client.offsets_for_epoch import EpochEnd, end_of_epoch
from kbroker.client.partitions import TopicPartition
from kbroker.client.reach import IdleLinks
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_fetch_parts import CORRUPT, LEADER, POSITION, REPLICA
from kbroker.ext.client_flag import Flag
from kbroker.ext.client_heartbeat import EVENT_HEARTBEAT
from kbroker.ext.client_loop import ClientLoop

if TYPE_CHECKING:
    from kbroker.client.group import Group

__all__ = ["Control"]

_CLOSED, _LINK_DOWN = 0, 1  # kinds of events
_TIMEOUT = -2  # a LinkCode
_ANY = -1  # a node: whoever tells metadata
_TURN_S = 1.0  # at least so often metadata and links are looked at
_ONCE_S = 0.0  # what fails is tried again later: meanwhile others have their turn
_UNKNOWN_S = 3.0  # a topic that brokers do not know for so long is not there
_log = logging.getLogger("kbroker.client.consumer")


class Control:
    """See above. strategies: where a partition begins, a time in ms or EARLIEST, LATEST; the
    user's thread alone sets and drops them, with its seeks. held: partitions whose committed
    offset is being asked for. errors: what the next poll raises."""

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, fetcher: Fetcher, loop: ClientLoop
    ) -> None:
        self.strategies: dict[TopicPartition, int] = {}
        self.held: set[TopicPartition] = set()
        self.quiet = False  # a group assigns: topics may come and go
        self.moved = Flag()
        self.group: Group | None = None
        self.errors: dict[TopicPartition, KafkaError] = {}
        self._config = config
        self._cluster = cluster
        self._fetcher = fetcher
        self._loop = loop
        self._links = Links(cluster, loop)
        self._errands = Errands(loop.name, loop.tell)  # by node, or _ANY
        self._failures = Failures(cluster.pause_s)
        self._ids: dict[TopicPartition, uuid.UUID] = {}  # of the topics that are read
        self._due: dict[TopicPartition, tuple[float, Told]] = {}
        self._refreshed_s = monotonic()
        self._idle = IdleLinks(loop, cluster.settings.idle_max_s)
        self._idle_at_s = monotonic() + self._idle.look_s
        self._thread = thread(self._run, loop.name)

    def start(self) -> None:
        """Starts the thread; it ends with the loop."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """After the loop was closed."""
        if self._thread.is_alive() and not is_current(self._thread):
            self._thread.join(timeout_s)

    def pardon(self, where: TopicPartition) -> None:
        """What was wrong with it does not count any more."""
        self.errors.pop(where, None)

    def forget(self, where: TopicPartition) -> None:
        """It is read from elsewhere."""
        self.pardon(where)
        self._due.pop(where, None)
        self._failures.forget(where)
        self.held.discard(where)

    def leave(self, where: TopicPartition) -> None:
        """It is not assigned any more."""
        self.forget(where)
        self.strategies.pop(where, None)
        self._ids.pop(where, None)

    # the thread

    def _run(self) -> None:
        while True:
            try:
                if not self._take_events():
                    break
                self._turn()
            except Exception as error:
                self._settled(error)
        self._errands.close()

    def _settled(self, result: Any) -> None:
        """A fault of ours must not end the thread: partitions would hang."""
        closing = isinstance(result, ClosedError) or self._loop.closed
        if not isinstance(result, Exception) or closing:
            return
        if isinstance(result, KafkaError):  # a broker that is away, for one
            _log.info("%s; trying again", result)
        else:
            _log.error("the consumer's control thread met an error", exc_info=result)
        self._fetcher.tell_again()

    def _take_events(self) -> bool:
        """Waits for some, as long as nothing else is due; False: there will be none any more."""
        due = min((at for at, _ in list(self._due.values())), default=float("inf"))
        wait_s = min(max(due - monotonic(), 0.0), _TURN_S)
        for kind, link, _, code, _ in self._loop.events(wait_s):
            if kind == _CLOSED:
                return False
            if kind == _LINK_DOWN:
                self._lost(link, code)
            if kind == EVENT_HEARTBEAT and self.group is not None:
                self.group.on_event()
        return True

    def _turn(self) -> None:
        self._errands.collect()
        while found := [Told(*told) for told in self._fetcher.attention()]:
            self._dispatch(found)
        now = monotonic()
        due = [where for where, (at, _) in list(self._due.items()) if at <= now]
        again = [self._due.pop(where, None) for where in due]
        self._dispatch([one[1] for one in again if one is not None])
        self._links.renew(now)
        if now >= self._idle_at_s:
            self._idle_at_s = now + self._idle.look_s
            self._idle.drop(self._links.all())
            self._cluster.drop_idle()
        if now - self._refreshed_s > self._cluster.settings.metadata_max_age_s:
            self._refreshed_s = now
            self._errands.start(_ANY, self._look_for_leaders, self._settled)

    def _lost(self, link: int, code: int) -> None:
        """Where a node stands still, others may lead by now."""
        node = self._links.lost(link)
        if code == _TIMEOUT and node >= 0:
            self._cluster.doubt(node)
            for topic, partition in self._fetcher.assigned():
                known = self._cluster.metadata.partition(topic, partition)
                if known is not None and known.leader == node:
                    self._cluster.forget(topic)

    def _dispatch(self, found: Iterable[Told], *, learnt: bool = False) -> None:
        """To the threads that ask; where a leader is not known, somebody is asked for it first."""
        by_node: defaultdict[int, list[Told]] = defaultdict(list)
        alone = len(self._cluster.nodes) < 2
        for told in found:
            if told.why == CORRUPT:
                self._attempt(told)
            else:
                first = not learnt and (alone or self._cluster.is_old(told.topic))
                by_node[_ANY if first else self._node(told)].append(told)
        for node, some in by_node.items():
            if node == _ANY:
                self._errands.start(node, functools.partial(self._learn, some), self._learnt)
            else:
                work = functools.partial(self._settle_all, some)
                self._errands.start(node, work, self._settled)

    def _node(self, told: Told) -> int:
        """Who is asked about it; _ANY: that is not known."""
        if told.why == REPLICA:
            return told.node
        known = self._cluster.metadata.partition(told.topic, told.partition)
        return _ANY if known is None else known.leader

    def _learn(self, found: list[Told]) -> list[Told]:
        """Asks for leaders, of all topics at once; those that have one. Where there is one broker
        alone, it holds nobody up, and all is settled at once."""
        infos = self._cluster.retry(
            lambda: self._cluster.topics_of({told.topic for told in found}, create=self._creates),
            _ONCE_S,
        )

        def partition(told: Told) -> PartitionInfo:
            return partition_of(self._cluster, infos[told.topic], told.where)

        known = [told for told in found if self._tried(told, partition)]
        if len(self._cluster.nodes) > 1:
            return known
        self._settle_all(known)
        return []

    def _learnt(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._settled(result)
        else:
            self._dispatch(result, learnt=True)

    def _settle_all(self, found: list[Told]) -> None:
        """The thread that asks a broker."""
        self._begin([told for told in found if told.why == POSITION])
        for told in found:
            if told.why != POSITION:
                self._attempt(told)

    def _begin(self, found: list[Told]) -> None:
        """Positions of many: one question a broker, and one request that goes on from there."""
        wanted = {}
        for told in found:
            if told.where not in self.held:
                timestamp = self._beginning(told.where)
                if timestamp is not None:
                    wanted[told.where] = timestamp
        try:
            known = {}
            if len(wanted) > 1:
                known = self._cluster.retry(lambda: self._offsets(wanted), _ONCE_S)
        except KafkaError as error:
            _log.debug("positions, asked for together: %s", error)
            known = {}  # one at a time tells which it is
        self._fetcher.cork(True)
        try:
            for told in found:
                if told.where in known:
                    self._move(told, known[told.where])
        finally:
            self._fetcher.cork(False)
        for told in found:
            if told.where in wanted and told.where not in known:
                self._attempt(told)
        self.moved.set()

    def _attempt(self, told: Told) -> None:
        """Settles it, or has it tried again."""
        if self._tried(told, self._settle):
            self.moved.set()

    def _tried(self, told: Told, what: Callable[[Told], object]) -> bool:
        """False where it failed: it is tried again later, or the user told."""
        try:
            self._cluster.retry(lambda: what(told), _ONCE_S)
        except ClosedError:
            raise
        except KafkaError as error:
            if error.stale_metadata:
                self._cluster.forget(told.topic)
            since_s = self._again(told)
            unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self.quiet
            if not error.retriable or (unknown and monotonic() - since_s > _UNKNOWN_S):
                self.fail(told.where, error)
            else:
                _log.info("%s: %s", told.where, error)
            return False
        return True

    def _again(self, told: Told) -> float:
        """Later; since when it fails (monotonic)."""
        since_s, due_s = self._failures.note(told.where)
        self._due[told.where] = due_s, told
        return since_s

    def fail(self, where: TopicPartition, error: KafkaError) -> None:
        """The next poll raises it."""
        self.errors[where] = error
        self._fetcher.wake()

    def _settle(self, told: Told) -> None:
        if told.why == POSITION:
            self._position(told)
        elif told.why == LEADER:
            self._lead(told)
        elif told.why == REPLICA:
            self._follow(told)
        elif told.why == CORRUPT:
            self.fail(told.where, self._corrupt(told))
            self._loop.drop_link(told.link)
            self._links.lost(told.link)
            self._again(told._replace(why=LEADER))
        elif told.why == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(told)
        elif told.why in MOVED:
            self._has_moved(told)
        else:
            error = BrokerError(told.why, f"{told.topic}-{told.partition}")
            if error.retriable or told.why == ErrorCode.UNKNOWN_SERVER_ERROR:
                _log.warning("%s", error)
            else:
                self.fail(told.where, error)
            self._again(told._replace(why=LEADER))

    def _corrupt(self, told: Told) -> KafkaError:
        node = self._links.node_of(told.link)
        return CorruptDataError(
            f"broker {node} answered a fetch of {told.topic} with what is no Fetch answer"
        )

    # leaders and links

    def _partition(self, told: Told) -> PartitionInfo:
        info = self._cluster.topic(told.topic, create=self._creates)
        return partition_of(self._cluster, info, told.where)

    @property
    def _creates(self) -> bool:
        """Topics of a group are created, if at all, as it subscribes; what was deleted stays so."""
        return self._config.allow_auto_create_topics and not self.quiet

    def _lead(self, told: Told) -> None:
        part = self._partition(told)
        self._give(told, part, part.leader)

    def _give(self, told: Told, part: PartitionInfo, node: int) -> None:
        """Reads it from a node, once its epoch is known to end behind the position."""
        link = self._links.to(node)
        state = self._state(told.where)
        if state is None:
            return
        topic_id = self._cluster.topic(told.topic).topic_id
        if self._ids.get(told.where, topic_id) != topic_id:
            self._begin_anew(told)
        elif (
            0 <= state["offset_epoch"] < part.leader_epoch > state["leader_epoch"]
            and state["offset"] >= 0
        ):
            self._validate(told, part, state["offset"], state["offset_epoch"])
        if topic_id != NO_ID:
            self._ids[told.where] = topic_id
        self._fetcher.lead(
            told.topic,
            told.partition,
            link,
            node,
            part.leader_epoch,
            topic_id.bytes if topic_id.int else None,
        )

    def _state(self, where: TopicPartition) -> dict[str, int] | None:
        try:
            return self._fetcher.state(*where)
        except KeyError:
            return None

    def _validate(self, told: Told, part: PartitionInfo, offset: int, epoch: int) -> None:
        """KIP-320: a new leader may lack what was fetched; then the log was truncated."""
        end = end_of_epoch(self._cluster, told.where, part, epoch)
        if end is None or end.offset >= offset:
            return
        text = f"{told.where}: the log was truncated to {end.offset}, before {offset}"
        if self._config.auto_offset_reset == "none":
            raise LogTruncationError(f"{text}; seek, or set auto.offset.reset", end.offset)
        _log.warning("%s", text)
        if end.offset < 0:  # it knows of no epoch as early
            wanted = self._reset_to(told.where, text) or EARLIEST
            end = EpochEnd(self._offsets({told.where: wanted})[told.where], -1)
        self._fetcher.move(*told.where, told.generation, end.offset, end.epoch, truncated=True)

    def _begin_anew(self, told: Told) -> None:
        """The topic was deleted and made again: positions of the old one mean nothing."""
        state = self._state(told.where)
        if state is None or state["offset"] < 0:
            return
        _log.warning("%s was deleted and made anew", told.where)
        wanted = self._reset_to(told.where, "was deleted and made anew")
        self._move(told, -1 if wanted is None else self._offsets({told.where: wanted})[told.where])

    def _follow(self, told: Told) -> None:
        """The leader names a replica that is nearer (KIP-392)."""
        part = self._partition(told)
        if told.node not in part.replicas or told.node in part.offline:
            raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE, str(told.where))
        try:
            self._give(told, part, told.node)
        except (ConnectError, RequestTimeoutError) as error:
            _log.info("%s: no way to the nearer replica: %s", told.where, error)
            self._again(told._replace(why=LEADER))

    def _has_moved(self, told: Told) -> None:
        """The node does not lead it; the answer may tell who does (KIP-951)."""
        known = self._cluster.metadata.partition(told.topic, told.partition)
        if known is not None and told.node >= 0 and told.epoch > known.leader_epoch:
            self._cluster.learn_leaders(
                [Leader(told.topic, told.partition, told.node, told.epoch)]
            )
            if told.node in self._cluster.nodes:
                self._lead(told)
                return
        self._cluster.forget(told.topic)
        self._again(told._replace(why=LEADER))

    def _look_for_leaders(self) -> None:
        """Metadata have grown old: leaders may have moved, and a nearer replica be gone."""
        assigned = self._fetcher.assigned()
        if not assigned:
            return
        found = self._cluster.retry(
            lambda: self._cluster.describe({topic for topic, _ in assigned}), _ONCE_S
        )
        for topic, partition in assigned:
            info = found.get(topic)
            state = self._state(TopicPartition(topic, partition))
            if isinstance(info, TopicInfo) and state is not None:
                leaders = {part.index: part.leader for part in info.partitions}
                if leaders.get(partition, -1) not in (-1, state["leader"]):
                    self._fetcher.attend(topic, partition, LEADER)

    # positions

    def _position(self, told: Told) -> None:
        timestamp = None if told.where in self.held else self._beginning(told.where)
        if timestamp is not None:
            self._move(told, self._offsets({told.where: timestamp})[told.where])

    def _beginning(self, where: TopicPartition) -> int | None:
        """Where the user or the policy has it begin: a time, EARLIEST, LATEST; None: told."""
        wanted = self.strategies.get(where)
        if wanted is None:
            wanted = self._reset_to(where, "has no position and no committed offset")
        return wanted

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The end where nothing is as late as a time."""
        committed = self._config.isolation_level == "read_committed"
        asked: dict[tuple[str, int], int] = dict(wanted.items())
        found = list_offsets(self._cluster, asked, read_committed=committed)
        late = {where: LATEST for where, told in found.items() if told.offset < 0}
        if late:
            found.update(list_offsets(self._cluster, late, read_committed=committed))
        return {TopicPartition(*where): told.offset for where, told in found.items()}

    def _move(self, told: Told, offset: int) -> None:
        self._failures.forget(told.where)
        if self._fetcher.move(told.topic, told.partition, told.generation, offset):
            _log.debug("%s is read from offset %d on", told.where, offset)

    def _reset_to(self, where: TopicPartition, what: str) -> int | None:
        """By auto.offset.reset; None: the user was told."""
        policy = self._config.auto_offset_reset
        if policy == "none":
            text = f"{where} {what}, and auto.offset.reset is none; seek, or set a policy"
            self.fail(where, NoOffsetError(text))
            return None
        if policy.startswith("by_duration:"):
            return max(0, int(time.time() * 1000) - duration_ms(policy))
        return EARLIEST if policy == "earliest" else LATEST

    def _out_of_range(self, told: Told) -> None:
        part = self._partition(told)
        state = self._state(told.where)
        if state is None:
            return
        if state["leader"] != part.leader:  # a replica that lags; the leader knows
            self._give(told, part, part.leader)
            return
        wanted = self._reset_to(told.where, f"has no offset {told.offset}")
        if wanted is not None:
            _log.info("%s has no offset %d, begins anew", told.where, told.offset)
            self._move(told, self._offsets({told.where: wanted})[told.where])


