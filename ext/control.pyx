"""Requests of the control lane: copied by a network thread, answered from Python.

An answer is posted to the network thread of the connection, which may have died meanwhile: then
nothing happens. A request that is dropped without an answer closes its connection, because the
client could not tell its answers apart any more.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kbroker.ext.atomics cimport atomic_load_ptr
from kbroker.ext.broker cimport broker_of
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport (
    H_CLOSE, H_DONE, H_NONE, H_PENDING, SETS_PRINCIPAL, SETS_REFUSED, SETS_STATE, SETS_TOKENS,
    STAGE_OPEN,
)
from kbroker.ext.control_wait cimport Place, job_finish_when
from kbroker.ext.log cimport Log
from kbroker.ext.log_state cimport DIRECTORIES_MAX
from kbroker.ext.principal_uses cimport principal_drop, principal_hold
from kbroker.ext.produce_verify cimport verification_begin
from kbroker.ext.quotas cimport Hold, quota_take_ns
from kbroker.ext.queue cimport job_finish, job_free_frame, queue_pass_on
from kbroker.ext.response cimport reply_bare, reply_begin, reply_end
from kbroker.ext.rights cimport (
    RULING_ALLOWED, RULING_DENIED, RULING_UNKNOWN, RightEntry, Rights, rights_unref,
)
from kbroker.ext.software cimport Software, software_text
from kbroker.ext.stages cimport TOKEN_VERSION

cdef enum:
    RESPONSE_BYTES_MAX = 0x7fffff00
    PRODUCE = 0
    LIST_OFFSETS = 2
    WAITED_FOR_MAX = DIRECTORIES_MAX


cdef inline bint goes_to_the_pool(const Job* job) noexcept nogil:
    """When the data plane goes on with it; where it is read again."""
    return job.api_key == PRODUCE or job.api_key == LIST_OFFSETS


cdef class Request:
    """One request; made by Engine.next_request."""

    def respond(self, body: bytes) -> None:
        """Answer with a response body, without header. A second answer is an error."""
        cdef Job* job = self.job
        cdef uint8_t* at
        cdef size_t length = len(body)
        if job == NULL:
            raise RuntimeError("this request was answered before")
        if length > RESPONSE_BYTES_MAX:
            raise ValueError(f"a response of {length} bytes")
        if job.api_version == TOKEN_VERSION:
            at = reply_bare(&job.op.reply, <uint32_t> length)
        else:
            at = reply_begin(&job.op.reply, <uint32_t> length)
        if at == NULL:
            raise MemoryError(f"no memory for a response of {length} bytes")
        memcpy(at, <const uint8_t*> <const char*> body, length)
        if job.api_version != TOKEN_VERSION:
            reply_end(&job.op.reply, <uint32_t> length)
        self.handled()
        job.op.times.ready = monotonic_ns()
        self.job = NULL
        job_finish(job, H_DONE)

    def respond_when(
        self, log: Log, offset: int, body: bytes, failed: bytes, timeout_ms: int = 0
    ) -> None:
        """Answer with `body` once the log's high watermark is at `offset` or above, and with
        `failed` when the log goes offline or is closed before, or when timeout_ms are over (0:
        never). Where that is settled already the answer leaves at once; the connection is read on
        meanwhile."""
        self.respond_when_all([(log, offset)], body, failed, timeout_ms)

    def respond_when_all(
        self, places: list[tuple[Log, int]], body: bytes, failed: bytes, timeout_ms: int = 0
    ) -> None:
        """The same for several logs at once: those of one directory's journal are durable in the
        order of their appends, those of two are not."""
        cdef Job* job = self.job
        cdef size_t length = len(body)
        cdef size_t failed_length = len(failed)
        cdef Place[WAITED_FOR_MAX] waited
        cdef uint32_t count = 0
        if job == NULL:
            raise RuntimeError("this request was answered before")
        if length + failed_length > RESPONSE_BYTES_MAX:
            raise ValueError(f"responses of {length} and {failed_length} bytes")
        if len(places) > WAITED_FOR_MAX:
            raise ValueError(f"an answer that waits for {len(places)} logs")
        for log, offset in places:
            waited[count].log = (<Log?> log).core
            waited[count].offset = offset
            count += 1
        self.handled()
        if job_finish_when(
            job, waited, count, <const uint8_t*> <const char*> body, <uint32_t> length,
            <const uint8_t*> <const char*> failed, <uint32_t> failed_length,
            timeout_ms,
        ) < 0:
            raise MemoryError(f"no memory for responses of {length + failed_length} bytes")
        self.job = NULL

    def remember(self, state: bytes, tokens: bool = False) -> None:
        """Before the answer: have the connection keep this for the next SaslHandshake or
        SaslAuthenticate. `tokens`: its frames are bare tokens from here on, which come as
        SaslAuthenticate of version -1 and are answered without a header."""
        cdef Job* job = self.sets_of()
        cdef size_t length = len(state)
        cdef uint8_t* copy = <uint8_t*> malloc(max(length, 1))
        if copy == NULL:
            raise MemoryError("no memory for the state of an authentication")
        memcpy(copy, <const uint8_t*> <const char*> state, length)
        free(job.state)
        job.state = copy
        job.state_bytes = <uint32_t> length
        job.sets |= SETS_STATE
        if tokens:
            job.sets |= SETS_TOKENS

    def identify(self, principal: int, session_ms: int = 0) -> None:
        """Before the answer: whose connection this is from the next frame on, and for how long;
        0: for as long as it lasts."""
        cdef Job* job = self.sets_of()
        principal_hold(job.net, principal)
        principal_drop(job.net, job.principal)
        job.principal = principal
        job.session_ms = session_ms
        job.sets |= SETS_PRINCIPAL

    def refuse(self, body: bytes | None, delay_ms: int = 0) -> None:
        """Answer, where there is something to say, then close the connection, both after so long;
        nothing of it is read meanwhile."""
        cdef Job* job = self.sets_of()
        cdef int64_t milliseconds = delay_ms
        job.refused_ms = milliseconds
        job.sets |= SETS_REFUSED
        if body is not None:
            self.respond(body)
            return
        self.handled()
        job.op.times.ready = monotonic_ns()
        self.job = NULL
        job_finish(job, H_NONE)

    def respond_nothing(self) -> None:
        """Nothing is to be sent: what was set of the connection holds, and it is read on."""
        cdef Job* job = self.sets_of()
        self.handled()
        job.op.times.ready = monotonic_ns()
        self.job = NULL
        job_finish(job, H_NONE)

    cdef Job* sets_of(self) except NULL:
        if self.job == NULL:
            raise RuntimeError("this request was answered before")
        return self.job

    def throttle(self, least_ms: int) -> int:
        """Before the answer: what it tells that its client has to wait, in ms. The control thread's
        time counts for the client's quota; `least_ms` is what another quota asks for. The
        connection is not read for so long."""
        cdef Job* job = self.job
        cdef int64_t wait_ms = least_ms
        cdef int64_t now_ns
        if job == NULL:
            return 0
        if job.quota != NULL:
            now_ns = monotonic_ns()
            wait_ms = max(wait_ms, quota_take_ns(
                job.net, <Hold*> job.quota,
                (job.op.times.done if job.op.times.done else now_ns) - job.op.times.begun,
                now_ns // 1000000))
        job.throttle_ms = wait_ms
        return wait_ms

    def handled(self, used_ns: int = -1) -> None:
        """Note that the handler has ended: what follows until the answer is its remote time. An
        operation has used `used_ns` of the control thread, with other work in between."""
        cdef Job* job = self.job
        cdef int64_t used = used_ns
        if job != NULL and job.op.times.done == 0:
            job.op.times.done = monotonic_ns() if used < 0 else job.op.times.begun + used

    def transaction(self) -> tuple:
        """What a Produce would begin a transaction on: (transactional id, producer id, epoch,
        [(topic, partition)]). Once, before `proceed`."""
        cdef Job* job = self.job
        if job == NULL or job.frame == NULL or job.verdicts != NULL:
            raise RuntimeError("no Produce that waits for its verdicts")
        self.places = []
        found = verification_begin(broker_of(job.net), job, self.places)
        self.opened = found[3]
        return found

    def proceed(self, errors: dict) -> None:
        """Have a Produce appended but for the partitions that have an error here, by (topic,
        partition), which are answered with it."""
        cdef Job* job = self.job
        if job == NULL or self.places is None:
            raise RuntimeError("no Produce that waits for its verdicts")
        for place, opened in zip(self.places, self.opened):
            job.verdicts[<int> place].error = errors.get(opened, 0)
        self.go_on()

    def asked(self, version: int) -> list:
        """The rights that the data plane must know of first, before this request and others of the
        connection: (number of enum Right, name). Mostly none. `version` is that of the ACLs now:
        what was known by an older one is asked again."""
        cdef Rights* rights
        cdef RightEntry* entry
        cdef uint32_t slot
        if self.job == NULL or self.job.asked == NULL:
            return []
        rights = <Rights*> self.job.asked
        found = []
        for slot in range(rights.mask + 1):
            entry = &rights.entries[slot]
            if rights.version != version:
                entry.ruling = RULING_UNKNOWN
            if entry.length >= 0 and entry.ruling == RULING_UNKNOWN:
                name = (<const char*> &rights.names[entry.at])[:entry.length]
                found.append((entry.right, name.decode("utf-8", "replace")))
        return found

    def settle(self, allowed: list, version: int) -> None:
        """Whether each of `asked` may be, in that order, by the ACLs of that version. The network
        thread goes by it when the request is home."""
        cdef Job* job = self.sets_of()
        cdef Rights* rights = <Rights*> job.asked
        cdef RightEntry* entry
        cdef uint32_t slot
        if rights == NULL:
            raise RuntimeError("no rights were asked for")
        rulings = iter(allowed)
        for slot in range(rights.mask + 1):
            entry = &rights.entries[slot]
            if entry.length >= 0 and entry.ruling == RULING_UNKNOWN:
                entry.ruling = RULING_ALLOWED if next(rulings) else RULING_DENIED
        rights.version = version
        rights_unref(<Rights*> job.auth)
        job.auth = rights
        job.asked = NULL
        job.settled = True

    def go_on(self) -> None:
        """Have the data plane go on with what it has left: a Fetch where it waits, others in the
        I/O pool."""
        cdef Job* job = self.sets_of()
        if not goes_to_the_pool(job):
            self.handled()                  # what follows is the wait of a long poll
            self.job = NULL
            job_finish(job, H_PENDING)
            return
        self.job = NULL
        if not queue_pass_on(&job.net.io, job):
            job.reason = "the broker stops"
            job_finish(job, H_CLOSE)

    @property
    def gone(self) -> bool:
        """Whether the connection has closed, so that no answer can leave."""
        cdef Job* job = self.job
        return job != NULL and atomic_load_ptr(<void**> &job.op.connection) == NULL

    def close(self) -> None:
        """Close the connection instead of answering; after an answer this does nothing."""
        cdef Job* job = self.job
        if job == NULL:
            return
        self.job = NULL
        job.reason = "by the control plane"
        job_finish(job, H_CLOSE)

    def __dealloc__(self) -> None:
        if self.job != NULL:
            self.job.reason = "a request was dropped without an answer"
            job_finish(self.job, H_CLOSE)

    def __repr__(self) -> str:
        return (
            f"<Request {self.api_key} v{self.api_version} correlation {self.correlation_id}"
            f" of {self.peer[0]}:{self.peer[1]}>"
        )


cdef tuple software_of(const Software* software):
    """Name and version."""
    cdef const char* text
    if software == NULL:
        return "", ""
    text = software_text(software)
    name = text[:software.name_length]
    version = text[software.name_length:software.name_length + software.version_length]
    return name.decode("ascii"), version.decode("ascii")


cdef Request request_from_job(Job* job, object owner):
    cdef Request request = Request.__new__(Request)
    cdef const char* frame = <const char*> job.frame
    job.op.times.begun = monotonic_ns()
    request.job = job
    request.owner = owner
    request.api_key = job.api_key
    request.api_version = job.api_version
    request.correlation_id = job.correlation_id
    request.connection_id = job.connection_id
    request.received_ns = job.received_ns
    request.principal = job.principal
    request.open = job.stage == STAGE_OPEN
    request.state = b"" if job.state == NULL else (<const char*> job.state)[:job.state_bytes]
    request.software = software_of(job.software)
    request.peer = ((<bytes> job.peer).decode("ascii"), job.peer_port)
    request.listener = (<bytes> job.net.listeners[job.listener].name).decode("utf-8")
    request.body = b"" if goes_to_the_pool(job) else frame[job.body:job.length]
    if job.client_id >= 0:
        client_id = frame[job.client_id:job.client_id + job.client_id_length]
        request.client_id = client_id.decode("utf-8", "replace")
    if not goes_to_the_pool(job):
        job_free_frame(job)
    return request
