"""Values that stand elsewhere: `${NAME:PATH:KEY}` and `${NAME:KEY}` in static settings (KIP-421).

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.file.param.allowed.paths=/etc/kbroker/secrets
    listener.name.sasl.plain.sasl.jaas.config=... user_app="${file:/etc/kbroker/secrets/pw:app}";

The providers are Apache Kafka's own three (KIP-297, KIP-993): keys of a properties file, files of a
directory, variables of the environment. Kafka takes a variable that it cannot look up as it is
written, so that `${...}` would be the password; here that is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kbroker.config.properties import property_values
from kbroker.config.types import ConfigError

NAMES: Final = "config.providers"
_PREFIX: Final = f"{NAMES}."
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_ALLOWED_PATHS: Final = "allowed.paths"
_ALLOWED_VARIABLES: Final = "allowlist.pattern"
# As Kafka's, but for the { that no name has: `${HOME` before a variable does not hide it.
_VARIABLE: Final = re.compile(r"\$\{([^}{:]*):(?:([^}:]*):)?([^}]*)\}")

# What a provider answers to a path, which may be empty, and a key. Raises ConfigError.
Provider = Callable[[str, str], str]


def providers_of(static: Mapping[str, str]) -> dict[str, Provider]:
    """The providers by their names. Raises ConfigError for what would not be heeded."""
    names = [name.strip() for name in static.get(NAMES, "").split(",") if name.strip()]
    for key in static:
        if key.startswith(_PREFIX) and key[len(_PREFIX) :].partition(".")[0] not in names:
            raise ConfigError(f"{key}: {NAMES} does not name this provider")
    return {name: _provider(name, static) for name in names}


def resolve(text: str, providers: Mapping[str, Provider]) -> str:
    """`text` with what its variables stand for. Raises ConfigError."""

    def found(variable: re.Match[str]) -> str:
        name, path, key = variable.groups(default="")
        if name not in providers:
            raise ConfigError(f"{variable[0]}: {NAMES} does not name {name or 'this'}")
        try:
            return providers[name](path, key)
        except ConfigError as error:
            raise ConfigError(f"{variable[0]}: {error}") from None

    return _VARIABLE.sub(found, text)


def refuse_variable(name: str, text: str) -> None:
    """For values altered while the broker runs: who may alter settings would read files
    by them otherwise. Raises ConfigError."""
    if _VARIABLE.search(text):
        raise ConfigError(f"{name}: variables of {NAMES} stand in the settings file only")


def _provider(name: str, static: Mapping[str, str]) -> Provider:
    prefix = f"{_PREFIX}{name}."
    told = {key[len(prefix) :]: text for key, text in static.items() if key.startswith(prefix)}
    java = told.pop("class", "").strip()
    if java.removeprefix(_PACKAGE) not in _MAKERS:
        known = ", ".join(_PACKAGE + one for one in _MAKERS)
        raise ConfigError(f"{prefix}class: {java or 'not set'}; kbroker has {known}")
    parameter, all_allowed, make = _MAKERS[java.removeprefix(_PACKAGE)]
    text = told.pop(f"param.{parameter}", all_allowed)
    for other in told:
        raise ConfigError(f"{prefix}{other}: unknown; of {java} there is param.{parameter}")
    try:
        return make(text)
    except (ConfigError, re.error) as error:
        raise ConfigError(f"{prefix}param.{parameter}: {error}") from None


def _files(allowed_paths: str) -> Provider:
    allowed = _allowed_paths(allowed_paths)

    def get(path: str, key: str) -> str:
        values = property_values(_permitted(path, allowed))
        if key not in values:
            raise ConfigError(f"{path} has no key {key}")
        return values[key]

    return get


def _directories(allowed_paths: str) -> Provider:
    allowed = _allowed_paths(allowed_paths)

    def get(path: str, key: str) -> str:
        file = _permitted(path, allowed) / key
        if file.name != key or not file.is_file():
            raise ConfigError(f"{path} has no file {key}")
        try:
            return file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from None

    return get


def _environment(allowed_variables: str) -> Provider:
    """The pattern is of whole names, as Kafka's: a part of one would let in more."""
    pattern = re.compile(allowed_variables)

    def get(path: str, key: str) -> str:
        if path:
            raise ConfigError("a variable of the environment has no path: write ${NAME:KEY}")
        if not pattern.fullmatch(key):
            raise ConfigError(f"{_ALLOWED_VARIABLES} does not allow {key}")
        if key not in os.environ:
            raise ConfigError(f"there is no variable {key} in the environment")
        return os.environ[key]

    return get


# By class: its parameter, what that is where nobody set it, and the provider with it.
_MAKERS: Final[dict[str, tuple[str, str, Callable[[str], Provider]]]] = {
    "FileConfigProvider": (_ALLOWED_PATHS, "", _files),
    "DirectoryConfigProvider": (_ALLOWED_PATHS, "", _directories),
    "EnvVarConfigProvider": (_ALLOWED_VARIABLES, ".*", _environment),
}


def _allowed_paths(text: str) -> list[Path]:
    """Normalized as they are written, links not followed, as Kafka does; empty allows all."""
    paths = [Path(os.path.normpath(one.strip())) for one in text.split(",") if one.strip()]
    for path in paths:
        if not path.is_absolute() or not path.exists():
            raise ConfigError(f"{path} is not an absolute path of something that exists")
    return paths


def _permitted(path: str, allowed: list[Path]) -> Path:
    if not path:
        raise ConfigError("no path: write ${NAME:PATH:KEY}")
    wanted = Path(os.path.normpath(path))
    if allowed and not any(wanted.is_relative_to(one) for one in allowed):
        raise ConfigError(f"{_ALLOWED_PATHS} does not allow {path}")
    return wanted
