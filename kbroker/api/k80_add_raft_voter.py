"""AddRaftVoter: take a controller into the quorum of the metadata log (KIP-853).

Behavior: all is checked that Apache Kafka checks before it turns to the new voter. One that passes
must have followed the metadata log up to its end; nothing follows it here, so the answer is the one
for a voter that lags behind.

Version notes:
  v1: the request says whether to wait until the voter is in.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context, uuid_bytes
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.quorum import VOTER_LISTENER
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER


@register(ApiKey.ADD_RAFT_VOTER, 0, 1)
def add_raft_voter(request: Any, context: Context) -> Response:
    """Answer an AddRaftVoter request: always with an error."""
    require_cluster(context, ALTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)
    check_voter(request, context)
    quorum = context.services.store.quorum
    ends = [] if quorum.voters is None else quorum.voters.voters[0].endpoints
    wanted = ends[0].name if ends else VOTER_LISTENER
    if wanted not in [one.name for one in request.listeners]:
        raise ClientError(ErrorCode.INVALID_REQUEST, f"The voter has no listener {wanted}.")
    check_kraft_version(context)
    if request.voter_id == context.node_id:
        text = f"Voter {request.voter_id} is in the quorum already."
        raise ClientError(ErrorCode.DUPLICATE_VOTER, text)
    raise ClientError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"Node {request.voter_id} does not follow the metadata log: kbroker's quorum is itself.",
    )


def check_voter(request: Any, context: Context) -> None:
    """Refuse requests for another cluster, and those that name no voter. Raises ClientError."""
    own = context.services.store.meta.cluster_id
    if request.cluster_id is not None and request.cluster_id != own:
        raise ClientError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"This is cluster {own}, the request is for {request.cluster_id}.",
        )
    if request.voter_id < 0 or not any(uuid_bytes(request.voter_directory_id)):
        raise ClientError(ErrorCode.INVALID_REQUEST, "The request names no voter.")


def check_kraft_version(context: Context) -> None:
    """Before kraft.version 1 the voters are in the nodes' settings. Raises ClientError."""
    if context.services.store.quorum.kraft_version == 0:
        raise ClientError(
            ErrorCode.UNSUPPORTED_VERSION, "The voters cannot change while kraft.version is 0."
        )
