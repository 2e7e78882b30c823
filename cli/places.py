"""Where a broker keeps its data unless told. Free of click: every start passes here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kbroker.log_dirs import metadata_first

__all__ = ["SERVICE_FILE", "data_dirs", "default_data_dir", "default_data_dirs", "service_file",
           "stop_command"]  # fmt: skip

#: Settings of the broker that kbroker.service runs.
SERVICE_FILE: Final = Path("/etc/kbroker/server.properties")
_SERVICE_DATA: Final = Path("/var/lib/kbroker")


def default_data_dir() -> Path:
    """Return the first of `default_data_dirs`, which has the metadata log."""
    return default_data_dirs()[0]


def default_data_dirs() -> list[Path]:
    """Return the service's directories for root, else the user's; $KBROKER_DATA_DIR wins, which may
    name several with commas as log.dirs does."""
    named = [Path(one) for one in os.environ.get("KBROKER_DATA_DIR", "").split(",") if one.strip()]
    if named:
        return named
    if os.geteuid() == 0:
        return _service_data()
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return [Path(home) / "kbroker" / "data"]


def service_file() -> Path | None:
    """The service's settings, where root that names no other place means its broker."""
    if os.geteuid() == 0 and not os.environ.get("KBROKER_DATA_DIR") and SERVICE_FILE.is_file():
        return SERVICE_FILE
    return None


def _service_data() -> list[Path]:
    """What log.dirs of the service's settings says, be they right otherwise or not."""
    if not SERVICE_FILE.is_file():
        return [_SERVICE_DATA]
    from kbroker.config.properties import property_values
    from kbroker.config.types import ConfigError

    try:
        told = property_values(SERVICE_FILE)
    except ConfigError:
        return [_SERVICE_DATA]
    return data_dirs(told) or [_SERVICE_DATA]


def data_dirs(told: Mapping[str, str]) -> list[Path]:
    """The directories that settings name, the one with the metadata log first."""
    named = told.get("log.dirs") or told.get("log.dir") or ""
    found = dict.fromkeys(filter(None, map(str.strip, named.split(","))))
    return [Path(one) for one in metadata_first(found, told.get("metadata.log.dir"))]


def stop_command(place: Path) -> str:
    """What to type to end the broker of a data directory."""
    default = place.absolute() == default_data_dir().absolute()
    return "kbroker stop" if default else f"kbroker stop --data-dir {place}"
