"""Named connection settings, in $XDG_CONFIG_HOME/kbroker/profiles.toml (~/.config/kbroker).

    current = "prod"                      # used where a command names no broker; may be missing

    [profile.prod]
    "bootstrap.servers" = "a:9092,b:9092"
    "security.protocol" = "SASL_SSL"      # any setting of a producer, consumer or admin
    "sasl.password" = "..."

The file is its owner's alone (0600), since it may hold secrets, and is replaced whole. Who changes
it holds a lock on its folder meanwhile. Edited by hand, numbers and dotted names without quotes
are understood too. Free of click.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbroker.cli.nearest import did_you_mean
from kbroker.errors import OperatorError

__all__ = ["Profiles", "change_profiles", "profile_named", "profiles_file", "read_profiles"]


@dataclass(slots=True)
class Profiles:
    """The content of the file."""

    current: str | None = None
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def named(self, name: str) -> dict[str, str]:
        """The settings of a profile. Raises OperatorError, with the nearest name."""
        if name not in self.settings:
            hint = did_you_mean(name, self.settings) or "; `kbroker profile list` shows them"
            raise OperatorError(f"there is no profile {name!r}{hint}")
        return self.settings[name]


def profiles_file() -> Path:
    """Where the profiles are."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "kbroker" / "profiles.toml"


def read_profiles() -> Profiles:
    """The profiles there are. Raises OperatorError for a file that cannot be read or understood."""
    path = profiles_file()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"cannot read {path}: {error}") from None
    import tomllib

    try:
        found = tomllib.loads(text)
        current, tables = found.pop("current", None), found.pop("profile", {})
        if found or not isinstance(current, str | None) or not isinstance(tables, dict):
            raise ValueError("it holds `current` and tables [profile.NAME], nothing else")
        return Profiles(current, {name: dict(_flat(table)) for name, table in tables.items()})
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from None


def profile_named(name: str | None) -> dict[str, str]:
    """The settings of this profile, or with None of the current one, empty where there is none."""
    profiles = read_profiles()
    if name is None and profiles.current is None:
        return {}
    return dict(profiles.named(name or profiles.current or ""))


@contextlib.contextmanager
def change_profiles() -> Iterator[Profiles]:
    """The profiles, written back when the block ends without an error."""
    path = profiles_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # ends with the descriptor
        profiles = read_profiles()
        yield profiles
        _write(Path(os.path.realpath(path)), _text(profiles))
    finally:
        os.close(folder)


def _flat(table: Any, before: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(table, dict):
        raise ValueError("a profile is a table of settings")
    for key, value in table.items():
        name = before + key.replace("_", ".")
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, bool):
            yield name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise ValueError(f"{name}: write text, a number, true or false")


def _text(profiles: Profiles) -> str:
    lines = [] if profiles.current is None else [f"current = {_quoted(profiles.current)}", ""]
    for name, settings in sorted(profiles.settings.items()):
        lines.append(f"[profile.{_quoted(name)}]")
        lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(settings.items())]
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OperatorError(f"cannot write {path}: {error.strerror}") from None
