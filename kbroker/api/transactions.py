"""What the transaction coordinator is built on, and what of it the handlers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kbroker.api.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kbroker.clock import Clock
from kbroker.errors import ErrorCode
from kbroker.ext.log import Log
from kbroker.ext.offsets_load import OffsetsLoad
from kbroker.group.loading import Load
from kbroker.group.partition import group_partition
from kbroker.storage.manager import LogPort, State
from kbroker.txn.loading import StateLoad
from kbroker.txn.markers import Groups
from kbroker.txn.settings import TransactionSettings, settings_of
from kbroker.txn.steps import Producer
from kbroker.txn.transaction import Partition

if TYPE_CHECKING:
    from kbroker.api.answer import RequestPort
    from kbroker.api.context import Context, Services

_FEATURE: Final = "transaction.version"
FIRST_PRODUCE_THAT_ADDS: Final = 12
_FIRST_ABORTABLE: Final = 11
_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionHost:
    """See kbroker.txn.coordinator.Host."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def clock(self) -> Clock:
        """The broker's."""
        return self._services.clock

    @property
    def groups(self) -> Groups:
        """The coordinator of groups."""
        return self._services.groups

    def settings(self) -> TransactionSettings:
        """The broker's settings of now."""
        image = self._services.image
        return settings_of(self._services.config, image.features.get(_FEATURE, 0))

    def partitions(self) -> int:
        """Partitions of `__transaction_state`; 0 where it is not there."""
        topic = self._services.image.topics.get(TRANSACTION_STATE)
        return 0 if topic is None else len(topic)

    def state_log(self, partition: int) -> LogPort | None:
        """The log of a partition of it, None where the disk denies it."""
        return self._services.logs.get(TRANSACTION_STATE, partition)

    def is_offline(self, partition: int) -> bool:
        """Whether the disk denies it."""
        return self._services.logs.state(TRANSACTION_STATE, partition) is State.OFFLINE

    def load(self, log: LogPort, *, strict: bool) -> Load:
        """Begin to read a log; `strict`: what the disk refuses to read is an error."""
        assert isinstance(log, Log)
        return StateLoad(OffsetsLoad(log, commits=False, strict=strict))

    def new_producer_id(self) -> int:
        """Return an id that no producer has had."""
        return self._services.producer_ids.take()

    def tell(self, log: LogPort, offset: int) -> bool:
        """See kbroker.txn.durable.Tell."""
        assert isinstance(log, Log)
        return self._services.data_plane.tell_control(log, offset)

    def post(self, do: Callable[[], None]) -> None:
        """Have it done on the control thread."""
        self._services.post(do)

    def knows(self, partition: Partition) -> bool:
        """Whether the metadata has it."""
        return self._services.image.partition(*partition) is not None

    def log(self, partition: Partition) -> LogPort | None:
        """Its log; None where the disk denies it."""
        return self._services.logs.get(*partition)

    def appended(self, log: LogPort) -> None:
        """Something was appended by other hands than the data plane's."""
        if log.high_watermark == log.log_end_offset:
            self._services.data_plane.wake(log)


def offsets_partition(context: Context, group_id: str) -> Partition:
    """Where a group's offsets are kept."""
    count = context.groups.partitions
    if not count:
        count = context.config.integer("offsets.topic.num.partitions")
    return CONSUMER_OFFSETS, group_partition(group_id, count)


def verify_produce(request: RequestPort, services: Services) -> None:
    """A Produce that opens a transaction on partitions (KIP-890): it goes on when the coordinator
    has them, and the disk knows."""
    transactional_id, producer_id, epoch, opened = request.transaction()
    version = request.api_version

    def then(refused: Mapping[Partition, ErrorCode]) -> None:
        request.proceed({one: _produce_code(code, version) for one, code in refused.items()})

    if not opened:
        request.proceed({})
        return
    services.transactions.begin_on(
        transactional_id,
        Producer(producer_id, epoch),
        opened,
        adds=version >= FIRST_PRODUCE_THAT_ADDS,
        then=then,
    )


def verified_code(code: ErrorCode, *, abortable: bool) -> ErrorCode:
    """An error of the coordinator as the client knows it that appends, which may not know of
    transactions that are only good for being aborted."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _produce_code(code: ErrorCode, version: int) -> ErrorCode:
    """Older clients try a Produce again for no error of a coordinator, but for this one."""
    if code in _ASK_AGAIN or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_PRODUCE_THAT_ADDS
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return verified_code(code, abortable=version >= _FIRST_ABORTABLE)


def older_code(code: int, version: int, first_fenced: int) -> int:
    """PRODUCER_FENCED as a client knows it that is older than that error."""
    if code == ErrorCode.PRODUCER_FENCED and version < first_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def producer_of(request: Any) -> Producer:
    """Who a request says that it is of."""
    return Producer(request.producer_id, request.producer_epoch)
