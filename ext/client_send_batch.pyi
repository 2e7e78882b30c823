from typing import Any

from kbroker.ext.client_delivery import BatchDelivery
from kbroker.ext.client_producer import ProducerBase

class ColumnsIn: ...

class ProducerCore(ProducerBase):
    def send_batch(
        self, topic: str, values: Any, keys: Any = None, headers: Any = None,
        timestamps_ms: Any = None, partition: Any = None,
    ) -> BatchDelivery: ...
    def _begin_batch(
        self, topic: str, values: object, keys: object, headers: object, timestamps_ms: object,
        partition: object,
    ) -> ColumnsIn: ...
    def _take_chunk(self, columns: ColumnsIn, wait_ns: int) -> BatchDelivery | None: ...
    def place_all(self, columns: ColumnsIn, topic: str, start: int, n: int) -> None: ...
    def _columns(
        self, topic: str, values: object, keys: object, headers: object, times: object,
        partition: object,
    ) -> list[tuple[str, object]]: ...
