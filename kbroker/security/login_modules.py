"""Settings of a mechanism in `sasl.jaas.config`, whose login module has to be the mechanism's."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config.types import ConfigError
from kbroker.jaas import parse_jaas


def module_options(text: str, module: str, mechanism: str) -> Mapping[str, str]:
    """The options of `module`, named with or without its package. Raises ConfigError."""
    try:
        found, options = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if found.rpartition(".")[2] != module:
        raise ConfigError(f"sasl.jaas.config: {found} is not for {mechanism}, which wants {module}")
    return options
