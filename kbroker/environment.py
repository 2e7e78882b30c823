"""Variables of the environment that may be settings of the broker; which of them are, is
kbroker.config.environment's to say.

`KBROKER_LOG_RETENTION_MS=1000` sets log.retention.ms, as `KAFKA_...` does for Apache Kafka's
container image: lower case, `_` for a dot, `__` for an underscore, `___` for a dash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KBROKER_"
LOG_FILE: Final = f"{PREFIX}LOG_FILE"  # where `kbroker start --detach` has the log go
PASSWORD: Final = f"{PREFIX}PASSWORD"  # see kbroker.cli.passwords
# What `kbroker start` hands to the broker, see kbroker.security.handed.
START_FILE: Final = f"{PREFIX}START_FILE"
START_SETTINGS: Final = f"{PREFIX}START_SETTINGS"
START_USERS: Final = f"{PREFIX}START_USERS"
# Those that mean something to the command line, the service or the build, and are no settings.
_OTHERS: Final = frozenset(
    PREFIX + name
    for name in (
        "BOOTSTRAP_SERVER", "BUILD_JOBS", "DATA_DIR", "DEBUG", "KAFKA_LIBS", "LOG_FILE", "OPTS",
        "PASSWORD", "PROFILE", "START_FILE", "START_SETTINGS", "START_USERS",
    )
)  # fmt: skip
_OF_TESTS: Final = f"{PREFIX}TEST"


def setting_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Value by variable."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in _OTHERS and not name.startswith(_OF_TESTS)
    }
