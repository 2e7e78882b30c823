"""Partitioners by their names, as `partitioner.class` takes them.

`default` is Java's: murmur2 of the key, and without a key the sticky partition of KIP-794. The
others are Java's RoundRobinPartitioner and librdkafka's; any callable (topic, key, value,
partitions) -> int serves as well, key and value as bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from kbroker.client.errors import ConfigError

__all__ = ["PARTITIONERS", "Partitioner", "partitioner_way"]

Partitioner = Callable[[str, bytes | None, bytes | None, int], int]

STICKY, CALLABLE = 0, 9

# Numbers of ext/client_partition.pxd.
PARTITIONERS = {
    "default": STICKY,
    "round_robin": 1,
    "consistent": 2,
    "consistent_random": 3,
    "murmur2": 4,
    "murmur2_random": 5,
    "fnv1a": 6,
    "fnv1a_random": 7,
    "random": 8,
}
_JAVA = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "RoundRobinPartitioner": "round_robin",
}


def partitioner_way(given: object) -> tuple[int, Partitioner | None]:
    """What `partitioner.class` says, as a number and the callable where it is one."""
    if given is None:
        return STICKY, None
    if isinstance(given, str):
        name = _JAVA.get(given, given)
        if name not in PARTITIONERS:
            known = ", ".join(PARTITIONERS)
            raise ConfigError(
                f"partitioner.class: {given!r} is none of {known}, and no callable"
                " (topic, key, value, partitions) -> int"
            )
        return PARTITIONERS[name], None
    if callable(given):
        return CALLABLE, given
    raise ConfigError(f"partitioner.class: {type(given).__name__} is neither a name nor a callable")
