"""Feature levels: what Kafka 4.3 finalizes on a new cluster, and what follows from a level.

`metadata.version` decides which version each metadata record is written in, so that the node
that reads the log next, whoever it is, understands it. Numbers and limits are those of Apache
Kafka 4.3 (KIP-778, KIP-1022).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kbroker.errors import ClientError, ErrorCode, OperatorError

from .records.cluster import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from .records.schema import Record
from .records.topics import PartitionChangeRecord, PartitionRecord

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
KRAFT_VERSION: Final = "kraft.version"
"""Kept in control records of the log, never among the image's features."""

METADATA_VERSION_MIN: Final = 7  # 3.3-IV3
METADATA_VERSION_MAX: Final = 30  # 4.3-IV0
_TRANSACTIONS_SINCE: Final = 13  # 3.6-IV1: begin, end and abort records in the metadata log
_DIRECTORIES_SINCE: Final = 17  # 3.7-IV2
_ELIGIBLE_LEADERS_SINCE: Final = 23  # 4.0-IV1
_CORDONED_SINCE: Final = 30  # 4.3-IV0
_MIGRATION_SINCE: Final = 8  # 3.4-IV0

NEW_CLUSTER: Final = {
    METADATA_VERSION: METADATA_VERSION_MAX,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""The levels that a new cluster gets, in the order in which Kafka's format tool writes them."""

SUPPORTED: Final = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    KRAFT_VERSION: (0, 1),
    METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
"""Least and greatest level of each feature that Kafka 4.3 supports, as a broker registers them."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_CHANGED_RECORDS: Final = frozenset({8, 11, 13, 14, 15, 17, 23, 30})
"""Levels of metadata.version that brought records or fields: nothing goes back below one."""


class Update(NamedTuple):
    """A level that a feature is to have; `kind` is UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."""

    feature: str
    level: int
    kind: int


def check_update(
    update: Update, levels: Mapping[str, int], wanted: Mapping[str, int],
    supported: Mapping[str, Mapping[str, tuple[int, int]]],
) -> None:  # fmt: skip
    """Refuse what Apache Kafka's controller refuses, in its order. Raises ClientError.

    `levels` are those in force, kraft.version among them, `wanted` those after all updates;
    `supported` has least and greatest level by feature, by who supports them.
    """
    feature, level, kind = update
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(update, f"there is no kind of update {kind}")
    if level < 0:
        raise _refused(update, "a level is 0 or more")
    if feature not in SUPPORTED:
        raise _refused(update, "there is no such feature")
    for who, ranges in supported.items():
        least, most = ranges.get(feature, (0, 0))
        if not least <= level <= most:
            raise _refused(update, f"{who} supports {f'{least} to {most}' if most else 'none'}")
    now = levels.get(feature, 0)
    if level < now and kind == UPGRADE:
        raise _refused(update, f"that is below {now}, and no downgrade was asked for")
    if level > now and kind != UPGRADE:
        raise _refused(update, f"that is above {now}, and a downgrade was asked for")
    if level < now and feature == KRAFT_VERSION:
        raise _refused(update, "it never goes back")
    if feature == METADATA_VERSION and any(one in _CHANGED_RECORDS
                                           for one in range(level + 1, now + 1)):  # fmt: skip
        raise _refused(update, f"metadata of {now} might be lost, which is not supported")
    if (feature == ELIGIBLE_LEADERS and level > 0
            and wanted.get(METADATA_VERSION, 0) < _ELIGIBLE_LEADERS_SINCE):  # fmt: skip
        raise _refused(update, f"it needs {METADATA_VERSION} {_ELIGIBLE_LEADERS_SINCE}")


def _refused(update: Update, why: str) -> ClientError:
    text = f"{update.feature} cannot get level {update.level}: {why}."
    return ClientError(ErrorCode.INVALID_UPDATE_VERSION, text)


def check_metadata_version(level: int) -> None:
    """Refuse a log that a later Kafka, or one before 3.3, has set up."""
    if level > METADATA_VERSION_MAX:
        raise OperatorError(
            f"the data directory has metadata.version {level}, which is later than Kafka 4.3's "
            f"{METADATA_VERSION_MAX}: start it with the Kafka that raised it, or lower it there "
            "with kafka-features.sh downgrade"
        )
    if level < METADATA_VERSION_MIN:
        raise OperatorError(
            f"the data directory has metadata.version {level}, older than {METADATA_VERSION_MIN} "
            "(3.3): raise it with kafka-features.sh upgrade of the Kafka that wrote it"
        )


def has_transactions(metadata_version: int) -> bool:
    """True where a change too large for one batch may be put between begin and end records."""
    return metadata_version >= _TRANSACTIONS_SINCE


def has_directories(metadata_version: int) -> bool:
    """True where partitions say in which log directory each replica is."""
    return metadata_version >= _DIRECTORIES_SINCE


def has_cordoned(metadata_version: int) -> bool:
    """True where a broker says which of its log directories take no new partitions."""
    return metadata_version >= _CORDONED_SINCE


def record_version(cls: type[Record], metadata_version: int) -> int:
    """The version in which a record is written at a metadata.version."""
    if cls is RegisterBrokerRecord:
        return (
            4
            if metadata_version >= _CORDONED_SINCE
            else 3
            if metadata_version >= _DIRECTORIES_SINCE
            else 2
            if metadata_version >= _MIGRATION_SINCE
            else 1
        )
    if cls is BrokerRegistrationChangeRecord:
        if metadata_version >= _CORDONED_SINCE:
            return 3
        return 2 if metadata_version >= _DIRECTORIES_SINCE else 1
    if cls in (PartitionRecord, PartitionChangeRecord):
        if metadata_version >= _ELIGIBLE_LEADERS_SINCE:
            return 2
        return 1 if metadata_version >= _DIRECTORIES_SINCE else 0
    return 0
