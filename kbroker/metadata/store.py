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
`append` makes one batch, syncs it, then replays it into the image: a change is told when it is
on the disk, and is there whole or not at all. One that stands in a disk that hangs is not waited
for: it is taken in when it is over, and none is begun before. A change too large for one batch is
put between begin and end records (KIP-868); one that a crash left open is aborted by the next
`open`. Snapshots follow the growth of the log; what lies before one is removed.

The directory of one node may change hands between kbroker and Apache Kafka, one at a time. Kafka
needs of its server.properties: the same `node.id`, `process.roles=broker,controller`, this
directory as `log.dirs`, any controller listener, and `controller.quorum.bootstrap.servers` that
names it (with kraft.version 0, `controller.quorum.voters`). The endpoint in the voters record
need not match: Kafka writes its own when it begins to lead.

Not thread-safe: the control thread owns it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.clock import Clock
from kbroker.errors import BugError, ClientError, CorruptFileError, DiskError, ErrorCode
from kbroker.storage.checkpoints import read_leader_epochs, write_leader_epochs
from kbroker.storage.disk_worker import DiskWorker

from . import features
from .batches import BATCH_MAX_BYTES, Batch, Pair, build_batch
from .builders import Replica, replica_of
from .identity import identify
from .image import Image
from .log import MetadataLog
from .meta_properties import MetaProperties
from .quorum import Quorum, only_voter, read_quorum_state, write_quorum_state
from .records import cluster, raft, topics
from .records.frame import decode_control, decode_metadata, encode_control, encode_metadata
from .records.schema import Record
from .records.wire import RecordError
from .snapshot import (
    BOOTSTRAP,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    remove_leftovers,
    write_snapshot,
)

FOLDER: Final = "__cluster_metadata-0"
SNAPSHOT_MIN_BYTES: Final = 4 << 20
"""Bytes of log behind a snapshot that make the next one worth while, at the least: reading them
back costs some 0.2 s of a start."""
SNAPSHOT_INTERVAL_MS: Final = 3_600_000
"""How long a change waits for a snapshot at most; 0 is for ever. Kafka's default too
(metadata.log.max.snapshot.interval.ms)."""
_BATCH_BYTES: Final = BATCH_MAX_BYTES // 2
_HANGS: Final = "The disk of the metadata log does not answer; what was asked may still take place."
_log = logging.getLogger("kbroker.metadata")


def _nothing() -> None:
    """What follows where nothing does."""


