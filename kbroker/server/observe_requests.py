"""The requests of a scrape: how many, how long in which phase, as Apache Kafka and as kbroker name
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.api.k18_api_versions import VERSION_MAX
from kbroker.errors import ErrorCode
from kbroker.metrics.family import Samples
from kbroker.metrics.histogram import Counted, add_histogram, add_summary
from kbroker.protocol import ApiKey

if TYPE_CHECKING:
    from kbroker.ext.data_plane import DataPlane
    from kbroker.protocol.answered import Answered, Counts

_NS: Final = 1e9
_NS_PER_MS: Final = 1e6
_MS: Final = 1e3
_BYTES: Final = 1.0
# In the order of ext/quotas.pxd.
THROTTLES: Final = ("produce", "fetch", "request", "connection")
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
_ERROR_NAMES: Final = {int(code): code.name for code in ErrorCode}
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
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
            _sizes_as_kafka(samples, spelled, size, sum(versions.values()))
    for key in _PURGATORIES:
        waiting = times[key][2] if key in times else 0
        samples.add("kafka_server_delayedoperationpurgatory_purgatorysize", waiting,
                    f'delayedoperation="{api_name(key)}"')  # fmt: skip
    for quota, (count, milliseconds) in zip(THROTTLES, data_plane.engine.throttled(), strict=True):
        samples.add("kbroker_throttled_total", count, f'quota="{quota}"')
        samples.add("kbroker_throttle_seconds_total", milliseconds / _MS, f'quota="{quota}"')
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


def _sizes_as_kafka(samples: Samples, name: str, size: int, count: int) -> None:
    """Sum and count alone: what a request is long is not counted by sizes."""
    labels = f'request="{name}"'
    samples.add_part("kafka_network_requestmetrics_requestbytes", "_sum", size, labels)
    samples.add_part("kafka_network_requestmetrics_requestbytes", "_count", count, labels)


class Errors:
    """Error codes of answers. The data plane counts NONE of ListOffsets alone; of its others it is
    what is left of counts that are read one after the other: it is kept from falling. Not
    thread-safe."""

    def __init__(self) -> None:
        self._none: dict[ApiKey, int] = {}

    def add(
        self, samples: Samples, data_plane: DataPlane, answered: Answered, well: dict[ApiKey, int]
    ) -> None:
        """`well`: partitions that Produce and Fetch answered without an error."""
        for key, counts in self._told(data_plane, answered, well).items():
            request = f'request="{api_name(key)}"'
            for code, count in counts.items():
                if count:
                    samples.add("kafka_network_requestmetrics_errors_total", count,
                                f'{request},error="{_error_name(code)}"')  # fmt: skip

    def _told(
        self, data_plane: DataPlane, answered: Answered, well: dict[ApiKey, int]
    ) -> dict[ApiKey, Counts]:
        told = answered.copy()
        times = data_plane.engine.request_times()
        versions = {key: row[0] for key, row in times.items()}
        given = {key: sum(row[0].values()) - row[2] for key, row in times.items()}
        produce, late, fetch, told[ApiKey.LIST_OFFSETS] = data_plane.errors()
        heartbeats = told.get(ApiKey.HEARTBEAT, {})  # of the control thread
        unknown = sum(
            count
            for version, count in versions.get(ApiKey.API_VERSIONS, {}).items()
            if version > VERSION_MAX
        )
        of_sessions = sum(fetch.get(code, 0) for code in _SESSION_ERRORS)
        for key, counts, none in (
            (ApiKey.PRODUCE, _sum(produce, late), well[ApiKey.PRODUCE] - sum(late.values())),
            (ApiKey.FETCH, fetch,
             well[ApiKey.FETCH] + given.get(ApiKey.FETCH, 0) - of_sessions),
            (ApiKey.HEARTBEAT, heartbeats,
             given.get(ApiKey.HEARTBEAT, 0) - sum(heartbeats.values())),
            (ApiKey.API_VERSIONS, {int(ErrorCode.UNSUPPORTED_VERSION): unknown},
             given.get(ApiKey.API_VERSIONS, 0) - unknown),
        ):  # fmt: skip
            self._none[key] = max(none, self._none.get(key, 0))
            told[key] = _sum(counts, {ErrorCode.NONE: self._none[key]})
        return told


def _sum(*counts: Counts) -> Counts:
    total: Counts = {}
    for one in counts:
        for code, count in one.items():
            total[code] = total.get(code, 0) + count
    return total


def _error_name(code: int) -> str:
    return _ERROR_NAMES.get(code, str(code))


def add_journal(samples: Samples, data_plane: DataPlane) -> None:
    """Its groups; nothing without a journal."""
    told = data_plane.journal_histograms()
    if told is None:
        return
    syncs, sizes = (Counted(*one) for one in told)
    add_histogram(samples, "kbroker_journal_sync_seconds", syncs, _NS)
    add_histogram(samples, "kbroker_journal_group_bytes", sizes, _BYTES)
    add_summary(samples, "kafka_log_logflushstats_logflushrateandtimems", syncs, _NS_PER_MS)
