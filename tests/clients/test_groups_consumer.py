"""The group protocol of KIP-848: librdkafka and the Java consumer are the judges."""

from __future__ import annotations

import pytest

from tests.clients.sharing import a_seat_is_kept, come_and_go, finish, one_is_killed
from tests.support.members.team import Team

KINDS = ("confluent/consumer", "java/consumer")


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(team: Team, kind: str) -> None:
    come_and_go(team, kind)


@pytest.mark.parametrize(
    "kind", ["confluent/consumer", pytest.param("java/consumer", marks=pytest.mark.long)]
)
def test_a_member_is_killed(team: Team, kind: str) -> None:
    one_is_killed(team, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_member_returns_to_its_partitions(team: Team, kind: str) -> None:
    """It has said that it is gone for a while; else its seat is taken until its session expires."""
    a_seat_is_kept(team, kind, killed=False)


@pytest.mark.parametrize("commit", ["auto", "sync", pytest.param("async", marks=pytest.mark.long)])
def test_libraries_in_one_group(team: Team, commit: str) -> None:
    first = team.add("confluent/consumer", commit=commit)
    team.add("java/consumer", commit=commit)
    team.add("confluent/consumer", commit=commit)
    team.wait_shared()
    team.produce(400)
    team.wait_delivered()
    team.stop(first)
    team.wait_shared()
    team.produce(200)
    finish(team)


@pytest.mark.long
def test_two_protocols_in_one_group(team: Team) -> None:
    """A classic group goes over to the new protocol and back, under way."""
    classic = [team.add("confluent/range") for _ in range(2)]
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    modern = [team.add("confluent/consumer"), team.add("java/consumer")]
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    assert team.described().group_type == "consumer"
    team.stop(*classic)
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    team.add("aiokafka/range")
    team.wait_shared()
    team.stop(*modern)
    team.wait_shared()
    team.produce(200)
    finish(team)
    assert team.described().group_type == "classic"
