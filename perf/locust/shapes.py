"""How many users there are at each moment of a run.

    flat   all of them at once, to the end
    step   a fifth of them, two fifths, ... each for a fifth of the time
    spike  a fifth of them, then all for a fifth of the time, then a fifth again
    soak   all of them, brought in over a twentieth of the time, to the end
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Phase(NamedTuple):
    """Until this share of the time, this share of the users."""

    until: float
    users: float


PROFILES = {
    "flat": (Phase(1.0, 1.0),),
    "step": tuple(Phase(part / 5, part / 5) for part in range(1, 6)),
    "spike": (Phase(0.4, 0.2), Phase(0.6, 1.0), Phase(1.0, 0.2)),
    "soak": (Phase(1.0, 1.0),),
}
_SOAK_RAMP = 0.05


def users_at(profile: str, users: int, seconds: float, now_s: float) -> tuple[int, float] | None:
    """(users, users to start a second) at a moment; None: the run is over."""
    if now_s >= seconds:
        return None
    share = next(phase.users for phase in PROFILES[profile] if now_s < phase.until * seconds)
    wanted = max(math.ceil(users * share), 1)
    ramp_s = max(seconds * _SOAK_RAMP, 1.0)
    return wanted, max(wanted / ramp_s, 1.0) if profile == "soak" else float(wanted)
