"""What a request makes of a transaction: tables of Apache Kafka's answers, without a log."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from kbroker.errors import ClientError, ErrorCode
from kbroker.txn import records, steps
from kbroker.txn.steps import Add, End, Producer
from kbroker.txn.transaction import EPOCH_MAX, State, Transaction

NOW = 1_000_000
TOPIC = ("t", 0)
NONE = Producer(-1, -1)


@pytest.fixture
def new_id() -> Callable[[], int]:
    ids = itertools.count(100)
    return lambda: next(ids)


def known(state: State = State.EMPTY, epoch: int = 5, **fields: object) -> Transaction:
    """A transaction of producer 7."""
    given = {"partitions": frozenset([TOPIC])} if state is State.ONGOING else {}
    given |= fields
    return Transaction(7, 60_000, NOW - 10, epoch, state, started_ms=NOW - 20, **given)  # type: ignore[arg-type]


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.code


class TestInit:
    def test_a_new_id(self, new_id):
        made = steps.init(None, 5_000, None, new_id, NOW)
        assert (made.producer_id, made.epoch, made.last_epoch) == (100, 0, -1)
        assert (made.state, made.timeout_ms, made.previous_producer_id) == (State.EMPTY, 5_000, 100)

    def test_a_new_id_takes_whoever_comes(self, new_id):
        made = steps.init(None, 5_000, Producer(3, 9), new_id, NOW)
        assert (made.producer_id, made.epoch) == (100, 0)

    @pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_ABORT, State.COMPLETE_COMMIT])
    def test_the_epoch_goes_up(self, new_id, state):
        made = steps.init(known(state), 9, None, new_id, NOW)
        assert (made.producer_id, made.epoch, made.last_epoch) == (7, 6, -1)
        assert made.partitions == frozenset()
        assert made.started_ms == -1

    def test_who_goes_on_may_ask_again(self, new_id):
        first = steps.init(known(), 9, Producer(7, 5), new_id, NOW)
        assert (first.epoch, first.last_epoch) == (6, 5)
        again = steps.init(first, 9, Producer(7, 5), new_id, NOW)
        assert (again.epoch, again.last_epoch) == (6, 5)
        after = steps.init(first, 9, None, new_id, NOW)
        assert code_of(lambda: steps.init(after, 9, Producer(7, 5), new_id, NOW)) \
            is ErrorCode.PRODUCER_FENCED  # fmt: skip

    def test_a_foreign_id_is_fenced(self, new_id):
        call = lambda: steps.init(known(), 9, Producer(8, 5), new_id, NOW)  # noqa: E731
        assert code_of(call) is ErrorCode.PRODUCER_FENCED

    def test_epochs_run_out(self, new_id):
        full = known(epoch=EPOCH_MAX - 1)
        made = steps.init(full, 9, None, new_id, NOW)
        assert (made.producer_id, made.epoch, made.last_epoch) == (100, 0, -1)
        made = steps.init(full, 9, Producer(7, EPOCH_MAX - 1), new_id, NOW)
        assert (made.producer_id, made.epoch, made.last_epoch) == (101, 0, EPOCH_MAX - 1)
        again = steps.init(made, 9, Producer(7, EPOCH_MAX - 1), new_id, NOW)
        assert (again.producer_id, again.epoch) == (101, 0)

    @pytest.mark.parametrize("state", [State.PREPARE_ABORT, State.PREPARE_COMMIT])
    @pytest.mark.parametrize("expected", [None, Producer(7, 5), Producer(7, 3), Producer(8, 0)])
    def test_an_end_is_waited_for(self, new_id, state, expected):
        call = lambda: steps.init(known(state), 9, expected, new_id, NOW)  # noqa: E731
        assert code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_an_open_one_is_left_to_be_aborted(self, new_id):
        now = known(State.ONGOING)
        assert steps.init(now, 9, None, new_id, NOW) is now


class TestFence:
    def test_version_1(self, new_id):
        fenced = steps.fence(known(State.ONGOING), 1, new_id, NOW)
        assert (fenced.state, fenced.epoch, fenced.version) == (State.PREPARE_ABORT, 6, 0)
        assert steps.complete(fenced, NOW).epoch == 6

    def test_version_2(self, new_id):
        fenced = steps.fence(known(State.ONGOING), 2, new_id, NOW)
        assert (fenced.state, fenced.epoch, fenced.version) == (State.PREPARE_ABORT, 6, 2)
        assert fenced.last_epoch == 5

    @pytest.mark.parametrize("epoch", [EPOCH_MAX - 1, EPOCH_MAX])
    def test_version_2_at_the_limit(self, new_id, epoch):
        fenced = steps.fence(known(State.ONGOING, epoch), 2, new_id, NOW)
        assert (fenced.epoch, fenced.next_producer_id) == (EPOCH_MAX, 100)
        done = steps.complete(fenced, NOW)
        assert (done.producer_id, done.epoch, done.previous_producer_id) == (100, 0, 7)

    def test_overdue(self):
        assert not steps.is_overdue(known(State.ONGOING), NOW - 20 + 60_000)
        assert steps.is_overdue(known(State.ONGOING), NOW - 20 + 60_001)
        assert not steps.is_overdue(known(State.PREPARE_ABORT), NOW * 9)
        endless = known(State.ONGOING)._replace(timeout_ms=(1 << 31) - 1)
        assert not steps.is_overdue(endless, 1 << 40)


class TestAdd:
    def test_begins_and_goes_on(self):
        first = steps.add(known(), Add(Producer(7, 5), [TOPIC], 2), NOW)
        assert (first.state, first.started_ms, first.version) == (State.ONGOING, NOW, 2)
        assert steps.add(first, Add(Producer(7, 5), [TOPIC], 2), NOW + 5) is first
        second = steps.add(first, Add(Producer(7, 5), [("u", 1)], 2), NOW + 5)
        assert second.partitions == {TOPIC, ("u", 1)}
        assert second.started_ms == NOW

    @pytest.mark.parametrize(
        ("now", "producer", "code"),
        [
            (None, Producer(7, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (known(), Producer(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (known(), Producer(7, 4), ErrorCode.PRODUCER_FENCED),
            (known(), Producer(7, 6), ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_refusals(self, now, producer, code):
        assert code_of(lambda: steps.add(now, Add(producer, [TOPIC], 2), NOW)) is code
        assert code_of(lambda: steps.verify(now, producer, [TOPIC])) is code

    @pytest.mark.parametrize("state", [State.PREPARE_ABORT, State.PREPARE_COMMIT])
    @pytest.mark.parametrize(
        ("producer", "verified"),
        [
            (Producer(8, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (Producer(7, 4), ErrorCode.PRODUCER_FENCED),
            (Producer(7, 5), ErrorCode.CONCURRENT_TRANSACTIONS),
        ],
    )
    def test_an_end_is_waited_for(self, state, producer, verified):
        """Whoever asks: an id that is not known yet may be the one that comes with the end."""
        call = lambda: steps.add(known(state), Add(producer, [TOPIC], 2), NOW)  # noqa: E731
        assert code_of(call) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert code_of(lambda: steps.verify(known(state), producer, [TOPIC])) is verified

    def test_verify(self):
        found = steps.verify(known(State.ONGOING), Producer(7, 5), [TOPIC, ("u", 0)])
        assert found == {TOPIC: ErrorCode.NONE, ("u", 0): ErrorCode.TRANSACTION_ABORTABLE}


CONCURRENT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
PREPARES, SAME = "prepares", "same"


class TestEndVersion1:
    @pytest.mark.parametrize(
        ("state", "commit", "outcome"),
        [
            (State.EMPTY, True, INVALID),
            (State.EMPTY, False, INVALID),
            (State.ONGOING, True, PREPARES),
            (State.ONGOING, False, PREPARES),
            (State.PREPARE_COMMIT, True, CONCURRENT),
            (State.PREPARE_COMMIT, False, CONCURRENT),
            (State.PREPARE_ABORT, True, CONCURRENT),
            (State.PREPARE_ABORT, False, CONCURRENT),
            (State.COMPLETE_COMMIT, True, SAME),
            (State.COMPLETE_COMMIT, False, INVALID),
            (State.COMPLETE_ABORT, True, INVALID),
            (State.COMPLETE_ABORT, False, SAME),
        ],
    )
    def test_table(self, new_id, state, commit, outcome):
        now = known(state)
        call = lambda: steps.end(now, End(Producer(7, 5), commit, 0), new_id, NOW)  # noqa: E731
        if isinstance(outcome, ErrorCode):
            assert code_of(call) is outcome
            return
        ended = call()
        assert ended.producer == NONE
        if outcome is SAME:
            assert ended.transaction is now
        else:
            assert ended.transaction.state is (
                State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
            )
            assert ended.transaction.epoch == 5

    @pytest.mark.parametrize("epoch", [4, 6])
    @pytest.mark.parametrize("state", [State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT])
    def test_epochs(self, new_id, state, epoch):
        call = lambda: steps.end(  # noqa: E731
            known(state), End(Producer(7, epoch), True, 0), new_id, NOW
        )
        assert code_of(call) is FENCED


RETRY, CURRENT, FUTURE = 4, 5, 6


class TestEndVersion2:
    """KIP-890: epochs tell what is asked again."""

    @pytest.mark.parametrize(
        ("state", "epoch", "commit", "outcome"),
        [
            (State.EMPTY, RETRY, False, FENCED),
            (State.EMPTY, RETRY, True, FENCED),
            (State.EMPTY, CURRENT, False, PREPARES),
            (State.EMPTY, CURRENT, True, INVALID),
            (State.COMPLETE_ABORT, RETRY, False, SAME),
            (State.COMPLETE_ABORT, RETRY, True, INVALID),
            (State.COMPLETE_ABORT, CURRENT, False, PREPARES),
            (State.COMPLETE_ABORT, CURRENT, True, INVALID),
            (State.COMPLETE_COMMIT, RETRY, False, INVALID),
            (State.COMPLETE_COMMIT, RETRY, True, SAME),
            (State.COMPLETE_COMMIT, CURRENT, False, PREPARES),
            (State.COMPLETE_COMMIT, CURRENT, True, INVALID),
            (State.ONGOING, CURRENT, True, PREPARES),
            (State.ONGOING, CURRENT, False, PREPARES),
            (State.ONGOING, RETRY, True, FENCED),
            (State.ONGOING, FUTURE, True, FENCED),
            (State.PREPARE_COMMIT, RETRY, True, CONCURRENT),
            (State.PREPARE_COMMIT, RETRY, False, CONCURRENT),
            (State.PREPARE_COMMIT, CURRENT, True, CONCURRENT),
            (State.PREPARE_COMMIT, FUTURE, True, CONCURRENT),
            (State.PREPARE_ABORT, RETRY, False, CONCURRENT),
            (State.PREPARE_ABORT, RETRY, True, CONCURRENT),
            (State.PREPARE_ABORT, CURRENT, False, CONCURRENT),
            (State.COMPLETE_COMMIT, FUTURE, True, FENCED),
        ],
    )
    def test_table(self, new_id, state, epoch, commit, outcome):
        now = known(state)
        call = lambda: steps.end(now, End(Producer(7, epoch), commit, 2), new_id, NOW)  # noqa: E731
        if isinstance(outcome, ErrorCode):
            assert code_of(call) is outcome
            return
        ended = call()
        if outcome is SAME:
            assert ended.transaction is now
            assert ended.producer == Producer(7, 5)
        else:
            assert (ended.transaction.epoch, ended.transaction.last_epoch) == (6, 5)
            assert ended.producer == Producer(7, 6)
            assert ended.transaction.started_ms == (NOW - 20 if state is State.ONGOING else NOW)

    def test_epochs_run_out(self, new_id):
        now = known(State.ONGOING, EPOCH_MAX - 1)
        ended = steps.end(now, End(Producer(7, EPOCH_MAX - 1), True, 2), new_id, NOW)
        assert ended.transaction.epoch == EPOCH_MAX
        assert ended.producer == Producer(100, 0)
        for early in (ended.producer, Producer(7, EPOCH_MAX - 1)):
            for commit in (True, False):
                call = lambda early=early, commit=commit: steps.end(  # noqa: E731
                    ended.transaction, End(early, commit, 2), new_id, NOW
                )
                assert code_of(call) is CONCURRENT
        done = steps.complete(ended.transaction, NOW)
        assert (done.producer_id, done.epoch, done.previous_producer_id) == (100, 0, 7)
        again = steps.end(done, End(Producer(7, EPOCH_MAX - 1), True, 2), new_id, NOW)
        assert (again.transaction, again.producer) == (done, Producer(100, 0))

    def test_a_foreign_id(self, new_id):
        call = lambda: steps.end(  # noqa: E731
            known(State.ONGOING), End(Producer(8, 5), True, 2), new_id, NOW
        )
        assert code_of(call) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        call = lambda: steps.end(None, End(Producer(8, 5), True, 2), new_id, NOW)  # noqa: E731
        assert code_of(call) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TestRecords:
    @pytest.mark.parametrize("state", [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT])
    def test_there_and_back(self, state):
        partitions = frozenset() if state is State.EMPTY else frozenset([TOPIC, ("t", 3), ("u", 0)])
        value = known(state, partitions=partitions, previous_producer_id=3, version=2)
        key, encoded = records.encode("id", value, 1)
        assert records.Records(0).decode(0, key, encoded) == ("id", value)

    def test_version_0_keeps_less(self):
        value = known(State.ONGOING, previous_producer_id=3, version=2)
        key, encoded = records.encode("id", value, 0)
        found = records.Records(0).decode(0, key, encoded)
        assert found == ("id", value._replace(previous_producer_id=-1, version=0))

    def test_tombstone(self):
        key, encoded = records.encode("id", None, 1)
        assert encoded is None
        assert records.Records(0).decode(0, key, None) == ("id", None)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (None, b""),
            (b"", b""),
            (b"\0\7", b""),
            (b"\0\0\0\1a", b"\0\1"),
            (b"\0\0\0\1a", b"\0\x09"),
        ],
    )
    def test_what_cannot_be_read_is_passed_over(self, key, value):
        assert records.Records(0).decode(5, key, value) is None
