"""Functions that lock, unlock or wait for their caller, each with the reason.

Every other function of `ext` leaves no mutex locked, however it ends.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contract:
    """Mutexes that are locked when a function is called and when it returns.

    A mutex is named by way of the function's parameters (`log.lock`), or is a global variable.
    `result` is "true" or "zero" where only that result leaves the mutexes locked.
    """

    reason: str
    entered: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    result: str = ""


def locks(reason: str, mutex: str, result: str = "") -> Contract:
    return Contract(reason, left=(mutex,), result=result)


def unlocks(reason: str, mutex: str) -> Contract:
    return Contract(reason, entered=(mutex,))


def keeps(reason: str, mutex: str) -> Contract:
    """The function unlocks the mutex for a time, and has locked it again when it returns."""
    return Contract(reason, entered=(mutex,), left=(mutex,))


NO_CONTRACT = Contract("leaves no mutex locked")

POSIX = "a function of POSIX threads"
ONE_WAIT = "one wait of a loop in its caller"
BOUNDED = "locks the log unless another thread is in the disk with it"
ONE_AT_A_TIME = "lets one thread at a time unpack more than 16 MiB"
TEST = "a test locks and unlocks it"

CONTRACTS = {
    "pthread_mutex_lock": locks(POSIX, "mutex"),
    "pthread_mutex_trylock": locks(POSIX, "mutex", "zero"),
    "pthread_mutex_timedlock": locks(POSIX, "mutex", "zero"),
    "pthread_mutex_unlock": unlocks(POSIX, "mutex"),
    "pthread_cond_wait": keeps(POSIX, "mutex"),
    "pthread_cond_timedwait": keeps(POSIX, "mutex"),
    "log_state.log_lock_soon": locks(BOUNDED, "log.lock", "true"),
    "log_read.enter": locks(BOUNDED, "log.lock", "true"),
    "batch_build.large_batch_begin": locks(ONE_AT_A_TIME, "large_batch"),
    "batch_build.large_batch_end": unlocks(ONE_AT_A_TIME, "large_batch"),
    "appending.wait_until": keeps(ONE_WAIT, "appender.lock"),
    "client_request.wait_a_while": keeps(ONE_WAIT, "lock"),
    "client_flag.Waiting.wait_once": keeps(ONE_WAIT, "self.lock"),
    "journal.wait_until": keeps(ONE_WAIT, "journal.lock"),
    "journal.sleep_until_due": keeps("waits for the next commit group", "journal.lock"),
    "journal_files.wait_for_work": keeps(ONE_WAIT, "journal.lock"),
    "journal_files.grow": keeps("creates a file without the lock", "journal.lock"),
    "journal_files.drop_spares": keeps("unlinks files without the lock", "journal.lock"),
    "queue.sleep_until_filled": keeps(ONE_WAIT, "queue.lock"),
    "listener.acceptor_errand": keeps("waits for the acceptor thread", "net.threads_lock"),
    "runners.take_back": keeps("waits for the network thread", "net.hang_lock"),
    "testing.Mutex.lock": locks(TEST, "self.mutex"),
    "testing.Mutex.try_lock": locks(TEST, "self.mutex", "true"),
    "testing.Mutex.unlock": unlocks(TEST, "self.mutex"),
    "client_heartbeat.send": keeps("sends without the lock", "h.lock"),
    "client_memory.wait_locked": keeps("waits for memory", "pool.lock"),
    "client_memory.interrupted_locked": keeps("takes the GIL without the lock", "pool.lock"),
}
