"""The Python face of the data plane: made by the broker's wiring, used by its control thread."""
import os
import socket
from collections.abc import Sequence

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from kbroker.ext.accept_limits cimport limits_of_broker, limits_of_listener
from kbroker.ext.addresses cimport ADDRESS_BYTES, addresses_limit
from kbroker.ext.api_versions cimport api_versions_put, api_versions_reclaim
from kbroker.ext.atomics cimport atomic_exchange_ptr, atomic_load_i64, atomic_store_i64
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport API_KEYS_MAX, Job, LogLine, NET_THREADS_MAX
from kbroker.ext.control cimport Request, request_from_job
from kbroker.ext.counters cimport histogram_told, net_slow, net_stats, net_times
from kbroker.ext.listener cimport acceptor_limit, acceptor_stop
from kbroker.ext.log_ring cimport log_ring_peek, log_ring_pop
from kbroker.ext.net_settings cimport NetSettings
from kbroker.ext.network cimport net_synchronize
from kbroker.ext.principal_uses cimport principal_is_idle
from kbroker.ext.quota_bucket cimport QuotaKey
from kbroker.ext.quotas cimport (
    CLIENT_ABSENT, CLIENT_DEFAULT, CLIENT_NAMED, QUOTA_CLIENT_KINDS, QUOTA_CONNECT, QUOTA_KINDS,
    Quotas, quota_address, quota_forget, quota_key, quota_rule,
)
from kbroker.ext.queue cimport queue_pop, queue_wake
from kbroker.ext.server cimport net_create, net_destroy, net_listen, net_resize, net_start, net_stop
from kbroker.ext.sockets cimport thread_name
from kbroker.ext.times cimport histogram_add
from kbroker.ext.tls_context cimport TlsContext
from kbroker.ports import bound

cdef extern from *:
    """
    #include <malloc.h>
    // glibc raises both by itself, to 32 and 64 MiB an arena, once large memory was freed: what a
    // few large requests took would then stay with the threads that read them.
    static void heap_gives_back(void) {
    #ifdef __GLIBC__
        mallopt(M_MMAP_THRESHOLD, 1 << 20);
        mallopt(M_TRIM_THRESHOLD, 4 << 20);
    #endif
    }
    """
    void heap_gives_back() noexcept nogil

# Keys that the engine understands, with the value used where none is given: Apache Kafka's names
# and defaults, then kbroker's own. Bytes, milliseconds, counts; -1 leaves the choice to the system.
DEFAULTS = {
    "num.network.threads": 3,
    "num.io.threads": 8,
    "queued.max.requests": 500,             # to the I/O pool
    "queued.max.request.bytes": -1,
    "socket.request.max.bytes": 104857600,
    "socket.send.buffer.bytes": 102400,
    "socket.receive.buffer.bytes": 102400,
    "socket.listen.backlog.size": 50,
    "max.connections": 2147483647,
    "max.connections.per.ip": 2147483647,
    "connections.max.idle.ms": 600000,
    "quota.window.num": 11,
    "quota.window.size.seconds": 1,
    "sasl.server.max.receive.size": 524288,
    "kbroker.handshake.timeout.ms": 30000,
    "kbroker.control.queue.requests.max": 1000,
    "kbroker.network.read.bytes": 262144,
    "kbroker.request.buffer.cache.bytes": 67108864,
    "kbroker.connection.requests.max": 1000,
    "kbroker.connection.unsent.bytes.max": 4194304,
}
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")    # as enum Security
# A full backlog drops SYNs, and each drop costs its client a second; Kafka's default of 50 is full
# when a few hundred clients come back at once.
BACKLOG_MIN = 1024
FRAME_BYTES_MAX = 256 * 1024 * 1024 - 4     # the largest request buffer, see memory.pxd


def name_thread(name: str) -> None:
    """Name the calling thread, in at most 15 ASCII characters, for `top -H`."""
    thread_name(name.encode("ascii"))


