"""What only tests call: never shipped, compiled with KBROKER_TEST=1.

`hold_gil` is the proof of the data plane: while it runs, no Python code of the process does.
The rest is the `def` face of headers that have no module of their own.
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from posix.signal cimport sigaddset, sigemptyset, siginfo_t, sigset_t
from posix.time cimport timespec

from kbroker.ext.appending cimport set_append_grace_ns
from kbroker.ext.atomics cimport (
    atomic_add_i64,
    atomic_cas_i64,
    atomic_exchange_i64,
    atomic_load_i64,
    atomic_store_i64,
)
from kbroker.ext.byte_table cimport siphash as siphash_of
from kbroker.ext.endian cimport (
    load_be16,
    load_be32,
    load_be64,
    load_i16,
    load_i32,
    load_i64,
    load_le16,
    load_le32,
    load_le64,
    store_be16,
    store_be32,
    store_be64,
    store_le16,
    store_le32,
    store_le64,
)
from kbroker.ext.memory cimport (
    Pool, buffer_alloc, buffer_free, pool_destroy, pool_give_strange, pool_init, pool_release,
    pool_reserve, pool_take_strange,
)
from kbroker.ext.posix cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_t,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
)


cdef extern from "<signal.h>":
    int sigtimedwait(const sigset_t* wanted, siginfo_t* info, const timespec* timeout)


def hold_gil(number: int, milliseconds: int) -> bool:
    """Wait for a signal that every thread blocks, so long at most, without giving the GIL back;
    whether it came."""
    cdef sigset_t wanted
    cdef timespec limit
    sigemptyset(&wanted)
    sigaddset(&wanted, number)
    limit.tv_sec = milliseconds // 1000
    limit.tv_nsec = milliseconds % 1000 * 1_000_000
    return sigtimedwait(&wanted, NULL, &limit) == number


def set_append_grace_s(seconds: float) -> float:
    """Set how long the control plane waits for an append before it goes on without it; return the
    time before. A simulated coordinator then does not depend on how busy the machine is."""
    return set_append_grace_ns(<int64_t> (seconds * 1e9)) / 1e9


def endian_round_trip(value: int, shift: int) -> dict[str, tuple[int, bytes]]:
    """Store and load a value in every width and order, `shift` bytes off alignment."""
    cdef uint8_t buffer[16]
    cdef uint8_t* at = &buffer[<int> shift]
    cdef uint64_t bits = value
    found = {}
    store_be16(at, <uint16_t> bits)
    found["be16"] = load_be16(at), at[:2]
    found["i16"] = load_i16(at), at[:2]
    store_be32(at, <uint32_t> bits)
    found["be32"] = load_be32(at), at[:4]
    found["i32"] = load_i32(at), at[:4]
    store_be64(at, bits)
    found["be64"] = load_be64(at), at[:8]
    found["i64"] = load_i64(at), at[:8]
    store_le16(at, <uint16_t> bits)
    found["le16"] = load_le16(at), at[:2]
    store_le32(at, <uint32_t> bits)
    found["le32"] = load_le32(at), at[:4]
    store_le64(at, bits)
    found["le64"] = load_le64(at), at[:8]
    return found


cdef class AtomicNumber:
    """An int64 that threads share."""
    cdef int64_t number

    def load(self) -> int:
        """The number."""
        return atomic_load_i64(&self.number)

    def store(self, value: int) -> None:
        """Set the number."""
        atomic_store_i64(&self.number, value)

    def exchange(self, value: int) -> int:
        """Set the number; the one before."""
        return atomic_exchange_i64(&self.number, value)

    def cas(self, expected: int, desired: int) -> tuple[bool, int]:
        """Set the number if it is `expected`: whether it was, and what was found."""
        cdef int64_t found = expected
        swapped = atomic_cas_i64(&self.number, &found, desired)
        return bool(swapped), found

    def add_times(self, delta: int, times: int) -> None:
        """Add without the GIL, so that threads really meet."""
        cdef int64_t step = delta, left = times
        with nogil:
            while left > 0:
                atomic_add_i64(&self.number, step)
                left -= 1


cdef class Mutex:
    """A mutex of the data plane's kind."""
    cdef pthread_mutex_t mutex

    def __cinit__(self) -> None:
        pthread_mutex_init(&self.mutex, NULL)

    def __dealloc__(self) -> None:
        pthread_mutex_destroy(&self.mutex)

    def lock(self) -> None:
        """Wait for the mutex without the GIL, and lock it."""
        with nogil:
            pthread_mutex_lock(&self.mutex)

    def try_lock(self) -> bool:
        """Lock the mutex and return True, or return False if it is locked."""
        return pthread_mutex_trylock(&self.mutex) == 0

    def unlock(self) -> None:
        """Unlock the mutex."""
        pthread_mutex_unlock(&self.mutex)


cdef class RequestMemory:
    """A pool with numbered buffers."""
    cdef Pool pool
    cdef dict buffers

    def __cinit__(self, bytes_max: int, cache_bytes_max: int) -> None:
        pool_init(&self.pool, bytes_max, cache_bytes_max)
        self.buffers = {}

    def __dealloc__(self) -> None:
        for address, capacity in self.buffers.items():
            buffer_free(&self.pool, <uint8_t*> <size_t> address, capacity)
        pool_destroy(&self.pool)

    def reserve(self, size: int) -> bool:
        """Whether the bytes were granted."""
        return bool(pool_reserve(&self.pool, size))

    def release(self, size: int) -> None:
        """Give a reservation back."""
        pool_release(&self.pool, size)

    def alloc(self, size: int) -> tuple[int, int]:
        """(address, capacity) of a new buffer, whose last byte can be written."""
        cdef uint64_t capacity = 0
        cdef uint8_t* buffer = buffer_alloc(&self.pool, size, &capacity)
        if buffer == NULL:
            raise MemoryError(f"{size} bytes")
        buffer[capacity - 1] = 1
        self.buffers[<size_t> buffer] = capacity
        return <size_t> buffer, capacity

    def give_back(self, address: int) -> None:
        """Free a buffer."""
        buffer_free(&self.pool, <uint8_t*> <size_t> address, self.buffers.pop(address))

    def cached_bytes(self) -> int:
        """Bytes on the free lists."""
        return self.pool.cached_bytes

    def take_strange(self, size: int) -> int:
        """What was counted of what strangers may hold; -1: they hold too much."""
        return pool_take_strange(&self.pool, size)

    def give_strange(self, counted: int) -> None:
        """Give it back."""
        pool_give_strange(&self.pool, counted)


def siphash(key0: int, key1: int, data: bytes) -> int:
    """SipHash-1-3 as the tables of client strings use it."""
    return siphash_of(key0, key1, <const uint8_t*> <const char*> data, len(data))
