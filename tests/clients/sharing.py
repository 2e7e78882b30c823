"""What members of one group go through, whatever their library and protocol."""

from __future__ import annotations

from tests.support.members.team import Team
from tests.support.waits import wait_for


def finish(team: Team) -> None:
    """Everything is read and committed, and stays so when all have left."""
    team.wait_delivered()
    team.wait_committed()
    team.stop(*team.live())
    assert team.check_commits() == team.ends()


def come_and_go(team: Team, kind: str) -> None:
    """Two share, a third comes, the first leaves: each record is delivered exactly once."""
    first = team.add(kind)
    team.add(kind)
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    third = team.add(kind, commit="async")
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    team.stop(first)
    team.wait_shared()
    team.produce(200)
    finish(team)
    assert third.history.left
    assert team.repeated() == 0


def one_is_killed(team: Team, kind: str) -> None:
    """What it had goes to the other when its session is over."""
    first = team.add(kind, commit="auto")
    team.add(kind, commit="auto")
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    team.kill(first)
    team.produce(200)
    team.wait_shared()
    finish(team)


def a_seat_is_kept(team: Team, kind: str, *, killed: bool) -> None:
    """A static member is gone for a while, comes back to what it had, and nobody else notices."""
    first, second = (team.add(kind, instance=seat) for seat in ("one", "two"))
    team.wait_shared()
    team.produce(200)
    team.wait_delivered()
    had, changes = set(first.history.owned), second.history.changes
    if killed:
        team.kill(first)
    else:
        team.stop(first)
    again = team.add(kind, instance="one")
    team.wait_shared()
    assert again.history.owned == had
    assert second.history.changes == changes
    team.produce(200)
    finish(team)


def a_seat_is_taken(team: Team, kind: str) -> None:
    """A second member with the instance id of the first, which is fenced."""
    first = team.add(kind, instance="seat")
    team.wait_shared()
    team.produce(100)
    team.wait_delivered()
    team.add(kind, instance="seat")
    wait_for("the first is fenced", lambda: "enced" in team.errors(first), 30)
    team.kill(first)
    team.wait_shared()
    team.produce(100)
    finish(team)
