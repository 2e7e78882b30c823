"""The classic group protocol with consumers of every library, and all of them in one group."""

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

LONG = pytest.mark.long

KINDS = (
    "confluent/range",
    "confluent/cooperative-sticky",
    "kafka-python/range",
    pytest.param("kafka-python/cooperative-sticky", marks=LONG),
    "aiokafka/range",
    pytest.param("aiokafka/sticky", marks=LONG),
    "java/cooperative-sticky",
    pytest.param("java/range", marks=LONG),
)


@pytest.mark.parametrize("kind", KINDS)
def test_members_come_and_go(team: Team, kind: str) -> None:
    come_and_go(team, kind)


def test_a_member_is_killed(team: Team) -> None:
    one_is_killed(team, "confluent/range")


@pytest.mark.parametrize(
    "commit", ["auto", pytest.param("sync", marks=LONG), pytest.param("async", marks=LONG)]
)
def test_libraries_in_one_group(team: Team, commit: str) -> None:
    """The range assignor is common to all; the leader's choice is everyone's."""
    kinds = ["confluent/range", "kafka-python/range", "aiokafka/range", "kcat/range"]
    members = [team.add(kind, commit=commit) for kind in kinds]
    team.wait_shared()
    team.produce(400)
    team.wait_delivered()
    team.stop(members[0])
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    team.add("java/range", commit=commit)
    team.wait_shared()
    team.produce(200)
    finish(team)


@pytest.mark.parametrize(
    "kind",
    [
        "confluent/range",
        "kafka-python/range",
        "aiokafka/range",
        pytest.param("java/range", marks=LONG),
    ],
)
def test_a_static_member_returns_to_its_partitions(team: Team, kind: str) -> None:
    """Killed and started again within its session (KIP-345)."""
    a_seat_is_kept(team, kind, killed=True)


@pytest.mark.parametrize("kind", ["confluent/range", "java/range"])
def test_a_seat_is_taken_from_who_sits_there(team: Team, kind: str) -> None:
    a_seat_is_taken(team, kind)
