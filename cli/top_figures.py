"""What `kbroker top` shows, out of two scrapes: rates are between them, sizes of the second."""

from __future__ import annotations

from typing import Any

from kbroker.cli.scrape import Scrape

_OWN = ("__consumer_offsets", "__transaction_state")
_UPTIME = "kbroker_uptime_seconds"


def figures(before: Scrape, now: Scrape) -> dict[str, Any]:
    """Numbers in bytes, seconds and counts; rates a second. A broker that was started again in
    between counts from 0."""
    seconds = max(now.at_s - before.at_s, 1e-6)
    if now.total(_UPTIME) < before.total(_UPTIME):
        before = Scrape(before.at_s, {})

    def rate(name: str) -> float:
        return max(now.total(name) - before.total(name), 0.0) / seconds

    topics = _topics(before, now, seconds)
    groups = now.total("kbroker_journal_groups_total")
    groups -= before.total("kbroker_journal_groups_total")
    return {
        "version": next(
            (dict(at)["version"] for at in now.samples.get("kbroker_build_info", ())), "?"
        ),
        "uptime_s": now.total(_UPTIME),
        "connections": now.total("kbroker_connections"),
        "logins": _logins(before, now, seconds),
        "requests": rate("kbroker_requests_total"),
        "records": sum(row["rate"] for row in topics if row["topic"] not in _OWN),
        "bytes_in": rate("kbroker_network_received_bytes_total"),
        "bytes_out": rate("kbroker_network_sent_bytes_total"),
        "waiting": now.total("kbroker_purgatory_size"),
        "process": {
            "cpu": rate("process_cpu_seconds_total"),
            "memory": now.value("process_resident_memory_bytes"),
            "open_fds": now.total("process_open_fds"),
        },
        "disk": {
            key: now.value(f"kbroker_disk_{name}")
            for key, name in (("used", "used_bytes"), ("limit", "limit_bytes"),
                              ("free", "free_bytes"), ("size", "size_bytes"),
                              ("refused", "refused"))
        },
        "journal": {
            "groups": groups / seconds,
            "bytes": rate("kbroker_journal_written_bytes_total") * seconds / max(groups, 1),
            "seconds": rate("kbroker_journal_flush_seconds_total") * seconds / groups
            if groups > 0 else None,
        },
        "idle": _idle(now),
        "requests_by_api": _apis(before, now, seconds),
        "topics": topics,
        "groups": _groups(before, now, seconds),
    }  # fmt: skip


def _logins(before: Scrape, now: Scrape, seconds: float) -> dict[str, float]:
    """Clients that said who they are, and those that were refused."""
    found = {}
    for name in ("successful", "failed"):
        stem = f"kafka_server_socket_server_metrics_{name}"
        metrics = [f"{stem}_{kind}_total" for kind in ("authentication", "reauthentication")]
        grown = sum(now.total(one) - before.total(one) for one in metrics)
        found[name] = max(grown, 0.0) / seconds
    return found


def _idle(now: Scrape) -> dict[str, float]:
    """Threads by kind: the one with the least rest."""
    found: dict[str, float] = {}
    for name, idle in now.by("kbroker_thread_idle_ratio", "thread").items():
        kind = name.removeprefix("kbroker-").split("-")[0]
        found[kind] = min(found.get(kind, 1.0), idle)
    return found


def _apis(before: Scrape, now: Scrape, seconds: float) -> list[dict[str, Any]]:
    """APIs that were asked for meanwhile, the busiest first; quantiles of the whole time."""
    name = "kbroker_request_phase_seconds_bucket"
    counted: dict[str, list[tuple[float, float]]] = {}
    earlier = before.samples.get(name, {})
    for at, value in now.samples.get(name, {}).items():
        labels = dict(at)
        if labels["phase"] == "total":
            bounds = counted.setdefault(labels["request"], [])
            bounds.append((float(labels["le"]), value - earlier.get(at, 0.0)))
    rows = [
        {"request": request, "rate": bounds[-1][1] / seconds,
         "p50": _quantile(bounds, 0.5), "p99": _quantile(bounds, 0.99)}
        for request, bounds in counted.items() if bounds[-1][1] > 0
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["rate"])


def _quantile(bounds: list[tuple[float, float]], share: float) -> float:
    """Of cumulative counts by bound: as if values lay evenly between two bounds."""
    wanted = share * bounds[-1][1]
    low = below = 0.0
    for bound, count in bounds:
        if count >= wanted and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return low


def _topics(before: Scrape, now: Scrape, seconds: float) -> list[dict[str, Any]]:
    """The busiest first, then the largest."""
    ends = now.by("kafka_topic_partition_current_offset", "topic")
    ends_before = before.by("kafka_topic_partition_current_offset", "topic") or ends
    sizes = now.by("kafka_log_log_size", "topic")
    rows = [
        {
            "topic": topic,
            "rate": max(ends.get(topic, 0.0) - ends_before.get(topic, 0.0), 0.0) / seconds,
            "size": sizes.get(topic, 0.0),
            "partitions": partitions,
        }
        for topic, partitions in now.by("kafka_topic_partitions", "topic").items()
    ]
    return sorted(rows, key=lambda row: (-row["rate"], -row["size"], row["topic"]))


def _groups(before: Scrape, now: Scrape, seconds: float) -> list[dict[str, Any]]:
    """Those that lag most first."""
    members = now.by("kafka_consumergroup_members", "consumergroup")
    read = before.samples.get("kafka_consumergroup_current_offset_sum", {})
    lags = now.samples.get("kafka_consumergroup_lag_sum", {})
    rows = []
    for at, offset in now.samples.get("kafka_consumergroup_current_offset_sum", {}).items():
        names = dict(at)
        rows.append({
            "group": names["consumergroup"],
            "topic": names["topic"],
            "lag": lags.get(at, 0.0),
            "rate": max(offset - read.get(at, offset), 0.0) / seconds,
            "members": members.get(names["consumergroup"], 0.0),
        })  # fmt: skip
    return sorted(rows, key=lambda row: (-row["lag"], row["group"], row["topic"]))
