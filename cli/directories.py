"""The log directories of a broker, for commands that read them.

They are those of --data-dir, which may be given several times; else `log.dirs` of --config; else
the default ones (kbroker.cli.places). Added to them are those that the last start of the broker
knew (kbroker.metadata.directories).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kbroker import runfile
from kbroker.cli.options import CONFIG_META
from kbroker.cli.places import data_dirs, default_data_dirs

__all__ = ["log_directories", "main_directory"]

_METADATA = "__cluster_metadata-0"


def log_directories(named: Sequence[Path]) -> list[Path]:
    """Return all log directories, the one with the metadata log first; one that is not there too.
    Raise ConfigError for a settings file that cannot be read."""
    from kbroker.metadata.directories import further

    given = _given(named)
    first = _main_of(given)
    found: dict[Path, Path] = {}
    for one in (first, *given, *further(first)):
        found.setdefault(one.resolve(), one)
    return list(found.values())


def main_directory(named: Sequence[Path]) -> Path:
    """Return the directory with the metadata log, where a running broker has its run file."""
    return _main_of(_given(named))


def _given(named: Sequence[Path]) -> list[Path]:
    return list(named) or _configured() or default_data_dirs()


def _main_of(given: Sequence[Path]) -> Path:
    return next((one for one in given if _is_main(one)), given[0])


def _is_main(place: Path) -> bool:
    return (place / _METADATA).is_dir() or runfile.run_file(place).exists()


def _configured() -> list[Path]:
    """The directories that --config names, if it was given."""
    context = click.get_current_context(silent=True)
    file = context.meta.get(CONFIG_META) if context is not None else None
    if file is None:
        return []
    from kbroker.config.properties import property_values

    return data_dirs(property_values(file))
