"""RemoveRaftVoter: take a controller out of the quorum of the metadata log (KIP-853).

Behavior: this node is the only voter, and the last one cannot leave; no other is there. Apache
Kafka answers both alike.

Version notes:
  v0: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.k80_add_raft_voter import check_kraft_version, check_voter
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER


@register(ApiKey.REMOVE_RAFT_VOTER, 0, 0)
def remove_raft_voter(request: Any, context: Context) -> Response:
    """Answer a RemoveRaftVoter request: always with an error."""
    require_cluster(context, ALTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)
    check_voter(request, context)
    check_kraft_version(context)
    raise ClientError(
        ErrorCode.VOTER_NOT_FOUND,
        f"Voter {request.voter_id} is not there to be removed, or it is the last one.",
    )
