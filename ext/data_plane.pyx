"""The data plane put together: network half, topic table, journal, handlers.

The control plane builds one, pushes down what the data plane must know (topics, their logs,
ApiVersions) and takes the requests that are its own from `engine`.

Order of life: DataPlane, `open_journal`, `adopt` each log, `add_topic`, engine.listen,
engine.start; then engine.stop, `stop_journal`, close the logs, `close_journal`. Until the journal
is open, and where there is none, appends are durable as the page cache is.
"""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from kbroker.ext.appending cimport appendings_end
from kbroker.ext.atomics cimport (
    atomic_add_relaxed_i64,
    atomic_exchange_i64,
    atomic_load_i32,
    atomic_load_i64,
    atomic_load_relaxed_i64,
    atomic_load_relaxed_u32,
    atomic_load_u64,
    atomic_store_i32,
    atomic_store_i64,
)
from kbroker.ext.batch cimport (
    BATCH_BAD_BASE_OFFSET, BATCH_BAD_COUNT, BATCH_BAD_CRC, BATCH_BAD_MAGIC, BATCH_BAD_OFFSET_DELTA,
    BATCH_BAD_OFFSET_RANGE, BATCH_BAD_SEQUENCE, BATCH_COUNT_MISMATCH, BATCH_NO_KEY, BATCH_OLD_MAGIC,
)
from kbroker.ext.broker cimport (
    Broker, COUNTED_FETCH, COUNTED_LIST_OFFSETS, COUNTED_PRODUCE, COUNTED_PRODUCE_LATE, Directory,
    ERROR_CODES_MAX, REFUSED_KINDS, disk_unlimited,
)
from kbroker.ext.connection cimport JobQueue, Net
from kbroker.ext.counters cimport histogram_told
from kbroker.ext.engine cimport Engine
from kbroker.ext.fetch cimport handle_fetch
from kbroker.ext.heartbeat cimport handle_heartbeat
from kbroker.ext.journal cimport (
    Journal,
    JournalCallbacks,
    journal_create,
    journal_destroy,
    journal_start,
    journal_stop,
)
from kbroker.ext.journal_files cimport files_bytes
from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.list_offsets cimport handle_list_offsets
from kbroker.ext.log cimport Log
from kbroker.ext.log_append cimport log_advance_hw
from kbroker.ext.log_flush cimport log_flush
from kbroker.ext.log_move cimport log_exchange
from kbroker.ext.log_recovery cimport log_set_journal
from kbroker.ext.log_state cimport DIRECTORIES_MAX, LOG_CLOSED, LOG_OK, Log as LogStruct
from kbroker.ext.log_state cimport log_offline, log_ref, log_unref
from kbroker.ext.network cimport net_install, net_synchronize, network_unstall
from kbroker.ext.posix cimport EAGAIN, EIO, pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.produce cimport handle_produce
from kbroker.ext.purgatory cimport log_mark, log_wake
from kbroker.ext.queue cimport queue_wake
from kbroker.ext.registry cimport (
    registry_destroy,
    registry_disk_bytes,
    registry_init,
    registry_put,
    registry_reclaim,
    registry_remove,
)
from kbroker.ext.rights cimport Rights, rights_unref
from kbroker.ext.segment cimport segment_limit_preparation
from kbroker.ext.sessions cimport sessions_destroy, sessions_init

cdef enum:
    # Of the room within the disk's limits, what one segment may prepare ahead: 64 that are written
    # to do not take more than there is.
    PREPARED_SHARE = 64
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    HEARTBEAT = 12


# By kind, see quotas.pxd.
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


# -- what the journal calls -------------------------------------------------------------------

cdef void retain_log(void* log) noexcept nogil:
    log_ref(<LogStruct*>log)


cdef void release_log(void* log) noexcept nogil:
    log_unref(<LogStruct*>log)


