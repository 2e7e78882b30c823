"""Whose data directory it is: root may start a broker on root's only."""

from __future__ import annotations

import os
from pathlib import Path

from kbroker.errors import OperatorError

__all__ = ["refuse_foreign"]

_SERVICE = "kbroker"
_QUOTE = "'"


def refuse_foreign(place: Path) -> None:
    """What root writes into a directory of somebody else, its owner cannot open: the next start of
    the service would fail. Raises OperatorError; others than root are stopped by the kernel."""
    if os.geteuid() != 0:
        return
    try:
        owner = place.stat().st_uid
    except OSError:
        return  # not there yet, or the start says what is wrong with it
    if owner == 0:
        return
    name = _name(owner)
    way = f"`sudo -u {name} kbroker start`"
    if name == _SERVICE:
        way = f"`systemctl start kbroker`, or by hand {way}"
    raise OperatorError(
        f"{place} belongs to {name.strip(_QUOTE)}, who could not open what root"
        f" writes there; start the broker as that user: {way}"
    )


def _name(number: int) -> str:
    """As sudo takes it."""
    import pwd  # noqa: PLC0415  not every start

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"'#{number}'"
