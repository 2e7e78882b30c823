"""Whether other users of the machine read what is secret: `kbroker check`'s row of permissions."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cli.finding import OK, WARNING, Finding

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

__all__ = ["permissions"]

_LISTED = stat.S_IROTH | stat.S_IXOTH


def permissions(
    place: Path, config: BrokerConfig | None, config_file: Path | None
) -> Iterator[Finding]:
    """The data directory, those beside it, and the settings file where it has a password."""
    places = [place]
    if config is not None and str(place) in config.log_dirs:
        places = [Path(one) for one in config.log_dirs]
    found = False
    for one in places:
        if _open_to_others(one, _LISTED):
            found = True
            yield Finding("permissions", WARNING,
                          f"every user of this machine reads {one}: records, and the passwords and"
                          f" keys in the metadata log; `chmod o-rwx {one}`")  # fmt: skip
    if config_file is not None and _open_to_others(config_file, stat.S_IROTH):
        names = _secrets(config_file)
        if names:
            found = True
            yield Finding("permissions", WARNING,
                          f"every user of this machine reads {', '.join(names)} in {config_file};"
                          f" `chmod o-rwx {config_file}`")  # fmt: skip
    if not found:
        yield Finding("permissions", OK, "other users of this machine read neither data nor"
                      " passwords")  # fmt: skip


def _open_to_others(path: Path, bits: int) -> bool:
    """Whether it has one of these bits, and others get as far as there."""
    try:
        inside = path.resolve()
        return bool(inside.stat().st_mode & bits) and all(
            above.stat().st_mode & stat.S_IXOTH for above in inside.parents
        )
    except OSError:  # it is not there yet, or not this user's to see
        return False


def _secrets(config_file: Path) -> list[str]:
    """The settings of a file whose values are never shown."""
    from kbroker.config import ConfigError
    from kbroker.config.definitions import is_secret
    from kbroker.config.properties import property_values

    try:
        return sorted(filter(is_secret, property_values(config_file)))
    except ConfigError:
        return []
