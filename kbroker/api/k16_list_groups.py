"""ListGroups: the groups that this broker coordinates, of both protocols.

Behavior: fails as a whole while a partition of `__consumer_offsets` is loading, or cannot be read
(COORDINATOR_NOT_AVAILABLE): no other broker tells of its groups. Filters are alternatives, whatever
their case; what no group can be matches none. Who may not describe the cluster is told of the
groups that they may describe.

Version notes:
  v1: throttle time. v3: flexible. v4: states (KIP-518). v5: types (KIP-848).
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import may_cluster
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, GROUP


@register(ApiKey.LIST_GROUPS, 0, 5)
def list_groups(request: Any, context: Context) -> Steps[Response]:
    """Answer a ListGroups request."""
    states = {one.strip().lower() for one in getattr(request, "states_filter", ())}
    kinds = {one.lower() for one in getattr(request, "types_filter", ())}
    sees_all = may_cluster(context, DESCRIBE, tell=False)
    groups = []
    for rooms in context.groups.all_rooms():
        for group in list(rooms.shard.groups.values()):
            yield
            if (
                (not states or group.state_name.lower() in states)
                and (not kinds or group.kind in kinds)
                and (sees_all or context.may(DESCRIBE, GROUP, group.group_id, tell=False))
            ):
                groups.append({
                    "group_id": group.group_id,
                    "protocol_type": group.protocol_type or "",
                    "group_state": group.state_name,
                    "group_type": group.kind,
                })  # fmt: skip
    return {"groups": groups}
