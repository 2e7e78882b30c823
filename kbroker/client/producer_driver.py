"""The native half of a producer, by its settings."""

from __future__ import annotations

from kbroker.client.config_producer import ProducerConfig
from kbroker.errors import ErrorCode
from kbroker.ext.client_producer import SenderDriver
from kbroker.ext.client_transactions import TransactionalDriver

__all__ = ["driver_of"]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LEVEL_DEFAULT = -(2**31)


def driver_of(config: ProducerConfig, way: int) -> SenderDriver:
    """way: how partitions are chosen (see partitioners)."""
    codec = _CODECS.index(config.compression_type)
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    kind = SenderDriver if config.transactional_id is None else TransactionalDriver
    return kind(
        batch_bytes=config.batch_size,
        buffer_bytes=config.buffer_memory,
        linger_ms=config.linger_ms,
        delivery_ms=config.delivery_timeout_ms,
        request_timeout_ms=config.request_timeout_ms,
        request_bytes_max=config.max_request_size,
        retry_ms=config.retry_backoff_ms,
        retry_max_ms=config.retry_backoff_max_ms,
        retries=config.retries,
        in_flight_max=config.max_in_flight_requests_per_connection,
        acks=config.acks,
        idempotent=config.enable_idempotence,
        codec=codec,
        level=levels.get(config.compression_type, _LEVEL_DEFAULT),
        way=way,
        adaptive=config.partitioner_adaptive_partitioning_enable,
        availability_ms=config.partitioner_availability_timeout_ms,
        ignore_keys=config.partitioner_ignore_keys,
        retriable=[int(code) for code in ErrorCode if code.retriable],
    )