class _Batches(NamedTuple):
    """What is to be appended, the offset behind it, and its time."""

    data: list[bytes]
    end: int
    now_ms: int


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
        """Writes what is appended. Of its own: what is done to folders of partitions may take its
        time, and no change is refused for that."""
        self._meta: MetaProperties | None = None
        self._quorum = Quorum()
        self._log = MetadataLog(self.folder)
        self._loader = _Loader(self.image, self._quorum)
        self._since_snapshot = 0
        self._last_snapshot_bytes = 0
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
        return self.image

    def close(self) -> None:
        """Let go of the files. Nothing is left to sync."""
        self._log.close()

    def _load(self) -> None:
        newest = SnapshotId(0, 0)
        timestamp = 0
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
        self._append(self._batch([encode_control(record) for record in control], control=True))
        epochs = [entry for entry in read_leader_epochs(self.folder) if entry[1] < start]
        write_leader_epochs(self.folder, [*epochs, (epoch, start)])

    def _bootstrap(self) -> None:
        """The first records of a cluster: feature levels, and what the format tool was told."""
        path = self.directory / BOOTSTRAP
        records: list[Record]
        if path.exists():
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
        self,
        records: Iterable[Record],
        then: Callable[[], object] = _nothing,
        *,
        patient: bool = False,
    ) -> None:
        """Make a change durable and take it in, all of it or nothing; `then` follows.

        DiskError where the disk failed: the image is as before. ClientError (REQUEST_TIMED_OUT)
        where it hangs: the change takes place when it is over, as does `then`, or was not begun, as
        another one is under way. `patient`: once begun, it is waited for.
        """
        listed = list(records)

        def taken() -> None:
            if self._changed_at_ms is None:
                self._changed_at_ms = self._clock.monotonic_ms()
            self.snapshot_when_due()
            then()

        self._check_idle()
        self.image.check(listed)
        self._write(listed, taken, patient=patient)

    def when_idle(self, do: Callable[[], object]) -> None:
        """Call it when nothing is under way in a disk that hangs."""
        self.worker.do(_nothing, lambda _: do())

    def upgrade_kraft_version(self, then: Callable[[], object] = _nothing) -> None:
        """From 0 to 1: from now on the log itself says who its voters are. `quorum-state` follows
        with the next epoch, as Apache Kafka has it. Raises and goes on as `append`."""
        records = [
            raft.KRaftVersionRecord(0, 1), only_voter(self.meta.node_id, self.directory_id),
        ]  # fmt: skip

        def taken() -> None:
            for record in records:
                self._quorum.take(record)
            then()

        self._check_idle()
        made = self._batch([encode_control(record) for record in records], control=True)
        self._append(made, taken)

    def _check_idle(self) -> None:
        if self.worker.late:
            raise ClientError(ErrorCode.REQUEST_TIMED_OUT, _HANGS)

    def _write(
        self,
        records: list[Record],
        then: Callable[[], object] = _nothing,
        *,
        patient: bool = False,
    ) -> None:
        pairs: list[Pair] = []
        version = self.image.metadata_version
        if version < 0:
            version = features.METADATA_VERSION_MAX
        for record in records:
            kind = features.record_version(type(record), version)
            pairs.append((None, encode_metadata(record, kind)))
        size = sum(len(value or b"") for _, value in pairs)
        if size <= _BATCH_BYTES:
            made = self._batch(pairs)
        elif features.has_transactions(version):
            made = self._transaction(pairs)
        else:
            raise BugError(f"{size} bytes of records at once, at metadata.version {version}")

        def taken() -> None:
            self.image.replay_all(records)
            then()

        self._append(made, taken, patient=patient)

    def _append(
        self, made: _Batches, then: Callable[[], object] = _nothing, *, patient: bool = False
    ) -> None:
        def taken(_: None) -> None:
            self._since_snapshot += sum(map(len, made.data))
            then()

        work = partial(self._log.append, made.data, made.end, self.epoch, made.now_ms)
        if not self.worker.do(work, taken, patient=patient):
            raise ClientError(ErrorCode.REQUEST_TIMED_OUT, _HANGS)

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
        """Take a snapshot where the log behind the last one has grown or waited enough.

        Every append asks; who has a timer asks now and then. True if one was taken. A disk that
        refuses it is told in the log and asked again later: what was appended is safe without.
        """
        due = max(self._snapshot_bytes, 2 * self._last_snapshot_bytes)
        if self._since_snapshot < due and not self._waited_enough():
            return False
        if self.worker.late:
            return False
        try:
            self.snapshot()
        except DiskError as error:
            _log.warning("no snapshot of the metadata log: %s", error)
            self._since_snapshot = 0
            self._changed_at_ms = None
            return False
        return True

    def _waited_enough(self) -> bool:
        if self._changed_at_ms is None or self._snapshot_interval_ms == 0:
            return False
        return self._clock.monotonic_ms() - self._changed_at_ms >= self._snapshot_interval_ms

    def snapshot(self) -> SnapshotId:
        """Write the image as a snapshot and remove what lies before it."""
        identity = SnapshotId(self.next_offset, self._log.last_epoch)
        version = self.image.metadata_version
        work = partial(
            self._write_snapshot,
            identity,
            [(one, features.record_version(type(one), version)) for one in self.image.records()],
            self._quorum.records(),
            self._clock.wall_ms(),
        )

        def taken(size: int) -> None:
            self._last_snapshot_bytes = size
            self._since_snapshot = 0
            self._changed_at_ms = None

        self.worker.do(work, taken)
        return identity

    def _write_snapshot(
        self,
        identity: SnapshotId,
        records: list[tuple[Record, int]],
        control: list[Record],
        now_ms: int,
    ) -> int:
        """The worker's. Its size in bytes."""
        size = write_snapshot(
            self.folder / identity.file_name,
            records,
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


class _Loader:
    """Takes batches of the log in: raft's records at once, a transaction's at its end."""

    def __init__(self, image: Image, quorum: Quorum) -> None:
        self._image = image
        self._quorum = quorum
        self._open: list[Record] | None = None

    @property
    def in_transaction(self) -> bool:
        """True where the log ends within a transaction."""
        return self._open is not None

    def take(self, batch: Batch, folder: Path) -> None:
        """One batch, in the order of the log."""
        try:
            if batch.control:
                for key, value in batch.records:
                    self._quorum.take(decode_control(key or b"", value or b""))
                return
            for _, value in batch.records:
                self._take_record(decode_metadata(value or b"")[0])
        except (RecordError, BugError) as error:
            reason = f"the records at offset {batch.base_offset}: {error}"
            raise CorruptFileError(folder, reason) from error

    def _take_record(self, record: Record) -> None:
        if isinstance(record, cluster.BeginTransactionRecord):
            self._open = []
        elif isinstance(record, cluster.EndTransactionRecord):
            self._image.replay_all(self._open or ())
            self._open = None
        elif isinstance(record, cluster.AbortTransactionRecord):
            self._open = None
        elif self._open is not None:
            self._open.append(record)
        else:
            self._image.replay(record)


def load_image(directory: Path) -> Image:
    """The image of a directory at rest, without changing a byte: for tools."""
    image, quorum = Image(), Quorum()
    loader = _Loader(image, quorum)
    folder = directory / FOLDER
    offset = 0
    if snapshots := list_snapshots(folder):
        offset = snapshots[-1].offset
        image.replay_all(read_snapshot(folder / snapshots[-1].file_name).records)
    for batch in MetadataLog(folder).read(offset):
        loader.take(batch, folder)
    return image


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
