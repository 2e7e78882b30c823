"""Rolling restarts of consumers under load: at least once, whoever reads and however it commits."""

from __future__ import annotations

import pytest

from tests.clients.test_groups_kills import COMMITS, Scene, scene
from tests.support.members.team import Team
from tests.support.rounds import combined, scaled

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

__all__ = ["scene"]

TEAMS = [
    ["confluent/range"],
    ["confluent/cooperative-sticky"],
    ["confluent/consumer"],
    ["java/cooperative-sticky"],
    ["java/consumer"],
    ["confluent/consumer", "java/consumer"],
    ["confluent/range", "kafka-python/range", "aiokafka/range", "kcat/range", "java/range"],
]


def joined(words: list[str] | str) -> str:
    """Name a team, or a way to commit."""
    return words if isinstance(words, str) else " ".join(words)


ROUNDS = scaled(4, full=8)


# How members commit is theirs alone: each way with some of the teams.
@pytest.mark.parametrize(("kinds", "commit"), combined(TEAMS, COMMITS), ids=joined)
def test_one_after_another(scene: Scene, kinds: list[str], commit: str) -> None:
    """Three members; the oldest leaves, or is killed, and another comes in its place.

    But kcat stays: told to end, it drops the record in its hand, and commits it all the same.
    """
    team = scene.team
    mortal = [kind for kind in kinds if not kind.startswith("kcat")]
    for at in range(max(3, len(kinds) - 1)):
        team.add(kinds[at % len(kinds)], commit=commit)
    team.wait_shared()
    for turn in range(ROUNDS):
        scene.later()
        oldest = next(member for member in team.live() if not member.is_kcat)
        if turn % 3 == 2:
            team.kill(oldest)
        else:
            team.stop(oldest)
        team.add(mortal[(turn + 3) % len(mortal)], commit=commit)
        team.check_commits()
        if turn % 2:
            team.wait_shared()
            team.check_commits()
    scene.finish()


@pytest.mark.parametrize("kind", ["confluent/range", "java/range"])
def test_static_members_roll_without_a_rebalance(scene: Scene, kind: str) -> None:
    """Each seat is left and taken again within its session; the others never hear of it."""
    team: Team = scene.team
    seats = {seat: team.add(kind, instance=seat) for seat in ("one", "two", "three")}
    team.wait_shared()
    before = {seat: (set(m.history.owned), m.history.changes) for seat, m in seats.items()}
    for seat, member in list(seats.items()):
        scene.later()
        team.stop(member)
        seats[seat] = team.add(kind, instance=seat)
        team.wait_shared()
        assert seats[seat].history.owned == before[seat][0]
        for other in seats.keys() - {seat}:
            assert seats[other].history.changes <= before[other][1]
        team.check_commits()
    scene.finish()
