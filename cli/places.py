"""Where a broker keeps its data unless told. Free of click: every start passes here."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["default_data_dir", "stop_command"]


def default_data_dir() -> Path:
    """A service's place for root, else the user's; $KBROKER_DATA_DIR wins."""
    told = os.environ.get("KBROKER_DATA_DIR")
    if told:
        return Path(told)
    if os.geteuid() == 0:
        return Path("/var/lib/kbroker")
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "kbroker" / "data"


def stop_command(place: Path) -> str:
    """What to type to end the broker of a data directory."""
    default = place.absolute() == default_data_dir().absolute()
    return "kbroker stop" if default else f"kbroker stop --data-dir {place}"
