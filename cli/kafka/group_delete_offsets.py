"""kafka-consumer-groups --delete-offsets: what a group has committed to topics is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cli.kafka.group_reset import parse_partitions
from kbroker.cli.kafka.groups import print_error
from kbroker.cli.kafka.options import Given
from kbroker.cli.kafka.tool import say

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.errors import BrokerError

__all__ = ["delete_offsets"]

Partition = tuple[str, int]

_OF_GROUP = ("INVALID_GROUP_ID", "GROUP_ID_NOT_FOUND", "GROUP_AUTHORIZATION_FAILED",
             "NON_EMPTY_GROUP")  # fmt: skip
_OF_PARTITIONS = ("GROUP_SUBSCRIBED_TO_TOPIC", "TOPIC_AUTHORIZATION_FAILED",
                  "UNKNOWN_TOPIC_OR_PARTITION")  # fmt: skip


def delete_offsets(cluster: Cluster, given: Given) -> None:
    """Deletes, and tells for each partition what came of it."""
    from kbroker.cli.kafka.java import error_text, full_error_text
    from kbroker.client import group_offsets
    from kbroker.client.errors import BrokerError

    group = given.value("group") or ""
    told: dict[Partition, BrokerError | None] = {}
    keys = _partitions(cluster, given.values("topic"), told)
    failure: BrokerError | None = None
    try:
        done = group_offsets.delete_offsets(cluster, group, keys)
        failure = next((error for error in done.values() if error is not None), None)
        told |= done
    except BrokerError as error:
        failure = error
        told |= dict.fromkeys(keys, error)
    if failure is None:
        say(f"Request succeeded for deleting offsets from group {group}.")
    elif failure.name in _OF_GROUP:
        print_error(error_text(failure))
    elif failure.name in _OF_PARTITIONS:
        print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print_error(f"Encountered some unknown error: {failure.name}")
    width = max([15, *(len(topic) for topic, _ in told)])
    say(f"\n{'TOPIC':<{width}} {'PARTITION':<10} {'STATUS':<15}", end="")
    for topic, index in sorted(told, key=lambda key: f"{key[0]}{key[1]}"):
        wrong = told[topic, index]
        status = "Successful" if wrong is None else f"Error: {full_error_text(wrong)}"
        say(f"\n{topic:<{width}} {index if index >= 0 else '-':<10} {status:<15}", end="")
    say()


def _partitions(
    cluster: Cluster, topics: list[str], told: dict[Partition, BrokerError | None]
) -> list[Partition]:
    """The partitions meant; topics that are not there go to `told` with partition -1."""
    from kbroker.client.errors import BrokerError

    keys = [key for topic in topics if ":" in topic for key in parse_partitions(topic)]
    whole = [topic for topic in dict.fromkeys(topics) if ":" not in topic]
    for topic, info in (cluster.describe(whole) if whole else {}).items():
        if isinstance(info, BrokerError):
            told[topic, -1] = info
        else:
            keys += [(topic, part.index) for part in info.partitions]
    return list(dict.fromkeys(keys))
