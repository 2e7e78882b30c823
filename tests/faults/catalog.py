"""The one list: promises, faults, how each is made, and the tests that try it.

`short` is the number of tries in `make test`, 0 where that takes too long, `full` the number with
FULL=1; `make test-long` has what lies between (tests/support/rounds.py). `python -m tests.faults`
prints how many there were. A control is counted by what it lost.
"""

from __future__ import annotations

from dataclasses import dataclass

PROMISES = {
    "P1": "what acks=all acknowledged survives a power cut",
    "P2": "what acks=1 or acks=all acknowledged survives kill -9",
    "P3": "an idempotent producer's records come once and in order, across restarts",
    "P4": "a transaction is seen whole or not at all, and as its producer was told",
    "P5": "no request that comes late tears one, or leaves one open",
    "P6": "a torn end is recovered exactly",
    "P7": "rot is found, never served as right, and costs no more than it hit",
    "P8": "after a failed sync nothing more is acknowledged, and nothing tried again",
    "P9": "a full disk is told, and taken back into use when there is room",
    "P10": "compaction keeps the last value of each key, whenever it is killed",
    "P11": "no bytes make the broker take memory without bound, or fail",
    "P12": "nor does what they unpack to",
    "P13": "nobody gets in, or further, without the right; guessing is slow",
    "P14": "no commit is taken back, nobody passed over, zombies are fenced",
    "P15": "a wall clock that jumps harms nothing",
}

#: Come with the issues that bring what they are about.
LATER = {"F30": "a virtual machine with its own kernel; F2, F3 and F4 do what it would"}


@dataclass(frozen=True)
class Fault:
    """One line of the table. `tests` are node ids of pytest, or the beginnings of such."""

    number: str
    what: str
    how: str
    promises: tuple[str, ...]
    control: str
    short: int
    full: int
    tests: tuple[str, ...]