def prepare(listening: socket.socket, settings: dict[str, int]) -> None:
    """Have a bound socket listen, with what accepted ones inherit."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for key, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        if settings[key] >= 0:
            listening.setsockopt(socket.SOL_SOCKET, option, settings[key])
    listening.setblocking(False)
    listening.listen(max(settings["socket.listen.backlog.size"], BACKLOG_MIN))


def checked_settings(given: dict[str, int]) -> dict[str, int]:
    """Defaults filled in; a key or a value that makes no sense is an error."""
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise ValueError(f"unknown engine settings: {', '.join(unknown)}")
    settings = DEFAULTS | given
    for key, least, most in (
        ("num.network.threads", 1, NET_THREADS_MAX),
        ("num.io.threads", 1, NET_THREADS_MAX),
        ("queued.max.requests", 1, 1 << 31),
        ("kbroker.control.queue.requests.max", 1, 1 << 31),
        ("socket.request.max.bytes", 1024, FRAME_BYTES_MAX),
        ("quota.window.num", 1, 1 << 31),
        ("quota.window.size.seconds", 1, 1 << 31),
        ("kbroker.network.read.bytes", 4096, 1 << 30),
        ("sasl.server.max.receive.size", 1, FRAME_BYTES_MAX),
        ("kbroker.handshake.timeout.ms", 1, 1 << 40),
        ("kbroker.connection.requests.max", 1, 1 << 30),
        ("kbroker.connection.unsent.bytes.max", 1, 1 << 40),
    ):
        if not least <= settings[key] <= most:
            raise ValueError(f"{key}={settings[key]} is not within {least}..{most}")
    return settings


cdef int fill_settings(NetSettings* out, dict settings) except -1:
    out.network_threads = settings["num.network.threads"]
    out.io_threads = settings["num.io.threads"]
    out.queued_requests_max = settings["queued.max.requests"]
    out.control_requests_max = settings["kbroker.control.queue.requests.max"]
    out.queued_request_bytes_max = settings["queued.max.request.bytes"]
    out.buffer_cache_bytes_max = settings["kbroker.request.buffer.cache.bytes"]
    out.request_bytes_max = settings["socket.request.max.bytes"]
    out.connections_max = settings["max.connections"]
    out.connections_per_ip_max = settings["max.connections.per.ip"]
    out.idle_ms_max = settings["connections.max.idle.ms"]
    out.handshake_ms_max = settings["kbroker.handshake.timeout.ms"]
    out.sasl_bytes_max = settings["sasl.server.max.receive.size"]
    out.in_flight_max = settings["kbroker.connection.requests.max"]
    out.unsent_bytes_max = settings["kbroker.connection.unsent.bytes.max"]
    out.quota_samples = settings["quota.window.num"]
    out.quota_window_s = settings["quota.window.size.seconds"]
    out.read_bytes = settings["kbroker.network.read.bytes"]
    return 0


cdef class Engine:
    """Listeners, network threads, I/O pool and the control lane."""

    def __cinit__(self, settings: dict[str, int]) -> None:
        cdef NetSettings values
        self.settings = checked_settings(settings)
        self.contexts = {}
        self.retired = []
        fill_settings(&values, self.settings)
        self.net = net_create(&values)
        if self.net == NULL:
            raise MemoryError("no memory for the engine")

    def __dealloc__(self) -> None:
        if self.net == NULL:
            return
        with nogil:
            net_stop(self.net, 0)
            net_destroy(self.net)

    def listen(self, host: str, port: int, listener_name: str, security: int = 0) -> int:
        """Bind a listener before start(); the port, which the kernel picks for 0. `security` is
        what it speaks, by its place in SECURITY_PROTOCOLS."""
        if self.started:
            raise RuntimeError("the engine has been started")
        return self.adopt(bound(host, port).detach(), listener_name, security)

    def adopt(self, fd: int, listener_name: str, security: int = 0) -> int:
        """Before start(): a bound TCP socket of somebody else's making as a listener; its port.
        The descriptor is the engine's from here on."""
        if self.started:
            raise RuntimeError("the engine has been started")
        listening = socket.socket(fileno=fd)
        prepare(listening, self.settings)
        cdef int port = listening.getsockname()[1]
        name = listener_name.encode("utf-8")
        if net_listen(self.net, listening.fileno(), port, name, security) < 0:
            listening.close()
            raise ValueError("too many listeners")
        listening.detach()
        return port

    def set_tls(self, listener_name: str, context: TlsContext) -> None:
        """What a TLS listener shows and trusts, from its next handshake on. Before it accepts, and
        again at any time; by one thread at a time."""
        cdef TlsContext given = context
        cdef void** at
        cdef int index
        cdef bint all_left
        name = listener_name.encode("utf-8")
        for index in range(self.net.listeners_count):
            if <bytes> self.net.listeners[index].name == name:
                break
        else:
            raise ValueError(f"there is no listener {listener_name}")
        at = &self.net.listeners[index].tls
        atomic_exchange_ptr(at, given.context)
        self.retired.append(self.contexts.get(index))
        self.contexts[index] = given
        with nogil:
            all_left = net_synchronize(self.net)
        if all_left:                # nobody is about to use those before
            self.retired.clear()

    def limit_connections(self, most: int, per_ip: int, overrides: list[tuple[bytes, int]]) -> None:
        """From now on: the most open connections, of one address, and of single addresses, which
        are given as the 16 bytes of IPv6 or IPv4-mapped IPv6. Above the first, those that were
        quiet for longest are closed; above the limit of an address what is open stays open."""
        cdef int count = <int> len(overrides)
        cdef const uint8_t* addresses = NULL
        cdef int64_t* limits = <int64_t*> calloc(max(count, 1), sizeof(int64_t))
        if limits == NULL:
            raise MemoryError("no memory for limits of connections")
        joined = b"".join(address for address, _ in overrides)
        if len(joined) != count * ADDRESS_BYTES:
            free(limits)
            raise ValueError("an address has 16 bytes")
        addresses = <const uint8_t*> <const char*> joined
        for index, (_, limit) in enumerate(overrides):
            limits[index] = limit
        done = addresses_limit(self.net, per_ip, addresses, limits, count)
        free(limits)
        acceptor_limit(self.net, most)
        if not done:
            raise MemoryError("no memory for limits of connections")

    def limit_listeners(
        self, rate: float, exempt: str, limits: dict[str, tuple[int, float]]
    ) -> None:
        """From now on: new connections of all listeners a second, the listener (of brokers among
        themselves) for which that and the most of the broker do not hold where it is not the only
        one, and for single listeners most connections and new ones a second."""
        cdef int32_t index
        cdef int32_t exempted = -1
        for index in range(self.net.listeners_count):
            name = (<bytes> self.net.listeners[index].name).decode()
            if name == exempt and self.net.listeners_count > 1:
                exempted = index
            if name in limits:
                most, own_rate = limits[name]
                limits_of_listener(self.net, index, most, own_rate)
        limits_of_broker(self.net, exempted, rate)
        acceptor_limit(self.net, atomic_load_i64(&self.net.settings.connections_max))

    def set_quota(
        self, kind: int, user: int, client_id: bytes | None, limit: float | None
    ) -> None:
        """The limit of a user and client id (see set_quotas of DataPlane); None: no limit."""
        cdef QuotaKey key
        cdef int client = CLIENT_DEFAULT
        cdef const uint8_t* name = NULL
        cdef int64_t length = 0
        if not 0 <= kind < QUOTA_CLIENT_KINDS:
            raise ValueError(f"quota of kind {kind}")
        if client_id is not None:
            client = CLIENT_NAMED if client_id else CLIENT_ABSENT
            name = <const uint8_t*> <const char*> client_id
            length = len(client_id)
        quota_key(<Quotas*> self.net.quotas, &key, kind, user, client, name, length)
        if quota_rule(self.net, &key, 0 if limit is None else limit, limit is None) < 0:
            raise MemoryError("no memory for a quota")

    def limit_addresses(
        self, others: float | None, rates: Sequence[tuple[bytes, float]]
    ) -> None:
        """New connections a second of single addresses, 16 bytes each, and of each other one."""
        cdef QuotaKey key
        quota_forget(self.net, QUOTA_CONNECT)
        if others is not None:
            quota_address(&key, NULL)
            if quota_rule(self.net, &key, others, False) < 0:
                raise MemoryError("no memory for a quota")
        for address, rate in rates:
            if len(address) != ADDRESS_BYTES:
                raise ValueError("an address has 16 bytes")
            quota_address(&key, <const uint8_t*> <const char*> address)
            if quota_rule(self.net, &key, rate, False) < 0:
                raise MemoryError("no memory for a quota")

    def throttled(self) -> list[tuple[int, int]]:
        """How many answers and connections had to wait for a quota, and how many ms in all: of
        produced bytes, fetched bytes, time, connections."""
        cdef Quotas* quotas = <Quotas*> self.net.quotas
        cdef int index
        return [
            (
                atomic_load_i64(&quotas.throttled[index]),
                atomic_load_i64(&quotas.throttled_ms[index]),
            )
            for index in range(QUOTA_KINDS)
        ]

    def resize(self, network_threads: int, io_threads: int) -> None:
        """Other numbers of threads while it runs, at most NET_THREADS_MAX of each. With fewer
        network threads new connections go to those that are left; none is moved."""
        cdef int64_t network = min(max(network_threads, 1), NET_THREADS_MAX)
        cdef int64_t io = min(max(io_threads, 1), NET_THREADS_MAX)
        cdef int code
        if not self.started or self.stopped:
            self.net.settings.network_threads = network
            self.net.settings.io_threads = io
            return
        with nogil:
            code = net_resize(self.net, network, io)
        if code != 0:
            raise OSError(code, os.strerror(code))

    def start(self) -> None:
        """Start all threads and accept connections."""
        cdef int code
        if self.started:
            raise RuntimeError("the engine has been started")
        heap_gives_back()
        self.started = True
        with nogil:
            code = net_start(self.net)
        if code != 0:
            raise OSError(code, os.strerror(code))

    def stop_accepting(self) -> None:
        """Close the listening sockets; what is connected stays."""
        with nogil:
            acceptor_stop(self.net)

    def stop(self, deadline_ms: int = 5000) -> None:
        """Answer what is in flight, for so long at most, then close everything and end the threads.

        The control thread goes on answering meanwhile; next_request returns None afterwards.
        """
        cdef int64_t milliseconds = deadline_ms
        if self.stopped:
            return
        self.stopped = True
        with nogil:
            net_stop(self.net, milliseconds)

    def set_api_versions(
        self, bodies: dict[int, bytes], keys: list[tuple[int, int, int, int]]
    ) -> None:
        """What ApiVersions answers, by its version, and (key, least version, greatest version,
        first flexible version or -1) of every API that is served."""
        cdef int key
        for key, least, greatest, first_flexible in keys:
            if not 0 <= key < API_KEYS_MAX:
                raise ValueError(f"api key {key}")
            self.net.apis[key].min_version = least
            self.net.apis[key].max_version = greatest
            self.net.apis[key].first_flexible = first_flexible
            self.net.apis[key].known = True
        for version, body in bodies.items():
            if api_versions_put(self.net, version, <const uint8_t*> <const char*> body,
                                <uint32_t> len(body)) < 0:
                raise ValueError(f"version {version} of ApiVersions")
        with nogil:
            if net_synchronize(self.net):       # else with those that are replaced next
                api_versions_reclaim(self.net)

    def next_request(self, timeout_ms: int = -1) -> Request | None:
        """The next request of the control lane; None after timeout_ms, after wake_control, or
        when stopped."""
        cdef int64_t milliseconds = timeout_ms
        cdef int64_t popped_ns
        cdef Job* job
        with nogil:
            job = queue_pop(self.net, &self.net.control, milliseconds)
            popped_ns = monotonic_ns()
        if job == NULL:
            return None
        histogram_add(&self.net.gil, monotonic_ns() - popped_ns, 1)
        return request_from_job(job, self)

    def wake_control(self) -> None:
        """From any thread: one next_request, the one in progress or else the next, does not wait:
        it gives a request that is there, or None."""
        queue_wake(&self.net.control)

    def next_log_lines(self) -> list[tuple[int, str]]:
        """(level as in logging, text) of what the data plane had to say since the last call."""
        cdef LogLine* line
        lines = []
        while True:
            line = log_ring_peek(&self.net.log)
            if line == NULL:
                return lines
            text = <bytes> line.text
            lines.append((line.level, text.decode("utf-8", "replace")))
            log_ring_pop(&self.net.log)

    def principals_idle(self, numbers: list[int]) -> list[int]:
        """Those of them that no connection and no request of the control thread has."""
        return [number for number in numbers if principal_is_idle(self.net, number)]

    def request_times(
        self,
    ) -> dict[int, tuple[dict[int, int], int, int, list[tuple[int, list[int]]]]]:
        """By API key: requests by version, their bytes, how many have no answer yet, and of each
        phase (queue, local, remote, response queue, send, total) the sum in ns and the counts by
        bucket (see times.pxd)."""
        return net_times(self.net)

    def gil_waits(self) -> tuple[int, list[int]]:
        """How long the control thread waited for the GIL with a request in hand: ns, counts."""
        return histogram_told(&self.net.gil)

    def set_slow_ms(self, milliseconds: int) -> None:
        """Requests that take so long or longer are told by next_slow_requests; 0: none."""
        cdef int64_t ns = max(milliseconds, 0) * 1000000
        atomic_store_i64(&self.net.slow_ns, ns)

    def next_slow_requests(
        self,
    ) -> list[tuple[int, int, int, int, tuple[str, int], list[int]]]:
        """(API key, version, correlation id, connection, (address, port) of the client, ns of each
        phase) since the last call, as many as there was room for."""
        return net_slow(self.net)

    def connections(self) -> int:
        """Open connections."""
        return atomic_load_i64(&self.net.connections)

    def stats(self) -> dict[str, int]:
        """Counters since start and sizes of now."""
        return net_stats(self.net)
