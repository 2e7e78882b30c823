"""The requests of a scrape: how many, how long in which phase, as Apache Kafka and as kbroker name
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.metrics.family import Samples
from kbroker.metrics.histogram import Counted, add_histogram, add_summary
from kbroker.protocol import ApiKey

if TYPE_CHECKING:
    from kbroker.ext.data_plane import DataPlane

_NS: Final = 1e9
_NS_PER_MS: Final = 1e6
_BYTES: Final = 1.0
# In the order of ext/times.pxd: kbroker's name of each phase, and Apache Kafka's.
PHASES: Final = (
    ("queue", "requestqueuetimems"),
    ("local", "localtimems"),
    ("remote", "remotetimems"),
    ("response", "responsequeuetimems"),
    ("send", "responsesendtimems"),
    ("total", "totaltimems"),
)
_PURGATORIES: Final = (ApiKey.PRODUCE, ApiKey.FETCH)
_CONSUMERS_FETCH: Final = "FetchConsumer"  # Kafka tells it apart from followers', and sums both


def api_name(key: int) -> str:
    """As Apache Kafka's metrics spell it: OffsetForLeaderEpoch."""
    try:
        words = ApiKey(key).name.split("_")
    except ValueError:
        return str(key)
    return "".join(word.capitalize() for word in words)


def add_requests(samples: Samples, data_plane: DataPlane) -> None:
    """All APIs that were asked for."""
    times = data_plane.engine.request_times()
    for key, (versions, size, waiting, phases) in times.items():
        name = api_name(key)
        labels = f'request="{name}"'
        samples.add("kbroker_request_bytes_total", size, labels)
        samples.add("kbroker_requests_waiting", waiting, labels)
        for (phase, _), told in zip(PHASES, phases, strict=True):
            at = f'{labels},phase="{phase}"'
            add_histogram(samples, "kbroker_request_phase_seconds", Counted(*told), _NS, at)
        for spelled in (name, _CONSUMERS_FETCH) if key == ApiKey.FETCH else (name,):
            _as_kafka(samples, spelled, versions, phases)
    for key in _PURGATORIES:
        waiting = times[key][2] if key in times else 0
        samples.add("kafka_server_delayedoperationpurgatory_purgatorysize", waiting,
                    f'delayedoperation="{api_name(key)}"')  # fmt: skip
    add_histogram(samples, "kbroker_gil_wait_seconds", Counted(*data_plane.engine.gil_waits()), _NS)


def _as_kafka(
    samples: Samples,
    name: str,
    versions: dict[int, int],
    phases: list[tuple[int, list[int]]],
) -> None:
    labels = f'request="{name}"'
    for version, count in versions.items():
        samples.add("kafka_network_requestmetrics_requests_total", count,
                    f'{labels},version="{version}"')  # fmt: skip
    for (_, phase), told in zip(PHASES, phases, strict=True):
        metric = f"kafka_network_requestmetrics_{phase}"
        add_summary(samples, metric, Counted(*told), _NS_PER_MS, labels)


def add_journal(samples: Samples, data_plane: DataPlane) -> None:
    """Its groups; nothing without a journal."""
    told = data_plane.journal_histograms()
    if told is None:
        return
    syncs, sizes = (Counted(*one) for one in told)
    add_histogram(samples, "kbroker_journal_sync_seconds", syncs, _NS)
    add_histogram(samples, "kbroker_journal_group_bytes", sizes, _BYTES)
    add_summary(samples, "kafka_log_logflushstats_logflushrateandtimems", syncs, _NS_PER_MS)