cdef void on_durable(void* context, int64_t end_offset) noexcept nogil:
    """The flusher: these offsets are on disk, or the journal has failed."""
    cdef LogStruct* log = <LogStruct*>context
    if end_offset >= 0:
        if log_advance_hw(log, end_offset):
            log_wake(log)
        return
    pthread_mutex_lock(&log.lock)
    log_offline(log, EIO)
    pthread_mutex_unlock(&log.lock)
    log_wake(log)


cdef int sync_log(void* context) noexcept nogil:
    """The flusher and the checkpointer: a closed log was synced when it was closed, a deleted one
    needs none."""
    cdef LogStruct* log = <LogStruct*>context
    cdef int64_t recovery_point
    cdef int code = log_flush(log, realtime_ms(), &recovery_point)
    if code == LOG_OK or code == LOG_CLOSED:
        return 0
    if not atomic_load_i32(&log.offline):
        return EAGAIN               # put off
    log_wake(log)
    return EIO


cdef void wake_control(void* queue) noexcept nogil:
    queue_wake(<JobQueue*>queue)


cdef void free_rights(void* rights) noexcept nogil:
    rights_unref(<Rights*>rights)


cdef bint synchronize(void* net) noexcept nogil:
    return net_synchronize(<Net*>net)


# -- the face ---------------------------------------------------------------------------------

