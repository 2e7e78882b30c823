"""Log of records that were not delivered and whose outcome the application does not ask for."""

from __future__ import annotations

import logging
from collections import Counter

from kbroker.client.native_threads import Lock
from kbroker.ext.client_clock import monotonic

__all__ = ["Failures"]

_PAUSE_S = 60.0  # between two lines of one kind
_log = logging.getLogger("kbroker.client.producer")


class Failures:
    """Failures of one producer, by kind: the class of the error, and the topic."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards what follows
        self._records: Counter[tuple[str, str]] = Counter()
        self._logged: Counter[tuple[str, str]] = Counter()  # of these
        self._next_s: dict[tuple[str, str], float] = {}

    @property
    def records(self) -> int:
        """Records so far."""
        return self._records.total()

    def note(self, error: Exception, topic: str, records: int) -> None:
        """Count a failure and log it, each kind at most once a minute."""
        kind = type(error).__name__, topic
        now = monotonic()
        with self._lock:
            self._records[kind] += records
            if now < self._next_s.get(kind, now):
                return
            self._next_s[kind] = now + _PAUSE_S
            count = self._records[kind] - self._logged[kind]
            self._logged[kind] = self._records[kind]
        _log.error(
            "records were not delivered, and the application has not asked for their outcome by"
            " result() or on_delivery: topic=%s records=%d error=%s: %s",
            topic, count, kind[0], error,
        )  # fmt: skip

    def report(self) -> None:
        """Log all of them, when the producer is closed."""
        with self._lock:
            kinds = list(self._records.items())
        for (name, topic), count in kinds:
            _log.error(
                "closed; records were not delivered, and the application did not ask for their"
                " outcome: topic=%s records=%d error=%s", topic, count, name,
            )  # fmt: skip
