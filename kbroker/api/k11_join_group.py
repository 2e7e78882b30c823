"""JoinGroup: a member joins its group, or joins again for the next generation.

Behavior: the group's coordinator parks the request until every member has joined or the rebalance
timeout is over. A member without an id is sent back with one first (KIP-394).

Version notes:
  v0: the session timeout is the rebalance timeout as well. v1: rebalance timeout. v2: throttle
  time. v4: MEMBER_ID_REQUIRED. v5: static members (KIP-345). v6: flexible. v7: protocol type in the
  answer, a protocol name that may be null. v8: the client's reason (KIP-800). v9: skip_assignment
  (KIP-814).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kbroker.api.addresses import java_address
from kbroker.api.context import Context
from kbroker.api.durations import milliseconds
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_group, sight
from kbroker.group.classic.requests import JoinRequest, Protocols
from kbroker.group.outcome import Now, Outcome, Reply
from kbroker.group.settings import GroupSettings
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ

if TYPE_CHECKING:
    from kbroker.group.rooms import Rooms

_FIRST_WITH_NULL_PROTOCOL: Final = 7


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "protocol_name": _no_protocol(request.__version__)}


def _no_protocol(version: int) -> str | None:
    return None if version >= _FIRST_WITH_NULL_PROTOCOL else ""


@register(ApiKey.JOIN_GROUP, 0, 9, failed=_failed, parks=True)
def join_group(request: Any, context: Context) -> Steps[Response]:
    """Answer a JoinGroup request."""
    require_group(context, READ, request.group_id)
    asked = _asked(request, context, (yield from _protocols(request)))
    none = _no_protocol(context.version)

    def shaped(response: Response) -> Response:
        return {**response, "protocol_name": response.get("protocol_name") or none}

    def operation(rooms: Rooms, reply: Reply, now: Now) -> Outcome:
        outcome = rooms.classic.join(asked, lambda response: reply(shaped(response)), now)
        if outcome.response is None:
            return outcome
        return outcome._replace(response=shaped(outcome.response))

    def refusal(settings: GroupSettings) -> Response | None:
        refused = asked.refusal(settings)
        return None if refused is None else shaped(refused)

    return context.groups.handle(asked.group_id, context.answer, operation, refusal=refusal)


def _asked(request: Any, context: Context, protocols: Protocols) -> JoinRequest:
    session_ms = milliseconds(request.session_timeout)
    rebalance = getattr(request, "rebalance_timeout", None)
    return JoinRequest(
        version=context.version,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id or "",
        client_host=java_address(context.peer[0]),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance is None else milliseconds(rebalance),
        protocol_type=request.protocol_type,
        protocols=protocols,
        reason=getattr(request, "reason", None),
        sees=sight(context),
    )


def _protocols(request: Any) -> Steps[Protocols]:
    """Each name once, so that what is not the selected protocol's is counted.

    Apache Kafka counts a name that a member gives twice as two members', so that it selects
    another. Where there is no other it never answers; the first of that name is taken here.
    """
    times: Counter[str] = Counter()
    for protocol in request.protocols:
        times[protocol.name] += 1
        yield
    once = tuple((yield from collect(
        (each.name, each.metadata) for each in request.protocols if times[each.name] == 1
    )))  # fmt: skip
    if once or not request.protocols:
        return once
    first = request.protocols[0]
    return ((first.name, first.metadata),)