cdef class DataPlane:
    """See the module. `settings` are the engine's."""

    def __cinit__(self, settings, *, int32_t node_id=1, int32_t fetch_bytes_max=57671680,
                  int64_t fetch_sessions_max=1000):
        cdef int i
        self.broker = <Broker*>calloc(1, sizeof(Broker))
        if self.broker == NULL or registry_init(&self.broker.registry) != 0:
            raise MemoryError("no memory for the data plane")
        sessions_init(&self.broker.sessions, fetch_sessions_max)
        self.broker.node_id = node_id
        self.broker.directories_count = 1
        for i in range(DIRECTORIES_MAX):
            self.broker.directories[i].disk_room = disk_unlimited()
        self.broker.verify_transactions = True
        self.broker.fetch_bytes_max = fetch_bytes_max
        self.engine = Engine(settings)
        self.engine.net.broker = self.broker
        self.broker.registry.synchronize = synchronize
        self.broker.registry.synchronize_argument = self.engine.net
        self.pulses = Pulses()
        self.pulses.core.synchronize = synchronize
        self.pulses.core.synchronize_argument = self.engine.net
        self.broker.pulses = &self.pulses.core
        self.engine.net.auth_free = free_rights
        net_install(self.engine.net, PRODUCE, handle_produce)
        net_install(self.engine.net, FETCH, handle_fetch)
        net_install(self.engine.net, LIST_OFFSETS, handle_list_offsets)
        net_install(self.engine.net, HEARTBEAT, handle_heartbeat)

    def __dealloc__(self):
        cdef int i
        if self.broker == NULL:
            return
        if self.engine is not None:
            self.engine.stop(0)
            self.broker.registry.synchronize = NULL
            if self.pulses is not None:
                self.pulses.core.synchronize = NULL
            self.engine.net.broker = NULL
        for i in range(DIRECTORIES_MAX):
            if self.broker.directories[i].journal != NULL:
                with nogil:
                    journal_stop(self.broker.directories[i].journal)
                journal_destroy(self.broker.directories[i].journal, False)
        segment_limit_preparation(disk_unlimited())     # the next one begins as this did
        registry_destroy(&self.broker.registry)
        sessions_destroy(&self.broker.sessions)
        free(self.broker)

    # directories and their journals; `place` is one's among log.dirs

    def set_directories(self, paths):
        """What log.dirs has. Before anything is served."""
        cdef int place
        if not 0 < len(paths) <= DIRECTORIES_MAX:
            raise ValueError(f"{len(paths)} log directories: at most {DIRECTORIES_MAX}")
        self.paths = [os.fsencode(path) for path in paths]
        self.broker.directories_count = <int>len(paths)
        for place in range(self.broker.directories_count):
            self.engine.net.places[place] = <const char*><bytes>self.paths[place]

    def hanging(self):
        """Places of directories in which a write has stood for half a second, and stands."""
        cdef uint64_t places = atomic_load_u64(&self.engine.net.hanging)
        return [place for place in range(self.broker.directories_count) if places >> place & 1]

    cdef Directory* at(self, int place) except NULL:
        if not 0 <= place < DIRECTORIES_MAX:
            raise ValueError(f"no log directory {place}")
        return &self.broker.directories[place]

    def open_journal(self, directory, place=0, *, int64_t buffer_bytes, int64_t file_bytes,
                     int64_t bytes_max, int64_t flush_interval_ms):
        """Make the journal of a directory and start its threads: durability=fsync from now on.

        No journal may be left in the directory (journal_recovery.remove).
        """
        cdef JournalCallbacks callbacks
        callbacks.retain = retain_log
        callbacks.release = release_log
        callbacks.durable = on_durable
        callbacks.sync = sync_log
        salt = int.from_bytes(os.urandom(8), "big")
        cdef bytes path = os.fsencode(directory)
        cdef const char* raw = path
        cdef uint64_t drawn = salt
        cdef Directory* disk = self.at(place)
        cdef Journal* journal
        with nogil:
            journal = journal_create(raw, buffer_bytes, file_bytes, bytes_max, flush_interval_ms,
                                     &callbacks, drawn)
        if journal == NULL:
            raise OSError(f"cannot make a journal in {directory}: is the disk full?")
        journal.unstall = network_unstall
        journal.unstall_argument = self.engine.net
        code = journal_start(journal)
        if code:
            journal_destroy(journal, True)
            raise OSError(code, os.strerror(code))
        disk.journal = journal

    def adopt(self, Log log not None, place=0):
        """Have the log's appends go through the journal of its directory. Before it is served."""
        log_set_journal(log.core, self.at(place).journal, place)

    def move(self, Log log not None, Log future not None, gone, target, place):
        """A frozen log takes over what its future has, in the directory at `place`: see log_move.
        The errno where the folder that it leaves kept its name, else 0. Raises OSError; the log is
        offline then."""
        cdef bytes old = os.fsencode(gone)
        cdef bytes new = os.fsencode(target)
        cdef const char* old_name = old
        cdef const char* new_name = new
        cdef Journal* journal = self.at(place).journal
        cdef int32_t directory = place
        cdef int kept
        cdef int code
        with nogil:
            code = log_exchange(log.core, future.core, old_name, new_name, journal, directory,
                                &kept)
        if code:
            raise OSError(code, os.strerror(code))
        return kept

    def stop_journal(self):
        """Write what is left in all and end their threads; nothing may append any more."""
        cdef int i
        with nogil:
            appendings_end()
        for i in range(DIRECTORIES_MAX):
            if self.broker.directories[i].journal != NULL:
                with nogil:
                    journal_stop(self.broker.directories[i].journal)

    def close_journal(self, place=0, *, unlink_files):
        """Free a stopped journal. unlink_files: the directory's logs were synced and closed
        cleanly."""
        cdef Directory* disk = self.at(place)
        cdef Journal* journal = disk.journal
        if journal != NULL:
            disk.journal = NULL
            journal_destroy(journal, unlink_files)

    cdef list journals(self):
        """The places of those that are open."""
        return [i for i in range(self.broker.directories_count)
                if self.broker.directories[i].journal != NULL]

    def journal_error(self, place=0):
        """The errno of the write or sync that ended the journal; 0 while it is well."""
        cdef Journal* journal = self.at(place).journal
        return 0 if journal == NULL else journal.failed

    def refused(self):
        """Batches refused by their content, and bytes of those that were too large."""
        cdef Broker* broker = self.broker
        return {
            "magic": broker.refused[-BATCH_BAD_MAGIC] + broker.refused[-BATCH_OLD_MAGIC],
            "crc": broker.refused[-BATCH_BAD_CRC],
            "key": broker.refused[-BATCH_NO_KEY],
            "order": sum([broker.refused[-code] for code in (
                BATCH_BAD_BASE_OFFSET, BATCH_BAD_OFFSET_RANGE, BATCH_BAD_COUNT,
                BATCH_COUNT_MISMATCH, BATCH_BAD_SEQUENCE, BATCH_BAD_OFFSET_DELTA,
            )]),
            "all": sum([broker.refused[code] for code in range(REFUSED_KINDS)]),
            "bytes": broker.refused_bytes,
        }

    def errors(self):
        """How often answers told each error code: of Produce, of Produce for what was appended but
        was not durable in time, of Fetch, and of ListOffsets, NONE too."""
        cdef Broker* broker = self.broker
        cdef int api
        cdef int code
        return [
            {code - 1: broker.errors[api][code] for code in range(ERROR_CODES_MAX)
             if broker.errors[api][code]}
            for api in (COUNTED_PRODUCE, COUNTED_PRODUCE_LATE, COUNTED_FETCH, COUNTED_LIST_OFFSETS)
        ]

    def journal_stats(self):
        """Groups and bytes written, nanoseconds spent writing them, files on disk; of all journals
        together, nothing where there are none."""
        cdef Journal* journal
        cdef dict told = {}
        for i in self.journals():
            journal = self.at(i).journal
            for name, value in (
                ("groups", atomic_load_relaxed_i64(&journal.groups_written)),
                ("bytes", atomic_load_relaxed_i64(&journal.bytes_written)),
                ("flush_ns", atomic_load_relaxed_i64(&journal.flush_ns_total)),
                ("files", atomic_load_relaxed_u32(&journal.files_count)),
                ("batches", atomic_load_relaxed_i64(&journal.batches_written)),
            ):
                told[name] = told.get(name, 0) + value
        return told

    def journal_histograms(self):
        """Of the groups: (ns, counts by bucket) of write and sync, (bytes, counts) of their sizes;
        None without a journal."""
        cdef Journal* journal
        cdef list found = []
        for i in self.journals():
            journal = self.at(i).journal
            found.append((histogram_told(&journal.syncs), histogram_told(&journal.sizes)))
        if len(found) < 2:
            return found[0] if found else None
        return tuple([
            (sum([one[which][0] for one in found]),
             [sum(counts) for counts in zip(*[one[which][1] for one in found])])
            for which in (0, 1)
        ])

    # topics

    def add_topic(self, name, bytes topic_id not None, logs, internal=False):
        """Add a topic to the table, or replace the topic of that name (partitions were added).

        logs: one for each partition, None for a partition that is offline.
        """
        cdef bytes encoded = name.encode()
        cdef const uint8_t* raw = <const uint8_t*><const char*>encoded
        cdef const uint8_t* raw_id = <const uint8_t*><const char*>topic_id
        cdef int32_t length = <int32_t>len(encoded)
        cdef int32_t count = <int32_t>len(logs)
        cdef bint is_internal = internal
        cdef LogStruct** table
        cdef int code
        if len(topic_id) != 16:
            raise ValueError(f"a topic id has 16 bytes, not {len(topic_id)}")
        table = <LogStruct**>malloc(max(count, 1) * sizeof(void*))
        if table == NULL:
            raise MemoryError("no memory for a topic")
        try:
            for i, log in enumerate(logs):
                table[i] = (<Log?>log).core if log is not None else NULL
            with nogil:
                code = registry_put(&self.broker.registry, raw, length, raw_id, is_internal,
                                    table, count)
        finally:
            free(table)
        if code:
            raise MemoryError("no memory for a topic")

    def remove_topic(self, name):
        """Remove a topic from the table. Return False if it is not there."""
        cdef bytes encoded = name.encode()
        cdef const uint8_t* raw = <const uint8_t*><const char*>encoded
        cdef int32_t length = <int32_t>len(encoded)
        cdef bint found
        with nogil:
            found = registry_remove(&self.broker.registry, raw, length)
        return found

    def remove_topics(self, names):
        """Take topics out of the table, with one wait for the readers of all; how many were there.
        Then wake who waits for them."""
        cdef int found = 0
        self.broker.registry.keeps_retired = 1
        try:
            for name in names:
                found += self.remove_topic(name)
        finally:
            with nogil:
                registry_reclaim(&self.broker.registry)
        return found

    def wake(self, Log log not None):
        """After a watermark moved by other hands than the data plane's, or the log went away."""
        log_wake(log.core)

    # transactions

    def verify_transactions(self, bint verify):
        """transaction.partition.verification.enable."""
        atomic_store_i32(&self.broker.verify_transactions, verify)

    def rights_changed(self, int64_t version):
        """The version of ACLs that rights go by; what was decided by another is asked again. 0:
        there is no authorizer, and everybody may do everything."""
        atomic_store_i64(&self.broker.rights_version, version)

    def tell_control(self, Log log not None, int64_t offset):
        """End the control thread's wait for requests once when the high watermark is at `offset`
        or above, or the log offline or closed; the journal is asked to write now. True: that is so
        already. The last call for a log counts."""
        if log.core.on_mark == NULL:        # set once: a flusher may be reading it
            log.core.mark_argument = &self.engine.net.control
            log.core.on_mark = wake_control
        return log_mark(log.core, offset)

    # disk

    def disk_bytes(self, int32_t place=0):
        """Bytes of a directory's segments and indexes and of its journal; no file is looked at."""
        cdef Journal* journal
        cdef int64_t bytes
        with nogil:
            bytes = registry_disk_bytes(&self.broker.registry, place)
        journal = self.at(place).journal    # only now: without the GIL it may be closed
        return bytes if journal == NULL else bytes + files_bytes(journal)

    def set_disk_room(self, room, refusing, place=0):
        """Bytes that clients may append to a directory until the next call, None for as many as
        they like; refusing: none may, and who waits for room is told."""
        cdef Directory* disk = self.at(place)
        atomic_store_i32(&disk.disk_refusing, refusing)
        atomic_store_i64(&disk.disk_room, disk_unlimited() if room is None else room)
        segment_limit_preparation(min([
            self.disk_room(i) for i in range(self.broker.directories_count)
        ]) // PREPARED_SHARE)
        network_unstall(self.engine.net)

    def disk_room(self, place=0):
        """What is left of the room that was set."""
        return atomic_load_i64(&self.at(place).disk_room)

    def take_disk_room(self, int64_t size, place=0):
        """Of the room that was set, for what the broker itself writes; whether there was so much.
        Who asks here finds a look by other means than produce requests do."""
        cdef Directory* disk = self.at(place)
        cdef int64_t room = atomic_load_relaxed_i64(&disk.disk_room)
        if room >= disk_unlimited():
            return True
        if room < size:
            return False
        atomic_add_relaxed_i64(&disk.disk_room, -size)
        return True

    def take_disk_wanted(self, place=0):
        """Bytes of the largest produce request that has stalled for room since the last call."""
        return atomic_exchange_i64(&self.at(place).disk_wanted, 0)

    def limit_connections(self, most, per_ip, overrides):
        """As Engine.limit_connections."""
        self.engine.limit_connections(most, per_ip, overrides)

    def set_quotas(self, user, client_id, values):
        """The quotas of a user, by his number (-1: of all that have none, -2: whoever it is) and a
        client id (None: of all that have none, b"": whichever it is), by their names in Kafka;
        what is not among the values has no limit."""
        for kind, name in enumerate(QUOTAS):
            self.engine.set_quota(kind, user, client_id, values.get(name))

    def limit_addresses(self, others, rates):
        """As Engine.limit_addresses."""
        self.engine.limit_addresses(others, rates)

    def limit_listeners(self, rate, exempt, limits):
        """As Engine.limit_listeners."""
        self.engine.limit_listeners(rate, exempt, limits)

    def resize_threads(self, network_threads, io_threads):
        """As Engine.resize."""
        self.engine.resize(network_threads, io_threads)

    def counts(self):
        """(topics, partitions, fetch sessions) of now."""
        return (self.broker.registry.topics_count, self.broker.registry.partitions_count,
                self.broker.sessions.count)
