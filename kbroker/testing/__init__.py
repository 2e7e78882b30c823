"""A real broker for tests, in a process of its own; see docs/testing.md.

    with Broker({"num.partitions": 3}) as broker:
        broker.produce("orders", b"one", key=b"k")
        assert [record.value for record in broker.records("orders")] == [b"one"]

Under pytest the fixtures `kbroker` and `kbroker_session` of kbroker.pytest_plugin give one.
"""

from __future__ import annotations

from kbroker.testing.broker import DEFAULTS, Broker, BrokerFailedError

__all__ = ["DEFAULTS", "Broker", "BrokerFailedError"]
