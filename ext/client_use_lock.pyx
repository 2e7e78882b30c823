"""UseLock: exclusive use of a consumer by one thread at a time.

Python runs signal handlers when a call has returned, when a function begins and when a loop goes
back. An exception of a handler can therefore split a change that Python code makes in several
steps. Entering and leaving this lock, and setting an attribute of it, are one step each: a
consumer is never left in use by a call that is over.
"""
from posix.unistd cimport getpid

from kbroker.ext.client_fetch_parts cimport FetchParts
from kbroker.ext.greenlets cimport user_ident

FORKED = 1
GIVING = 2
IN_USE = 3
CLOSED = 4


cdef class Change:
    """The lock for a call that changes state in several steps."""
    cdef UseLock lock
    cdef bint before

    def __enter__(self) -> None:
        self.lock.enter()
        self.before = self.lock.changing
        self.lock.changing = True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.lock.changing = self.before
        self.lock.leave(error)


cdef class UseLock:
    """Exclusive use of a consumer; calls of its owner may nest.

    broken: an exception that is none of `planned` has ended a `change`."""

    def __cinit__(self, FetchParts fetcher not None, planned: tuple) -> None:
        self.fetcher = fetcher
        self.planned = planned
        self.pid = getpid()

    def _error(self, why: int) -> Exception:
        """Return the exception for a call that is refused. why: FORKED, GIVING (records are being
        taken), IN_USE by another thread, or CLOSED."""
        return RuntimeError(f"the consumer cannot be used: {why}")

    @property
    def forked(self) -> bool:
        """True in a child of the process that made it."""
        return self.pid != getpid()

    cdef int enter(self) except -1:
        cdef size_t me = user_ident()
        if self.pid != getpid():
            raise self._error(FORKED)
        if self.fetcher.busy:
            raise self._error(GIVING)
        if self.depth > 0 and self.owner != me:
            raise self._error(IN_USE)
        if self.closed:
            raise self._error(CLOSED)
        self.owner = me
        self.depth += 1
        return 0

    cdef int leave(self, object error) except -1:
        self.depth -= 1
        if self.depth > 0:
            return 0
        self.owner = 0
        if error is not None and self.changing and not isinstance(error, self.planned):
            self.broken = True
        self.changing = False
        return 0

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave(error)

    def change(self) -> Change:
        """Return a context manager that enters the lock for a change in several steps."""
        cdef Change change = Change.__new__(Change)
        change.lock = self
        return change

    @property
    def in_use(self) -> bool:
        """True if the calling thread uses the consumer. Setting it to True enters the lock, for a
        call that ends by setting `returned` or `failed`."""
        return self.depth > 0 and self.owner == user_ident()

    @in_use.setter
    def in_use(self, in_use: bool) -> None:
        if not in_use:
            raise ValueError("in_use ends by setting `returned` or `failed`")
        self.enter()
        self.fetcher.fetch.calls += 1

    @property
    def returned(self) -> bool:
        """Set it to True to leave the lock and return what was taken: see Fetcher.returned."""
        return self.fetcher.returned

    @returned.setter
    def returned(self, returned: bool) -> None:
        self.fetcher.returned = returned
        self.leave(None)

    @property
    def failed(self) -> BaseException | None:
        """Set it to the exception that ends a call, to leave the lock."""
        return None

    @failed.setter
    def failed(self, error: BaseException) -> None:
        self.leave(error)

    def lend(self) -> int:
        """Let the calling thread use the consumer while its owner waits. Returns the owner, for
        `give_back`."""
        owner = self.owner
        self.owner = user_ident()
        return owner

    def give_back(self, owner: int) -> None:
        """End `lend`."""
        self.owner = owner
