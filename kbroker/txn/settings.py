"""What the broker's settings say about transactions; taken over again when they change.

Names are Kafka's keys with underscores; `version` is the feature level of transaction.version.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.config import BrokerConfig


class TransactionSettings(NamedTuple):
    """Defaults are those of Apache Kafka 4.3; milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    request_timeout_ms: int = 30_000
    version: int = 2


_KEYS: Final = tuple(name.replace("_", ".") for name in TransactionSettings._fields[:-1])


def settings_of(config: BrokerConfig, version: int) -> TransactionSettings:
    """What the broker's settings say now."""
    return TransactionSettings._make((*map(config.value, _KEYS), version))
