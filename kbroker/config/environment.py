"""Settings from the environment: which variable sets what (see kbroker.environment)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kbroker.config.definitions import BROKER, find_broker_key, is_plugin_key
from kbroker.config.types import ConfigError
from kbroker.environment import PREFIX, setting_variables

_OWN: Final = "kbroker."
_NEAR: Final = 0.85


def environment_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that sets a key, by key.

    kbroker's own keys may leave out their first word: KBROKER_DURABILITY. A variable that is no
    key is somebody else's (Kubernetes makes KBROKER_SERVICE_HOST of a service), but for one that
    looks like a key mistyped: that is a ConfigError.
    """
    found: dict[str, str] = {}
    for variable in setting_variables(environment):
        name = re.sub("_{1,3}", _mark, variable.removeprefix(PREFIX).lower())
        keys = [key for key in (name, _OWN + name) if find_broker_key(key) or is_plugin_key(key)]
        if not keys:
            _refuse_mistyped(variable, name)
            continue
        if keys[0] in found:
            raise ConfigError(f"{found[keys[0]]} and {variable} both set {keys[0]}")
        found[keys[0]] = variable
    return found


def _mark(underscores: re.Match[str]) -> str:
    return "._-"[len(underscores[0]) - 1]


def variable_of(key: str) -> str:
    """The variable that sets a key."""
    name = key.replace("_", "__").replace("-", "___").replace(".", "_")
    return f"{PREFIX}{name.upper()}"


def _refuse_mistyped(variable: str, name: str) -> None:
    import difflib  # noqa: PLC0415  only for what is no key

    near = difflib.get_close_matches(name, BROKER, n=1, cutoff=_NEAR)
    if near:
        raise ConfigError(f"{variable}: unknown key {name}: did you mean {variable_of(near[0])}?")
