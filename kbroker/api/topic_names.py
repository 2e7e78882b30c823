"""Rules for topic names, and the topics that belong to the broker itself."""

from __future__ import annotations

import re
from typing import Final

from kbroker.limits import TOPIC_NAME_LENGTH_MAX_CHARS

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def name_fault(name: str) -> str | None:
    """What is wrong with a topic name, None for a good one."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX_CHARS:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_LENGTH_MAX_CHARS}"
        )
    if not _LEGAL.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return None


def has_collision_chars(name: str) -> bool:
    """Whether another name may become the same in a metric name, where '.' is turned to '_'."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    """The form in which two colliding names are the same."""
    return name.replace(".", "_")