def _here(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/faults/{name}" for name in names)


FAULTS = (
    Fault(
        "F1", "kill -9 under load", "SIGKILL under four producers and two groups",
        ("P2", "P3", "P14"), "acks=0; no idempotence", 8, 200,
        _here("test_kill.py::test_kill_under_load",
              "test_kill.py::test_control_what_nobody_acknowledged_is_lost",
              "test_kill.py::test_control_without_idempotence_records_come_twice"),
    ),
    Fault(
        "F2", "power cut under load", "ext4 on a loop device with a write cache, EXT4 shutdown",
        ("P1", "P14"), "no sync: page-cache", 6, 500,
        _here("test_power.py", "test_commits.py"),
    ),
    Fault(
        "F3", "writes lost, torn, reordered", "recorded calls, each unsynced one dropped or torn",
        ("P1", "P6"), "syncs forgotten", 200, 20_000, _here("test_crash_states.py"),
    ),
    Fault(
        "F4", "power cut between any two calls", "recorded calls: every prefix, names before data",
        ("P1", "P6"), "syncs forgotten", 200, 20_000, _here("test_crash_states.py"),
    ),
    Fault(
        "F5", "a disk that fails at random", "seeded failures of each call, in one process",
        ("P8",), "appends taken for acknowledged", 150, 5_000,
        (*_here("test_failing_calls.py::test_a_disk_that_fails_at_random"),
         "tests/unit/test_log_disk.py::TestFailing::test_the_nth_call_fails_for_every_n"),
    ),
    Fault(
        "F6", "EIO, ENOSPC, EDQUOT at work", "calls of a live broker fail, a write half done",
        ("P8", "P9"), "errors taken for answers", 6, 1_200,
        _here("test_failing_calls.py::test_a_call_fails_under_a_broker_at_work",
              "test_failing_calls.py::test_control_whoever_counts_what_was_refused_misses_it",
              "test_disk.py::test_failed_sync_is_final"),
    ),
    Fault(
        "F7", "a full disk", "a small ext4, filled, under records, markers, commits, compaction",
        ("P9",), "the last batches cut off", 7, 72,
        _here("test_disk.py::test_full_disk", "test_full_disk_inside.py", "test_disk_limits.py",
              "test_denied_creation.py"),
    ),
    Fault(
        "F8", "a sync that fails once", "a sparse image on a full file system", ("P8",),
        "no sync: page-cache", 1, 20, _here("test_bad_disk.py::test_a_sync_that_fails_once",
                                            "test_bad_disk.py::test_control_who_does_not_sync",
                                            "test_lost_writeback.py"),
    ),
    Fault(
        "F9", "reads that fail", "EIO of a live broker; a log cut short; any read of a start",
        ("P1", "P7"), "a sendfile that lies; a start without the WAL", 59, 170,
        _here("test_bad_disk.py::test_reads_that_fail", "test_answers_given_up.py",
              "test_bad_disk.py::test_control_a_read_that_lies", "test_wal_unreadable.py",
              "test_failing_starts.py"),
    ),
    Fault(
        "F10", "a disk that hangs", "fsfreeze under load, of the only disk and of one of two",
        ("P1",), "the last batches cut off", 4, 28,
        _here("test_bad_disk.py::test_a_frozen_disk",
              "test_hung_disk.py::test_everybody_is_answered",
              "test_hung_changes.py::test_the_control_thread_waits_for_no_disk"),
    ),
    Fault(
        "F11", "a torn end", "cut at every byte; garbage, zeros, old batches behind it", ("P6",),
        "a forged batch; no journal", 650, 66_000,
        _here("test_damage.py::test_a_tail", "test_damage.py::test_garbage",
              "test_damage.py::test_control_a_batch", "test_damage.py::test_torn_tails"),
    ),
    Fault(
        "F12", "rot", "flipped bits, swapped blocks, foreign or missing side files", ("P7",),
        "a checksum put right", 400, 10_000,
        _here("test_damage.py::test_a_flipped_bit", "test_damage.py::test_control_a_flipped_bit",
              "test_damage.py::test_larger_damage", "test_damage.py::test_rot_beside"),
    ),
    Fault(
        "F13", "kill -9 inside recovery", "SIGKILL at a random moment of the start, five in a row",
        ("P2",), "the last batches cut off", 5, 100,
        _here("test_kill.py::test_kill_while_recovering"),
    ),
    Fault(
        "F14", "processes that stand still", "SIGSTOP of broker and members, up to ten sessions",
        ("P2", "P14"), "a batch and a commit taken back", 0, 50,
        _here("test_pauses.py::test_the_broker_stands_still",
              "test_pauses.py::test_a_member_stands_still"),
    ),
    Fault(
        "F15", "the clock jumps", "the broker's wall clock: 2 h back, a day, 400 days, 30 back",
        ("P15",), "retention by age", 2, 20, _here("test_clock.py"),
    ),
    Fault(
        "F16", "slow and silent clients", "half frames, one byte, answers never read", ("P11",),
        "each holds its connection", 5_400, 7_000,
        (*_here("test_floods.py::test_who_never_reads_costs_nothing"),
         "tests/wire/test_bad_input.py::test_half_frames_then_silence",
         "tests/wire/test_bad_input.py::test_thousands_of_connections_with_one_byte"),
    ),
    Fault(
        "F17", "connections come and go", "connect and reset beside idle ones; no descriptor left",
        ("P11",), "held connections are counted", 3_500, 1_000_000,
        _here("test_floods.py::test_who_comes_and_goes", "test_floods.py::test_no_descriptor_left"),
    ),
    Fault(
        "F18", "lengths that lie", "every length and count of every request, from Kafka's schemas",
        ("P11",), "the truth is answered", 1_500, 10_000, _here("test_fields.py"),
    ),
    Fault(
        "F19", "requests without end", "10,000 pipelined before an answer is read", ("P11",),
        "two answers swapped", 1, 100, _here("test_floods.py::test_ten_thousand_requests"),
    ),
    Fault(
        "F20", "mutated bytes", "fuzzers of every decoder; mutated frames to a live broker",
        ("P11",), "decoders broken on purpose", 3_000, 1_000_000,
        ("tests/fuzz/test_fuzz.py", "tests/wire/test_bad_input.py::test_mutated_frames",
         "tests/wire/test_bad_input.py::test_random_frames",
         "tests/wire/test_group_bad_input.py::test_mutated_frames"),
    ),
    Fault(
        "F21", "batches that lie", "each header field and record wrong in turn", ("P7", "P11"),
        "sound ones are stored", 40, 40, _here("test_batches.py::test_batches_that_lie"),
    ),
    Fault(
        "F22", "bombs", "four codecs, up to 1 GiB from 1 MiB, on three kinds of topic", ("P12",),
        "unpacked without a bound", 48, 240,
        _here("test_batches.py::test_bombs", "test_batches.py::test_control_who_unpacks"),
    ),
    Fault(
        "F23", "sequences replayed", "schedules of repeats, gaps, wraps and restarts, and a model",
        ("P3", "P5"), "no idempotence", 100, 10_000,
        ("tests/unit/test_log_producers.py::test_against_the_model",
         "tests/txn/test_model.py::test_a_short_simulation",
         "tests/txn/test_model.py::test_a_million_steps",
         "tests/faults/test_kill.py::test_control_without_idempotence_records_come_twice"),
    ),
    Fault(
        "F24", "fenced, late or cut off", "late frames, a kill or power cut at each step or call",
        ("P4", "P5"), "coordinators broken on purpose; syncs forgotten", 220, 19_000,
        (*_here("test_transactions.py", "test_transaction_states.py"),
         "tests/txn/test_model.py", "tests/txn/test_fault_points.py",
         "tests/txn/test_zombies.py"),
    ),
    Fault(
        "F25", "members that vanish and return", "simulated members: kills, crashes, stale epochs",
        ("P14",), "coordinators broken on purpose", 10, 1_000,
        ("tests/model/test_model.py::test_a_short_simulation",
         "tests/model/test_model.py::test_a_million_steps",
         "tests/model/test_model.py::test_a_broken_coordinator_is_noticed"),
    ),
    Fault(
        "F26", "TLS half way, or by somebody else",
        "half-open, byte by byte, no TLS at all; foreign, expired, absent certificates; "
        "renewed under load",
        ("P11", "P13"), "each holds its connection; the right one is let in", 900, 10_900,
        (*_here("test_tls.py"), "tests/unit/test_handshakes.py",
         "tests/wire/test_tls.py::test_certificates_are_read_again_under_load"),
    ),
    Fault(
        "F27", "logins that should fail", "guesses, steps out of turn, SCRAM changed or replayed",
        ("P13",), "the right password is let in", 200, 1_200,
        ("tests/wire/test_sasl.py", "tests/unit/test_security_scram.py"),
    ),
    Fault(
        "F28", "requests without the right", "every API: no ACL, wrong, right, prefixed, denied",
        ("P13",), "whoever may gets through", 370, 370, _here("test_rights.py"),
    ),
    Fault(
        "F29", "a ceiling of memory", "a control group of 512 MiB: load, silent readers, bombs",
        ("P11", "P12"), "a ceiling that is too low", 0, 1, _here("test_memory.py"),
    ),
    Fault(
        "F31", "a slow disk", "calls delayed at random by up to 2 s: topics, groups, transactions",
        ("P2", "P3", "P4", "P14"), "the logs of topics cut off", 5, 17, _here("test_chaos.py"),
    ),
    Fault(
        "P4", "transactions under kills", "SIGKILL of broker and clients: bank, copies, Streams",
        ("P4",), "a ledger that errs", 8, 186,
        ("tests/txn/test_bank.py", "tests/txn/test_copies.py", "tests/txn/test_streams.py"),
    ),
    Fault(
        "P5", "frames that come late", "frames of transactions once more, whenever chance has it",
        ("P5",), "protocol version 1; machines broken on purpose", 25, 1_000,
        (*_here("test_transactions.py"), "tests/txn/test_model.py"),
    ),
    Fault(
        "P10", "killed while compacting", "SIGKILL and failures at each step of cleaning, recovery",
        ("P10",), "a segment of the result removed", 60, 1_000,
        ("tests/unit/test_cleaner_crash.py",),
    ),
)  # fmt: skip

BY_NUMBER = {fault.number: fault for fault in FAULTS}


def markdown() -> str:
    """The table as README has it."""
    lines = ["| | fault | how | promises | control | `make test` | full |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    lines += [
        f"| {one.number} | {one.what} | {one.how} | {' '.join(one.promises)} | {one.control} "
        f"| {one.short:,} | {one.full:,} |"
        for one in FAULTS
    ]
    return "\n".join(lines) + "\n"
