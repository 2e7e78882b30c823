"""The metadata store: the cluster's state in `__cluster_metadata-0`, and the image of it.

A log directory holds, as `kafka-storage format --standalone` makes it and Kafka 4.3 in combined
mode uses it:

    meta.properties                          cluster, node and directory id; written last
    bootstrap.checkpoint                     records that a new cluster begins with
    __cluster_metadata-0/
        partition.metadata                   topic id AAAAAAAAAAAAAAAAAAAAAQ
        leader-epoch-checkpoint              first offset of each KRaft epoch
        quorum-state                         epoch and leader
        <offset>-<epoch>.checkpoint          snapshots; 0-0 holds the first voter
        <offset>.log                         segments

`open` formats an empty directory, else loads the newest snapshot and the log behind it, and
begins a new KRaft epoch: `quorum-state` first, then a control batch with a LeaderChange record.
`append` queues a change. The disk worker appends and syncs it as one batch, then the control thread
replays it into the image: an image never has what the disk does not, and a change is there whole or
not at all. One change is written at a time; the others wait in their order. A change too large for
one batch is put between begin and end records (KIP-868); one that a crash left open is aborted by
the next `open`. Snapshots follow the growth of the log; what lies before one is removed.

The directory of one node may change hands between kbroker and Apache Kafka, one at a time. Kafka
needs of its server.properties: the same `node.id`, `process.roles=broker,controller`, this
directory as `log.dirs`, any controller listener, and `controller.quorum.bootstrap.servers` that
names it (with kraft.version 0, `controller.quorum.voters`). The endpoint in the voters record
need not match: Kafka writes its own when it begins to lead.

Not thread-safe: the control thread owns it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.clock import Clock
from kbroker.errors import BugError, ClientError, DiskError, ErrorCode
from kbroker.files import is_there
from kbroker.operations import Completion
from kbroker.storage.checkpoints import read_leader_epochs, write_leader_epochs
from kbroker.storage.disk_worker import DiskWorker, Step

from . import features
from .batches import BATCH_MAX_BYTES, Pair, build_batch
from .builders import Replica, replica_of
from .deleted_topics import read_deleted_topics, write_deleted_topics
from .identity import identify
from .image import Image
from .loader import FOLDER, Loader
from .log import MetadataLog
from .meta_properties import MetaProperties
from .quorum import Quorum, only_voter, read_quorum_state, write_quorum_state
from .records import cluster, raft, topics
from .records.frame import encode_control, encode_metadata
from .records.schema import Record
from .snapshot import (
    BOOTSTRAP,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    remove_leftovers,
    write_snapshot,
)

SNAPSHOT_MIN_BYTES: Final = 4 << 20
"""Bytes of log behind a snapshot that make the next one worth while, at the least: reading them
back costs some 0.2 s of a start."""
SNAPSHOT_INTERVAL_MS: Final = 3_600_000
"""How long a change waits for a snapshot at most; 0 is for ever. Kafka's default too
(metadata.log.max.snapshot.interval.ms)."""
_BATCH_BYTES: Final = BATCH_MAX_BYTES // 2
_log = logging.getLogger("kbroker.metadata")


def _nothing() -> None:
    """Do nothing."""


class _Batches(NamedTuple):
    """What is to be appended, the offset behind it, and its time."""

    data: list[bytes]
    end: int
    now_ms: int


class _Change(NamedTuple):
    """Records to append, and what runs when the image has them. `control`: records of KRaft."""

    records: list[Record]
    then: Callable[[], object]
    control: bool
    completion: Completion[None]


class MetadataStore:
    """See the module. `open` first; `image` is what has been appended and synced."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        node_id: int | None = None,
        cluster_id: str | None = None,
        snapshot_bytes: int = SNAPSHOT_MIN_BYTES,
        snapshot_interval_ms: int = SNAPSHOT_INTERVAL_MS,
    ) -> None:
        self.directory = directory
        self.folder = directory / FOLDER
        self.image = Image()
        self.epoch = 0
        """The KRaft epoch that this process leads."""
        self._clock = clock
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._snapshot_bytes = snapshot_bytes
        self._snapshot_interval_ms = snapshot_interval_ms
        self.worker = DiskWorker(str(self.folder))
        """Writes what is appended. It is not that of the log directory: work on the folders of
        partitions delays no change."""
        self._meta: MetaProperties | None = None
        self._quorum = Quorum()
        self._log = MetadataLog(self.folder)
        self._loader = Loader(self.image, self._quorum)
        self._since_snapshot = 0
        self._last_snapshot_bytes = 0
        self._opened = False
        self._changes: deque[_Change] = deque()
        """Changes in their order; the first is being written."""
        self._writing = False
        """Whether the worker has a change or a snapshot to write."""
        self._changed_at_ms: int | None = None
        """Monotonic time of the first change that no snapshot has."""

    # ---- what it is

    @property
    def meta(self) -> MetaProperties:
        """Cluster id, node id and directory id."""
        if self._meta is None:
            raise BugError("the metadata store is not open")
        return self._meta

    @property
    def directory_id(self) -> bytes:
        """The directory id, which every opened directory has."""
        assert self.meta.directory_id is not None
        return self.meta.directory_id

    @property
    def quorum(self) -> Quorum:
        """The voters of the metadata log, and kraft.version."""
        return self._quorum

    @property
    def replica(self) -> Replica:
        """The replica that every partition has: this node, in this directory."""
        return replica_of(self.image, self.meta.node_id, self.directory_id)

    @property
    def next_offset(self) -> int:
        """The offset that the first record of the next append gets."""
        return self._log.end_offset

    @property
    def start_offset(self) -> int:
        """The first offset that the log still holds."""
        return self._log.start_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of the log's segments."""
        return self._log.size_bytes

    @property
    def failure(self) -> DiskError | None:
        """Why nothing more can be appended, for good; None while all is well."""
        return self._log.failure

    def fail(self, error: DiskError) -> None:
        """The disk has failed elsewhere: nothing more is appended here either."""
        if self._log.failure is None:
            self._log.failure = error

    # ---- open and close

    def open(self) -> Image:
        """Format an empty directory, load what is there, and begin to lead."""
        self._meta = identify(self.directory, self._clock, self._node_id, self._cluster_id)
        remove_leftovers(self.folder)
        state = read_quorum_state(self.folder)
        self._load()
        self._quorum.check_alone(self.meta.node_id, self.directory_id, state)
        last_epoch = max(self._log.last_epoch, state.leader_epoch if state else 0)
        self._lead(last_epoch + 1)
        if self._loader.in_transaction:
            self._write([cluster.AbortTransactionRecord("the process that began it ended")])
        if self.image.metadata_version < 0:
            self._bootstrap()
        self._opened = True
        self._changed_at_ms = None
        return self.image

    def close(self) -> None:
        """Let go of the files. Nothing is left to sync."""
        self._log.close()

    def _load(self) -> None:
        newest = SnapshotId(0, 0)
        timestamp = 0
        self.image.deleted_topics.update(read_deleted_topics(self.directory))
        if snapshots := list_snapshots(self.folder):
            newest = snapshots[-1]
            snapshot = read_snapshot(self.folder / newest.file_name)
            timestamp = snapshot.timestamp
            self._last_snapshot_bytes = snapshot.size
            for record in snapshot.control:
                self._quorum.take(record)
            self.image.replay_all(snapshot.records)
        for batch in self._log.open(newest.offset):
            self._since_snapshot += batch.size
            self._loader.take(batch, self.folder)
        self._log.last_epoch = max(self._log.last_epoch, newest.epoch)
        self._log.last_timestamp = max(self._log.last_timestamp, timestamp)

    def _lead(self, epoch: int) -> None:
        """Begin an epoch: first the promise, then its first records."""
        node_id = self.meta.node_id
        write_quorum_state(self.folder, node_id, epoch, self._quorum.kraft_version)
        self.epoch = epoch
        start = self.next_offset
        if start == 0:  # as Kafka: the first epoch's batch repeats what the 0-0 snapshot says
            control = [self._quorum.leader_change(node_id), *self._quorum.records()]
        else:
            control = [self._quorum.leader_change(node_id)]
        self._enqueue(control, _nothing, control=True).result()
        epochs = [entry for entry in read_leader_epochs(self.folder) if entry[1] < start]
        write_leader_epochs(self.folder, [*epochs, (epoch, start)])

    def _bootstrap(self) -> None:
        """The first records of a cluster: feature levels, and what the format tool was told."""
        path = self.directory / BOOTSTRAP
        records: list[Record]
        if is_there(path):
            records = read_snapshot(path).records
        else:
            records = [cluster.FeatureLevelRecord(*item) for item in features.NEW_CLUSTER.items()]
        if any(isinstance(record, cluster.FeatureLevelRecord)
               and record.name == "eligible.leader.replicas.version" and record.feature_level
               for record in records):  # fmt: skip
            # with eligible leader replicas, min.insync.replicas lives in the cluster's settings
            records.append(topics.ConfigRecord(4, "", "min.insync.replicas", "1"))
        self._write(
            [
                cluster.BeginTransactionRecord("Bootstrap records"),
                *records,
                cluster.EndTransactionRecord(),
            ]
        )

    # ---- append

    def append(
        self, records: Iterable[Record], then: Callable[[], object] = _nothing
    ) -> Completion[None]:
        """Make a change durable and take it in, all of it or nothing, after the changes that were
        appended before; `then` runs in the same step.

        The completion's error is a DiskError where the disk failed, a BugError where the records do
        not fit the image, or what `then` raised: but for the last the image is as before.
        """
        return self._enqueue(list(records), then)

    def upgrade_kraft_version(self, then: Callable[[], object] = _nothing) -> Completion[None]:
        """Upgrade kraft.version from 0 to 1: the log itself names its voters from then on.
        `quorum-state` follows with the next epoch, as in Apache Kafka."""
        records: list[Record] = [
            raft.KRaftVersionRecord(0, 1), only_voter(self.meta.node_id, self.directory_id),
        ]  # fmt: skip
        return self._enqueue(records, then, control=True)

    def _enqueue(
        self, records: list[Record], then: Callable[[], object], *, control: bool = False
    ) -> Completion[None]:
        change = _Change(records, then, control, Completion())
        self._changes.append(change)
        if len(self._changes) == 1:
            self._begin()
        return change.completion

    def _begin(self) -> None:
        """Write the change at the head of the queue, unless something is being written."""
        while self._changes and not self._writing:
            change = self._changes[0]
            try:
                if not change.control:
                    self.image.check(change.records)
                written = self.worker.run_steps(
                    [Step((), partial(self._append, change))],
                    last=lambda results: results[0],
                    dropped=self._dropped,
                )
            except Exception as error:
                self._changes.popleft()
                change.completion.fail(error)
                continue
            self._writing = True
            written.on_done(partial(self._appended, change))

    def _dropped(self, _: object) -> None:
        """A stop has dropped what was to be written: the changes that wait fail. What is appended
        after that, when the worker has no thread, is written."""
        self._writing = False
        changes, self._changes = self._changes, deque()
        for change in changes:
            change.completion.fail(ClientError(ErrorCode.NOT_CONTROLLER, "The broker stops."))

    def _append(self, change: _Change) -> int:
        """Encode and append a change, on the worker's thread; its size in bytes."""
        batches = self._encoded(change)
        self._log.append(batches.data, batches.end, self.epoch, batches.now_ms)
        return sum(map(len, batches.data))

    def _appended(self, change: _Change, written: Completion[int]) -> None:
        """Take in what the disk has, and begin the next change."""
        error = written.error
        if error is None:
            self._since_snapshot += written.result()
            try:
                self._take_in(change)
            except Exception as raised:
                error = raised
        self._changes.popleft()
        self._writing = False
        if error is None:
            change.completion.resolve(None)
        else:
            change.completion.fail(error)
        self.snapshot_when_due()
        self._begin()

    def _take_in(self, change: _Change) -> None:
        if change.control:
            for record in change.records:
                self._quorum.take(record)
        else:
            self.image.replay_all(change.records)
            if self._changed_at_ms is None:
                self._changed_at_ms = self._clock.monotonic_ms()
        change.then()

    def _write(self, records: list[Record]) -> None:
        """Append and take in at the start, before the worker has a thread."""
        self._enqueue(records, _nothing).result()

    def _encoded(self, change: _Change) -> _Batches:
        if change.control:
            return self._batch([encode_control(each) for each in change.records], control=True)
        pairs: list[Pair] = []
        version = self.image.metadata_version
        if version < 0:
            version = features.METADATA_VERSION_MAX
        for record in change.records:
            kind = features.record_version(type(record), version)
            pairs.append((None, encode_metadata(record, kind)))
        size = sum(len(value or b"") for _, value in pairs)
        if size <= _BATCH_BYTES:
            return self._batch(pairs)
        if features.has_transactions(version):
            return self._transaction(pairs)
        raise BugError(f"{size} bytes of records at once, at metadata.version {version}")

    def _transaction(self, pairs: list[Pair]) -> _Batches:
        """Several batches that a reader takes in together."""
        begin = encode_metadata(cluster.BeginTransactionRecord("a large change"), 0)
        end = encode_metadata(cluster.EndTransactionRecord(), 0)
        batches = []
        offset, now = self.next_offset, self._clock.wall_ms()
        for chunk in _chunks([(None, begin), *pairs, (None, end)]):
            batches.append(build_batch(offset, self.epoch, now, chunk))
            offset += len(chunk)
        return _Batches(batches, offset, now)

    def _batch(self, pairs: list[Pair], *, control: bool = False) -> _Batches:
        if not pairs:
            raise BugError("an append of no records")
        now = self._clock.wall_ms()
        offset = self.next_offset
        data = build_batch(offset, self.epoch, now, pairs, control=control)
        return _Batches([data], offset + len(pairs), now)

    # ---- snapshots

    def snapshot_when_due(self) -> bool:
        """Begin a snapshot where the log behind the last one has grown or waited enough; whether it
        did. Each append looks, and a timer now and then. A disk that refuses the snapshot is
        logged, and the next one is tried later: what was appended is safe without."""
        due = max(self._snapshot_bytes, 2 * self._last_snapshot_bytes)
        if self._since_snapshot < due and not self._waited_enough():
            return False
        if not self._opened or self._changes or self._writing or self._log.failure is not None:
            return False
        self.snapshot()
        return True

    def _waited_enough(self) -> bool:
        if self._changed_at_ms is None or self._snapshot_interval_ms == 0:
            return False
        return self._clock.monotonic_ms() - self._changed_at_ms >= self._snapshot_interval_ms

    def snapshot(self) -> Completion[SnapshotId]:
        """Write the image as a snapshot and remove what lies before it; no change begins before it
        is written."""
        assert not self._writing
        self._writing = True
        identity = SnapshotId(self.next_offset, self._log.last_epoch)
        version = self.image.metadata_version
        done: Completion[SnapshotId] = Completion()
        work = partial(
            self._write_snapshot,
            identity,
            ((each, features.record_version(type(each), version)) for each in self.image.records()),
            self._quorum.records(),
            self._clock.wall_ms(),
            self.image.deleted_topics.copy(),
        )

        def on_done(written: Completion[int]) -> None:
            self._writing = False
            self._since_snapshot = 0
            self._changed_at_ms = None
            if written.error is None:
                self._last_snapshot_bytes = written.result()
                done.resolve(identity)
            else:
                _log.warning("snapshot of the metadata log failed: %s", written.error)
                done.fail(written.error)
            self._begin()

        def dropped(results: object) -> None:
            self._dropped(results)
            done.fail(ClientError(ErrorCode.NOT_CONTROLLER, "The broker stops."))

        self.worker.run_steps(
            [Step((), work)], last=lambda results: results[0], dropped=dropped
        ).on_done(on_done)
        return done

    def _write_snapshot(
        self,
        identity: SnapshotId,
        records: Iterable[tuple[Record, int]],
        control: list[Record],
        now_ms: int,
        deleted_topics: dict[bytes, str],
    ) -> int:
        """Write it, on the worker's thread; its size in bytes. The records are generated there: the
        image does not change while a snapshot is written."""
        write_deleted_topics(self.directory, deleted_topics)  # before the log forgets them
        size = write_snapshot(
            self.folder / identity.file_name,
            list(records),
            epoch=identity.epoch,
            control=control,
            timestamp=self._log.last_timestamp,
            now_ms=now_ms,
        )
        self._log.roll()
        self._log.drop_before(identity.offset)
        for older in list_snapshots(self.folder):
            if older < identity:
                (self.folder / older.file_name).unlink(missing_ok=True)
        write_leader_epochs(self.folder, [(identity.epoch, identity.offset)])
        return size


def _chunks(pairs: list[Pair]) -> Iterator[list[Pair]]:
    chunk: list[Pair] = []
    size = 0
    for pair in pairs:
        chunk.append(pair)
        size += len(pair[1] or b"")
        if size >= _BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
