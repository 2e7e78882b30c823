"""Membership of a consumer in a group: assignors, rebalances, heartbeats, commits.

`Group` is what a consumer holds. Below it, from the floor up: `assignors` and `embedded` are pure;
`wire` is the only room with a thread and a socket; `heart`, `topics`, `subscribed` are small state;
`commits`, `classic` (with `leader`) and `consumer_member` are state machines that see neither.
"""

from __future__ import annotations

from kbroker.client.group.assignors import Assignment, Assignor, Subscription
from kbroker.client.group.brokers import ClusterBrokers
from kbroker.client.group.group import Group
from kbroker.client.group.port import Host, RebalanceListener
from kbroker.client.group.room import GroupMetadata
from kbroker.client.group.subscribed import SubscriptionPattern

__all__ = [
    "Assignment",
    "Assignor",
    "ClusterBrokers",
    "Group",
    "GroupMetadata",
    "Host",
    "RebalanceListener",
    "Subscription",
    "SubscriptionPattern",
]
