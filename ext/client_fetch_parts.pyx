"""FetchParts: what is assigned to a consumer, where it is read from, and waiting for it.

Three threads meet here. The loop's asks and takes answers (client_fetch_drive). The user's, one at
a time, assigns, seeks and takes records. The control thread looks at `attention` and says where a
partition's leader is and where it is read from.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from cpython.exc cimport PyErr_CheckSignals

from kbroker.ext.client_fetch_drive cimport fetch_drive, fetch_link_down, fetch_stopped
from kbroker.ext.client_fetch_state cimport (
    ATTEND_CORRUPT, ATTEND_LEADER, ATTEND_POSITION, ATTEND_REPLICA, TOPIC_ID_BYTES, Chunk, Fetch,
    FetchRules, Part, Topic, fetch_free, fetch_new, fetch_signal, first_part, next_part, part_add,
    part_attend, part_move, part_remove, part_reset, part_truncate, taken_return, topic_find,
    topic_identify,
)
from kbroker.ext.client_loop cimport LoopDriver
from kbroker.ext.client_request cimport wait_a_while
from kbroker.ext.client_thread cimport loop_wake
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.sockets cimport EFD_CLOEXEC, EFD_NONBLOCK, eventfd
from kbroker.ext.wire cimport TOPIC_NAME_BYTES_MAX

LEADER = ATTEND_LEADER
POSITION = ATTEND_POSITION
REPLICA = ATTEND_REPLICA
CORRUPT = ATTEND_CORRUPT


cdef class FetchParts(LoopDriver):
    """See above. Partitions go by (topic, partition); sizes in bytes, times in ms.

    convert: called with each Record that is to be given out, None: nothing to be done."""

    def __cinit__(
        self, *, max_wait_ms: int, min_bytes: int, max_bytes: int, partition_bytes: int,
        queue_bytes: int, request_timeout_ms: int, backoff_ms: int, check_crcs: bool,
        read_committed: bool, rack: str, decompressed_bytes_max: int, convert: object,
    ):
        cdef FetchRules rules
        cdef bytes told = rack.encode()
        memset(&rules, 0, sizeof(rules))
        if len(told) > <Py_ssize_t> sizeof(rules.rack):
            raise ValueError(f"a rack of {len(told)} bytes; at most {sizeof(rules.rack)}")
        rules.max_wait_ms = max_wait_ms
        rules.min_bytes = min_bytes
        rules.max_bytes = max_bytes
        rules.partition_bytes = partition_bytes
        rules.queue_bytes = queue_bytes
        rules.request_timeout_ns = request_timeout_ms * <int64_t> 1000000
        rules.backoff_ns = backoff_ms * <int64_t> 1000000
        rules.stream.check_crcs = check_crcs
        rules.stream.read_committed = read_committed
        rules.stream.limit = decompressed_bytes_max
        rules.rack_n = <int32_t> len(told)
        memcpy(rules.rack, <const char*> told, len(told))
        self.fetch = fetch_new(&rules)
        if self.fetch == NULL:
            raise MemoryError
        self.parts = {}
        self.names = []
        self.convert = convert
        self.unassigned = KeyError
        self.fetch.driver = &self.driver
        self.driver.self = self.fetch
        self.driver.drive = fetch_drive
        self.driver.link_down = fetch_link_down
        self.driver.stopped = fetch_stopped

    def __dealloc__(self):
        fetch_free(self.fetch)

    # ---- the user's thread: assignment and positions

    cdef Part* part(self, object where) except NULL:
        found = self.parts.get(where)
        if found is None:
            raise self.unassigned(f"{where[0]}-{where[1]} is not assigned")
        return <Part*> <size_t> found

    cdef Topic* topic(self, str name) except NULL:
        cdef bytes told = name.encode()
        cdef Topic* topic
        if not 0 < len(told) <= TOPIC_NAME_BYTES_MAX:
            raise ValueError(f"{name!r} is no name of a topic")
        topic = topic_find(self.fetch, told, <int32_t> len(told))
        if topic == NULL:
            topic = <Topic*> calloc(1, sizeof(Topic))
            if topic == NULL:
                raise MemoryError
            memcpy(topic.name, <const char*> told, len(told))
            topic.name_n = <int32_t> len(told)
            topic.index = <int32_t> len(self.names)
            self.names.append(name)
            pthread_mutex_lock(&self.fetch.lock)
            topic.next = self.fetch.topics
            self.fetch.topics = topic
            pthread_mutex_unlock(&self.fetch.lock)
        return topic

    def add(self, topic: str, partition: int) -> None:
        """Assigned, without a position; does nothing where it is assigned already."""
        cdef Topic* at
        cdef Part* part
        cdef int32_t index = partition
        if (topic, partition) in self.parts:
            return
        at = self.topic(topic)
        pthread_mutex_lock(&self.fetch.lock)
        part = part_add(self.fetch, at, index)
        pthread_mutex_unlock(&self.fetch.lock)
        if part == NULL:
            raise MemoryError
        self.parts[topic, partition] = <size_t> part
        pthread_mutex_lock(&self.fetch.lock)
        part_attend(self.fetch, part, ATTEND_LEADER, -1, -1)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def remove(self, topic: str, partition: int) -> None:
        """With all that is queued of it."""
        cdef Part* part
        found = self.parts.get((topic, partition))
        if found is None:
            return
        part = <Part*> <size_t> found
        self.leave(part)
        del self.parts[topic, partition]
        pthread_mutex_lock(&self.fetch.lock)
        part_remove(self.fetch, part)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def assigned(self) -> list[tuple[str, int]]:
        return list(self.parts)

    def paused(self) -> list[tuple[str, int]]:
        return [
            where for where, address in self.parts.items() if (<Part*> <size_t> address).paused
        ]

    def seek(self, topic: str, partition: int, offset: int, epoch: int = -1) -> None:
        """Read from `offset` on; what is queued goes. offset -1: to be found out."""
        cdef Part* part = self.part((topic, partition))
        cdef int64_t to = offset
        cdef int32_t of = epoch
        self.leave(part)
        pthread_mutex_lock(&self.fetch.lock)
        part_reset(self.fetch, part, to, of)
        # With attention, who was to try it again later may have forgotten it; a link that broke
        # while it had another attention was told to nobody.
        if part.attention != 0 or part.link < 0:
            part_attend(self.fetch, part, ATTEND_LEADER, -1, -1)
        elif to < 0:
            part_attend(self.fetch, part, ATTEND_POSITION, -1, -1)
        elif 0 <= of < part.epoch:      # whether the log has this record is asked first (KIP-320)
            part.epoch = -1
            part_attend(self.fetch, part, ATTEND_LEADER, -1, -1)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def pause(self, topic: str, partition: int, paused: bool) -> None:
        cdef Part* part = self.part((topic, partition))
        pthread_mutex_lock(&self.fetch.lock)
        part.paused = paused
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def stop(self, topic: str, partition: int, stopped: bool) -> None:
        """Nothing of it is given out or asked for."""
        cdef Part* part = self.part((topic, partition))
        pthread_mutex_lock(&self.fetch.lock)
        part.stopped = stopped
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def stop_at(self, topic: str, partition: int, offset: int) -> None:
        """Nothing is asked for from this offset on."""
        cdef Part* part = self.part((topic, partition))
        cdef int64_t end = offset
        pthread_mutex_lock(&self.fetch.lock)
        part.stop_at = end
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def state(self, topic: str, partition: int) -> dict[str, int]:
        """Offsets and the like; -1 where they are not known."""
        cdef Part* part = self.part((topic, partition))
        cdef Part now
        pthread_mutex_lock(&self.fetch.lock)
        now = part[0]
        if now.call == 0 or now.call != self.fetch.calls:
            now.call_position = now.position
            now.call_epoch = now.position_epoch
        pthread_mutex_unlock(&self.fetch.lock)
        return {                        # not under the lock: an allocation may run a finalizer
            "position": now.position,
            "position_epoch": now.position_epoch,
            "finished": now.call_position,          # before the last call that returned records
            "finished_epoch": now.call_epoch,
            "offset": now.offset,
            "offset_epoch": now.offset_epoch,
            "high_watermark": now.high_watermark,
            "last_stable_offset": now.last_stable_offset,
            "log_start_offset": now.log_start_offset,
            "leader": now.node,
            "leader_epoch": now.epoch,
            "queued_bytes": now.queued,
            "paused": now.paused,
            "stopped": now.stopped,
        }

    # ---- the control thread

    def attention(self) -> list[tuple]:
        """What waits for the control thread, told once: (topic, partition, why, generation,
        node, leader epoch as the answer tells it, offset, link). why: LEADER, POSITION, REPLICA,
        CORRUPT, or an error code."""
        cdef Part* part
        cdef Part now
        cdef bint some
        cdef bint one
        found = []
        pthread_mutex_lock(&self.fetch.lock)
        some = self.fetch.attention
        self.fetch.attention = False
        pthread_mutex_unlock(&self.fetch.lock)
        for (topic, partition), address in list(self.parts.items()) if some else ():
            if self.parts.get((topic, partition)) != address:
                continue                # unassigned meanwhile
            part = <Part*> <size_t> address
            pthread_mutex_lock(&self.fetch.lock)
            one = part.attention != 0 and not part.attended
            part.attended |= one
            now = part[0]
            pthread_mutex_unlock(&self.fetch.lock)
            if one:
                found.append((
                    topic, partition, now.attention, now.generation, now.hint_node,
                    now.hint_epoch, now.offset, now.link,
                ))
        return found

    def tell_again(self) -> None:
        """All that waits for the control thread, which has lost what it was told."""
        cdef Part* part
        pthread_mutex_lock(&self.fetch.lock)
        part = first_part(self.fetch.topics)
        while part != NULL:
            part.attended = False
            part = next_part(part)
        self.fetch.attention = True
        pthread_mutex_unlock(&self.fetch.lock)

    def lead(
        self, topic: str, partition: int, link: int, node: int, epoch: int,
        topic_id: bytes | None,
    ) -> None:
        """Set the broker that a partition is read from; skip a partition that is not assigned."""
        cdef Part* part
        cdef const uint8_t* new_id = NULL
        cdef int32_t to = link, at = node, of = epoch
        found = self.parts.get((topic, partition))
        if found is None:
            return
        part = <Part*> <size_t> found
        if topic_id is not None and len(topic_id) == TOPIC_ID_BYTES:
            new_id = <const uint8_t*> <const char*> topic_id
        pthread_mutex_lock(&self.fetch.lock)
        if new_id != NULL:
            topic_identify(self.fetch, part, new_id)
        part.link = to
        part.node = at
        part.epoch = of
        if part.attended:               # else it is wanted for something else since
            part.attention = 0
        if part.attention == 0 and part.offset < 0:
            part_attend(self.fetch, part, ATTEND_POSITION, -1, -1)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def move(
        self, topic: str, partition: int, generation: int, offset: int, epoch: int = -1, *,
        truncated: bool = False,
    ) -> bool:
        """Go on elsewhere, unless the user has gone elsewhere since (False). truncated: what is
        queued is not to be given out any more."""
        cdef Part* part
        cdef int64_t since = generation, to = offset
        cdef int32_t of = epoch
        cdef bint cut = truncated
        cdef bint done = False
        found = self.parts.get((topic, partition))
        if found is None:
            return False
        part = <Part*> <size_t> found
        pthread_mutex_lock(&self.fetch.lock)
        if part.generation == since:
            if cut:
                part_truncate(self.fetch, part, to, of)
            else:
                part_move(self.fetch, part, to, of)
            part.attention = 0
            if part.link < 0:
                part_attend(self.fetch, part, ATTEND_LEADER, -1, -1)
            done = True
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()
        return done

    def attend(self, topic: str, partition: int, why: int) -> None:
        """Ask the control thread to check a partition (again)."""
        cdef Part* part
        cdef int32_t because = why
        found = self.parts.get((topic, partition))
        if found is None:
            return
        part = <Part*> <size_t> found
        pthread_mutex_lock(&self.fetch.lock)
        part_attend(self.fetch, part, because, -1, -1)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    def cork(self, corked: bool) -> None:
        """While it is corked, no request is sent: what is told meanwhile goes into one."""
        pthread_mutex_lock(&self.fetch.lock)
        self.fetch.corked = corked
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    # ---- waiting

    cdef int check_idle(self) except -1:
        if self.busy:
            raise RuntimeError("records are being taken, by another thread or around this call")
        return 0

    cdef int leave(self, Part* part) except -1:
        """Its chunks are about to go."""
        self.check_idle()
        if self.open_chunk != NULL and self.open_chunk.part == part:
            self.open_chunk = NULL
            self.source = None
        return 0

    @property
    def returned(self) -> bool:
        """Set it to True as the last thing before a call returns what it took: positions move.

        Python runs signal handlers after calls, not after an attribute was set. So an exception of
        a handler comes before that, and the next call returns the same, or afterwards, when the
        application has the records."""
        return self.fetch.taken == NULL

    @returned.setter
    def returned(self, returned: bool) -> None:
        if not returned:
            raise ValueError("returned can be set to True only")
        self.note_returned()

    cdef void note_returned(self):
        pthread_mutex_lock(&self.fetch.lock)
        taken_return(self.fetch)
        pthread_mutex_unlock(&self.fetch.lock)
        self.given += self.taken_count
        self.taken_count = 0
        self.taken = None

    cdef int untake(self) except -1:
        """Fetches again what a call took and did not return."""
        cdef Part* part
        cdef int64_t position
        cdef int32_t epoch
        self.check_idle()
        pthread_mutex_lock(&self.fetch.lock)
        while self.fetch.taken != NULL:
            part = self.fetch.taken
            position = part.position
            epoch = part.position_epoch
            if part.taken_generation < part.sound_from and position > part.truncated_to:
                position = part.truncated_to
                epoch = -1
            if self.open_chunk != NULL and self.open_chunk.part == part:
                self.open_chunk = NULL
            part_reset(self.fetch, part, position, epoch)
            if part.attention == 0 and part.link < 0:
                part_attend(self.fetch, part, ATTEND_LEADER, -1, -1)
        self.fetch.taken_lost = False
        pthread_mutex_unlock(&self.fetch.lock)
        if self.open_chunk == NULL:
            self.source = None
        self.taken = None
        self.taken_count = 0
        self.wake_loop()
        return 0

    cdef void wake_loop(self):
        if self.driver.loop != NULL:
            loop_wake(self.driver.loop)

    def wake(self) -> None:
        """Ends a wait, now or the next one. Any thread."""
        pthread_mutex_lock(&self.fetch.lock)
        self.fetch.woken = True
        fetch_signal(self.fetch)
        pthread_mutex_unlock(&self.fetch.lock)

    cdef Chunk* ready(self) noexcept nogil:
        """The first chunk of a partition that is not paused; NULL: there is none. Lock held."""
        cdef Chunk* chunk = self.fetch.first
        while chunk != NULL and (chunk.part.paused or chunk.part.stopped):
            chunk = chunk.next
        return chunk

    def wait(self, timeout_s: float) -> bool:
        """Until there is something to give out (True), wake() or the time. Raises what signals
        raise, KeyboardInterrupt for one."""
        cdef int64_t until_ns = INT64_MAX
        cdef bint ready
        cdef bint over
        cdef bint yields = in_greenlet()
        cdef int64_t began_ns = monotonic_ns()
        cdef Fetch* f = self.fetch
        if timeout_s < 1e9:
            until_ns = began_ns + <int64_t> (timeout_s * 1e9)
        while True:
            with nogil:
                pthread_mutex_lock(&f.lock)
                ready = self.ready() != NULL or f.taken != NULL
                if not (ready or f.woken or f.closed or yields) and timeout_s > 0:
                    wait_a_while(&f.arrived, &f.lock, until_ns)
                    ready = self.ready() != NULL
                over = ready or f.woken or f.closed or monotonic_ns() >= until_ns
                if over:
                    f.woken = False
                pthread_mutex_unlock(&f.lock)
            PyErr_CheckSignals()
            if over:
                return ready
            if yields:
                rest(began_ns, until_ns)

    def watch(self) -> int:
        """A descriptor that can be read from once something arrives, or at once; -1: now there
        is something."""
        cdef bint ready
        if self.fetch.signal_fd < 0:
            self.fetch.signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        pthread_mutex_lock(&self.fetch.lock)
        ready = self.ready() != NULL or self.fetch.woken or self.fetch.closed
        ready |= self.fetch.taken != NULL
        self.fetch.watched = not ready
        pthread_mutex_unlock(&self.fetch.lock)
        return -1 if ready else self.fetch.signal_fd
