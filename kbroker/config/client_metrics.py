"""Settings of client metrics subscriptions (KIP-714): which clients send what, how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.config.definitions import CLIENT_METRICS
from kbroker.config.types import ConfigError, parse_value
from kbroker.errors import ClientError, ErrorCode
from kbroker.linear_regex import compile_linear

_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"
_METRICS: Final = "metrics"
_INTERVAL_MS: Final = range(100, 3_600_001)
_MATCHED: Final = frozenset({
    "client_id", "client_instance_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
})  # fmt: skip


def validate_subscription(settings: Mapping[str, str]) -> None:
    """Check settings that are about to be stored. Raises ConfigError, or ClientError where Apache
    Kafka answers INVALID_REQUEST."""
    for name in settings:
        if name not in CLIENT_METRICS:
            text = f"Unknown client metrics config name: {name}"
            raise ClientError(ErrorCode.INVALID_REQUEST, text)
    values = {name: parse_value(CLIENT_METRICS[name], text) for name, text in settings.items()}
    interval = values.get(_INTERVAL)
    if isinstance(interval, int) and interval not in _INTERVAL_MS:
        raise ClientError(
            ErrorCode.INVALID_REQUEST, f"{_INTERVAL} must be between 100 and 3600000 (an hour)"
        )
    patterns = values.get(_MATCH)
    for pattern in patterns if isinstance(patterns, list) else ():
        _check_pattern(pattern)


def subscription(settings: Mapping[str, str]) -> tuple[tuple[str, ...], int, dict[str, str]]:
    """Metrics, interval in ms, and patterns by attribute, of settings that were checked."""
    values = {
        name: parse_value(key, settings.get(name, key.default))
        for name, key in CLIENT_METRICS.items()
    }
    metrics, interval, patterns = values[_METRICS], values[_INTERVAL], values[_MATCH]
    assert isinstance(metrics, list) and isinstance(interval, int) and isinstance(patterns, list)
    match = (pattern.partition("=") for pattern in patterns)
    return (
        tuple(filter(None, metrics)),
        interval,
        {name.strip(): expression.strip() for name, _, expression in match if name},
    )


def _check_pattern(text: str) -> None:
    """PARAMETER=REGULAR EXPRESSION, without another `=`."""
    name, _, expression = text.partition("=")
    try:
        if name.strip() in _MATCHED and expression and "=" not in expression:
            compile_linear(expression.strip())
            return
    except ValueError as error:
        raise ConfigError(f"{_MATCH}: {text}: {error} (the syntax is RE2's)") from None
    raise ConfigError(f"{_MATCH}: {text} is not PARAMETER=PATTERN")
