"""Groups of this client's consumers in several processes, and with other clients in one group.

At least once: every record is seen, nothing is committed that was not, and commits never go back.
"""

from __future__ import annotations

import pytest

from tests.clients.sharing import (
    a_seat_is_kept,
    a_seat_is_taken,
    come_and_go,
    finish,
    one_is_killed,
)
from tests.support.members.team import Team
from tests.support.rounds import combined

LONG = pytest.mark.long
KINDS = (
    "kbroker/range",
    "kbroker/cooperative-sticky",
    "kbroker/consumer",
    pytest.param("kbroker/roundrobin", marks=LONG),
    pytest.param("kbroker/sticky", marks=LONG),
)


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(team: Team, kind: str) -> None:
    come_and_go(team, kind)


@pytest.mark.parametrize(
    "kind", [pytest.param("kbroker/cooperative-sticky", marks=LONG), "kbroker/consumer"]
)
def test_a_member_is_killed(team: Team, kind: str) -> None:
    one_is_killed(team, kind)


@pytest.mark.parametrize("kind", ["kbroker/range", "kbroker/consumer"])
def test_a_static_member_returns_to_its_partitions(team: Team, kind: str) -> None:
    a_seat_is_kept(team, kind, killed=kind == "kbroker/range")


@pytest.mark.parametrize("kind", ["kbroker/range"])
def test_a_seat_is_taken_from_who_sits_there(team: Team, kind: str) -> None:
    a_seat_is_taken(team, kind)


@pytest.mark.long
@pytest.mark.parametrize(
    ("protocol", "commit"),
    combined(["range", "cooperative-sticky", "consumer"], ["auto", "sync", "async"]),
)
def test_with_other_clients_in_one_group(team: Team, protocol: str, commit: str) -> None:
    """Each in turn has to lead, when the one before it has left."""
    kinds = [f"{library}/{protocol}" for library in ("kbroker", "confluent", "java")]
    members = [team.add(kind, commit=commit) for kind in kinds]
    team.wait_shared()
    team.produce(400)
    team.wait_delivered()
    for member, kind in zip(members, kinds, strict=True):
        team.stop(member)
        team.wait_shared()
        team.produce(100)
        team.wait_delivered()
        team.add(kind, commit=commit)
        team.wait_shared()
    team.produce(200)
    finish(team)
