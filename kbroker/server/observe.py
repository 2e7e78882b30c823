"""What a scrape finds: the broker's parts looked at, their numbers written as samples.

Runs on the thread that scrapes. The data plane's counters are read as they are, without stopping
it; the topics are read in a copy; the groups are the control thread's, which looks at them a
millisecond at a time, and are left out where it does not come to it. Nothing waits for a disk that
hangs: what cannot be looked at is told as it was, or not at all, and kbroker_scrape_complete is 0.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kbroker import __version__
from kbroker.ext.log import Log
from kbroker.ext.log_space import survey as survey_logs
from kbroker.group.committed import offset_of
from kbroker.group.survey import Survey
from kbroker.metrics.families import FAMILIES
from kbroker.metrics.family import Samples, escaped, labels_text
from kbroker.printable import host_port
from kbroker.protocol import ApiKey
from kbroker.server.observe_requests import Errors, add_journal, add_requests
from kbroker.server.process import Threads, process_numbers

if TYPE_CHECKING:
    from kbroker.api.context import Services
    from kbroker.group.slot_loads import LoadFigures
    from kbroker.server.pages import Parts

Rows = dict[tuple[str, int], tuple[int, ...]]  # by topic and partition

_GROUPS_S: Final = 2.0
_NS: Final = 1_000_000_000
_MS: Final = 1_000
_MIN_ISR: Final = "min.insync.replicas"

# What the data plane counts for each log, in the order of kbroker.ext.log_space.survey; behind it
# how many producer ids the log knows.
_FIRST, _BEHIND = 5, 12
_TRAFFIC: Final = tuple(
    f"kafka_server_brokertopicmetrics_{name}_total"
    for name in (
        "messagesin", "bytesin", "bytesout", "totalproducerequests", "failedproducerequests",
        "totalfetchrequests", "failedfetchrequests",
    )
)  # fmt: skip

# Kafka's name of what is counted in kbroker.ext.data_plane's `refused`.
_REFUSED: Final = {
    "kafka_server_brokertopicmetrics_bytesrejected_total": "bytes",
    "kafka_server_brokertopicmetrics_invalidmagicnumberrecords_total": "magic",
    "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total": "crc",
    "kafka_server_brokertopicmetrics_invalidoffsetorsequencerecords_total": "order",
    "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total": "key",
    "kbroker_batches_refused_total": "all",
}

# In the order of kbroker.security.authentication.Counts.
_LOGINS: Final = (
    "successful_authentication",
    "successful_reauthentication",
    "failed_authentication",
    "failed_reauthentication",
)

Watermarks = Mapping[tuple[str, int], int]


class Totals:
    """Traffic of all topics since the start: what a deleted topic has counted stays in it, as a
    counter that falls would be taken for one that began anew. Not thread-safe."""

    def __init__(self) -> None:
        self._sums = [0] * len(_TRAFFIC)
        self._seen: Mapping[tuple[str, int], tuple[int, ...]] = {}

    def add(self, counts: Mapping[tuple[str, int], tuple[int, ...]]) -> list[int]:
        """The sums, with what each log has counted since it was opened."""
        for key, now in counts.items():
            before = self._seen.get(key, ())
            if any(new < old for new, old in zip(now, before, strict=False)):
                before = ()  # another log under the same name
            for index, new in enumerate(now):
                self._sums[index] += new - (before[index] if before else 0)
        self._seen = counts
        return self._sums


class Looks:
    """What kbroker.ext.log_space.survey told last of each log. One whose lock is held, as by an
    append to a disk that hangs, is told as it was seen before. Not thread-safe."""

    def __init__(self) -> None:
        self.complete = True
        self._seen: Rows = {}

    def look(self, logs: list[tuple[tuple[str, int], Log]]) -> Rows:
        """One more look."""
        found = survey_logs([log for _, log in logs])
        rows = {
            key: self._seen.get(key) if row is None else row
            for (key, _), row in zip(logs, found, strict=True)
        }
        self.complete = None not in found
        self._seen = {key: row for key, row in rows.items() if row is not None}
        return self._seen


class Observer:
    """One for the broker's life, since ratios are between two scrapes. Thread-safe."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._threads = Threads()
        self._totals = Totals()
        self._looks = Looks()
        self._errors = Errors()
        self._last_s: float | None = None

    def collect(self) -> Samples:
        """The samples of one scrape."""
        with self._lock:
            began = time.perf_counter()
            samples = Samples(FAMILIES)
            survey = Survey(self._parts.services.groups, self._parts.services.post)
            self._broker(samples)
            _cluster(samples, self._parts)
            _network(samples, self._parts)
            add_requests(samples, self._parts.data_plane)
            self._thread_times(samples)
            _disk(samples, self._parts)
            watermarks, well = _logs(samples, self._parts, self._looks, self._totals)
            self._errors.add(
                samples, self._parts.data_plane, self._parts.services.answered, well
            )
            known = _groups(samples, survey, watermarks)
            samples.add("kbroker_scrape_complete", int(known and self._looks.complete))
            _transactions(samples, self._parts)
            _loads(samples, self._parts)
            if self._last_s is not None:
                samples.add("kbroker_scrape_seconds", self._last_s)
            self._last_s = time.perf_counter() - began
            return samples

    def _broker(self, samples: Samples) -> None:
        version = ".".join(map(str, sys.version_info[:3]))
        samples.add("kbroker_build_info", 1, labels_text(version=__version__, python=version))
        now_ms = self._parts.services.clock.monotonic_ms()
        samples.add("kbroker_uptime_seconds", (now_ms - self._parts.serving_since_ms) / 1000)
        for name, value in process_numbers().items():
            samples.add(name, value)

    def _thread_times(self, samples: Samples) -> None:
        times = self._threads.look()
        for thread in times:
            labels = f'thread="{thread.name}"'
            samples.add("kbroker_thread_busy_seconds_total", thread.busy_ns / _NS, labels)
            samples.add("kbroker_thread_idle_ratio", thread.idle, labels)
        for name, prefixes in (
            ("kafka_network_socketserver_networkprocessoravgidle_percent", ("kbroker-net-",)),
            (
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
                ("kbroker-io-", "kbroker-control"),
            ),
        ):
            idle = [thread.idle for thread in times if thread.name.startswith(prefixes)]
            if idle:
                samples.add(name, sum(idle) / len(idle))


def _cluster(samples: Samples, parts: Parts) -> None:
    services = parts.services
    logs = services.logs
    offline, directories = len(logs.offline), logs.directories
    partitions = sum(len(topic) for topic in services.image.topics.copy().values())
    samples.add("kafka_brokers", 1)
    for name, endpoint in services.endpoints.items():
        address = f"{name}://{host_port(endpoint.host, endpoint.port)}"
        labels = labels_text(id=services.config.node_id, address=address)
        samples.add("kafka_broker_info", 1, labels)
    for name, value in (
        ("kafka_controller_kafkacontroller_activecontrollercount", 1),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", offline),
        ("kafka_controller_kafkacontroller_globaltopiccount", len(services.image.topics)),
        ("kafka_controller_kafkacontroller_globalpartitioncount", partitions),
        ("kafka_server_replicamanager_partitioncount", partitions),
        ("kafka_server_replicamanager_leadercount", partitions - offline),
        ("kafka_server_replicamanager_underreplicatedpartitions", offline),
        ("kafka_server_replicamanager_offlinereplicacount", offline),
        ("kafka_server_replicamanager_underminisrpartitioncount", _under_min_isr(services)),
        ("kafka_log_logmanager_offlinelogdirectorycount", len(directories) - len(logs.online)),
        ("kafka_log_logmanager_cordonedlogdirectorycount",
         sum(one.cordoned for one in directories)),
    ):  # fmt: skip
        samples.add(name, value)
    _directories(samples, parts)


def _directories(samples: Samples, parts: Parts) -> None:
    logs = parts.services.logs
    homes = Counter(logs.homes.copy().values())
    for one in logs.directories:
        labels = labels_text(logdirectory=str(one))
        samples.add("kafka_log_logmanager_logdirectoryoffline", int(not one.online), labels)
        samples.add("kafka_log_logmanager_logdirectorycordoned", int(one.cordoned), labels)
        samples.add("kbroker_log_directory_hangs", int(logs.hangs(one)), labels)
        samples.add("kbroker_log_directory_partitions", homes[one], labels)
        samples.add("kbroker_log_directory_stray_folders", one.strays, labels)
        if one.online:
            used = parts.disk.used_bytes(one.place)
            samples.add("kbroker_log_directory_used_bytes", used, labels)
            samples.add("kbroker_log_directory_free_bytes", one.free_bytes(), labels)


def _under_min_isr(services: Services) -> int:
    """One replica is in sync with itself; who asks for more has partitions that lack some."""
    image, usual = services.image, services.config.integer(_MIN_ISR)
    total = 0
    for name, topic in image.topics.copy().items():
        told = image.configs(("topic", name)).get(_MIN_ISR)
        if (int(told) if told is not None else usual) > 1:
            total += len(topic)
    return total


def _network(samples: Samples, parts: Parts) -> None:
    stats = parts.data_plane.engine.stats()
    for name, key in (
        ("kbroker_connections", "connections"),
        ("kbroker_connections_accepted_total", "accepted"),
        ("kbroker_connections_closed_total", "closed"),
        ("kbroker_connections_idle_closed_total", "idle_closed"),
        ("kbroker_tls_handshakes_total", "handshakes"),
        ("kbroker_tls_handshakes_failed_total", "handshakes_failed"),
        ("kbroker_requests_total", "requests"),
        ("kbroker_network_received_bytes_total", "bytes_in"),
        ("kbroker_network_reads_total", "reads"),
        ("kbroker_network_sends_total", "sends"),
        ("kbroker_network_turns_total", "turns"),
        ("kbroker_network_stalls_total", "stalls"),
        ("kbroker_requests_parked_total", "parked"),
        ("kbroker_purgatory_size", "ops_live"),
        ("kbroker_request_buffers", "request_buffers"),
        ("kbroker_log_lines_dropped_total", "log_lines_dropped"),
    ):
        samples.add(name, stats[key])
    _logins(samples, parts)
    samples.add("kbroker_network_sent_bytes_total", stats["bytes_out"], 'way="copied"')
    samples.add("kbroker_network_sent_bytes_total", stats["sendfile_bytes"], 'way="sendfile"')
    samples.add("kbroker_queue_requests", stats["control_queue"], 'queue="control"')
    samples.add("kbroker_queue_requests", stats["io_queue"], 'queue="io"')
    queued = stats["control_queue"] + stats["io_queue"]
    samples.add("kafka_network_requestchannel_requestqueuesize", queued)
    for state, key in (("used", "request_buffer_bytes"), ("kept", "request_buffer_bytes_cached")):
        samples.add("kbroker_request_buffer_bytes", stats[key], f'state="{state}"')
    samples.add("kbroker_fetch_sessions", parts.data_plane.counts()[2])
    refused = parts.data_plane.refused()
    for name, key in _REFUSED.items():
        samples.add(name, refused[key])


def _logins(samples: Samples, parts: Parts) -> None:
    """SASL exchanges by listener, as Apache Kafka names them; where there are none, they are 0."""
    told = parts.services.logins()
    for listener in parts.services.config.listeners:
        labels = labels_text(listener=listener.name)
        for what, count in zip(_LOGINS, told.get(listener.name, (0, 0, 0, 0)), strict=True):
            samples.add(f"kafka_server_socket_server_metrics_{what}_total", count, labels)


def _disk(samples: Samples, parts: Parts) -> None:
    journal = parts.data_plane.journal_stats()
    if journal:
        samples.add("kbroker_journal_groups_total", journal["groups"])
        samples.add("kbroker_journal_written_bytes_total", journal["bytes"])
        samples.add("kbroker_journal_flush_seconds_total", journal["flush_ns"] / _NS)
        samples.add("kbroker_journal_files", journal["files"])
        samples.add("kbroker_journal_batches_total", journal["batches"])
        add_journal(samples, parts.data_plane)
    for name, value in disk_numbers(parts).items():
        if value is not None:
            samples.add(name, value)
    samples.add("kbroker_disk_refused", int(parts.disk.refusing))
    running, uncleanable = parts.cleaner.counts()
    samples.add("kbroker_cleaner_running", running)
    samples.add("kbroker_cleaner_uncleanable_partitions", uncleanable)
    done = parts.cleaner.cleanings
    samples.add("kbroker_cleaner_runs_total", done.runs)
    samples.add("kbroker_cleaner_seconds_total", done.ms / _MS)
    samples.add("kbroker_cleaner_read_bytes_total", done.read_bytes)
    samples.add("kbroker_cleaner_written_bytes_total", done.written_bytes)


def disk_numbers(parts: Parts) -> dict[str, int | None]:
    """What is used, free and allowed, by the metric's name."""
    limits = parts.services.disk_limits
    found = os.statvfs(parts.services.logs.directory)
    return {
        "kbroker_disk_used_bytes": parts.disk.used_bytes(),
        "kbroker_disk_limit_bytes": limits.bytes_max if limits.bytes_max >= 0 else None,
        "kbroker_disk_free_bytes": found.f_bavail * found.f_frsize,
        "kbroker_disk_free_limit_bytes": limits.free_min if limits.free_min > 0 else None,
        "kbroker_disk_size_bytes": found.f_blocks * found.f_frsize,
    }


def _logs(
    samples: Samples, parts: Parts, looks: Looks, totals: Totals
) -> tuple[dict[tuple[str, int], int], dict[ApiKey, int]]:
    """Samples of topics and partitions; answers the high watermarks, and how many partitions
    Produce and Fetch answered without an error."""
    image = parts.services.image
    logs = [(key, log) for key, log in parts.services.logs.snapshot() if isinstance(log, Log)]
    rows = looks.look(logs)
    for name, topic in sorted(image.topics.copy().items()):
        label = f'topic="{escaped(name)}"'
        states = dict(topic.partitions)
        samples.add("kafka_topic_partitions", len(states), label)
        counts = [0] * len(_TRAFFIC)
        for index, state in states.items():
            labels = f'{label},partition="{index}"'
            in_sync, replicas = len(state.isr), len(state.replicas)
            preferred = bool(state.replicas) and state.leader == state.replicas[0]
            samples.add("kafka_topic_partition_leader", state.leader, labels)
            samples.add("kafka_topic_partition_leader_is_preferred", int(preferred), labels)
            samples.add("kafka_topic_partition_replicas", replicas, labels)
            samples.add("kafka_topic_partition_in_sync_replica", in_sync, labels)
            samples.add("kafka_topic_partition_under_replicated_partition",
                        int(in_sync < replicas), labels)  # fmt: skip
            row = rows.get((name, index))
            if row is not None:
                _one_log(samples, row, labels)
                more = row[_FIRST:_BEHIND]
                counts = [count + one for count, one in zip(counts, more, strict=True)]
        for metric, count in zip(_TRAFFIC, counts, strict=True):
            samples.add(metric, count, label)
    sums = totals.add({key: row[_FIRST:_BEHIND] for key, row in rows.items()})
    for metric, count in zip(_TRAFFIC, sums, strict=True):
        samples.add(metric, count)  # of all topics, as Apache Kafka tells it beside them
    producer_ids = sum(row[_BEHIND] for row in rows.values())
    samples.add("kafka_server_replicamanager_produceridcount", producer_ids)
    _, _, _, produces, produces_failed, fetches, fetches_failed = sums
    well = {ApiKey.PRODUCE: produces - produces_failed, ApiKey.FETCH: fetches - fetches_failed}
    return {key: row[1] for key, row in rows.items()}, well


def _one_log(samples: Samples, row: tuple[int, ...], labels: str) -> None:
    """A partition; `row` is kbroker.ext.log_space's."""
    start, high_watermark, end, size, segments, *_ = row
    samples.add("kafka_topic_partition_current_offset", high_watermark, labels)
    samples.add("kafka_topic_partition_oldest_offset", start, labels)
    samples.add("kafka_log_log_size", size, labels)
    samples.add("kafka_log_log_numlogsegments", segments, labels)
    samples.add("kafka_log_log_logstartoffset", start, labels)
    samples.add("kafka_log_log_logendoffset", end, labels)


def _groups(samples: Samples, survey: Survey, watermarks: Watermarks) -> bool:
    """False where the control thread did not come to it."""
    views = survey.wait(_GROUPS_S)
    states: dict[tuple[str, str], int] = {}
    for view in views or ():
        states[view.kind, view.state] = states.get((view.kind, view.state), 0) + 1
        group = f'consumergroup="{escaped(view.group_id)}"'
        samples.add("kafka_consumergroup_members", view.members, group)
        for topic, partitions in view.offsets.items():
            labels = f'{group},topic="{escaped(topic)}"'
            _offsets(samples, topic, partitions, labels, watermarks)
    for (kind, state), count in sorted(states.items()):
        samples.add("kbroker_groups", count, labels_text(protocol=kind, state=state))
    if views is not None:
        name = "kafka_coordinator_group_groupmetadatamanager_num"
        samples.add(f"{name}groups", len(views))
        offsets = sum(len(of) for view in views for of in view.offsets.values())
        samples.add(f"{name}offsets", offsets)
    return views is not None


def _offsets(
    samples: Samples, topic: str, partitions: dict[int, bytes], labels: str, watermarks: Watermarks
) -> None:
    offsets_sum = lag_sum = 0
    for index, data in sorted(partitions.items()):
        offset, end = offset_of(data), watermarks.get((topic, index))
        at = f'{labels},partition="{index}"'
        samples.add("kafka_consumergroup_current_offset", offset, at)
        offsets_sum += offset
        if end is not None:
            lag = max(end - offset, 0)
            samples.add("kafka_consumergroup_lag", lag, at)
            lag_sum += lag
    samples.add("kafka_consumergroup_current_offset_sum", offsets_sum, labels)
    samples.add("kafka_consumergroup_lag_sum", lag_sum, labels)


def _transactions(samples: Samples, parts: Parts) -> None:
    transactions = parts.services.transactions
    found, counts = transactions.figures(), transactions.counts
    for state, count in sorted(found.by_state.items()):
        samples.add("kbroker_transactional_ids", count, labels_text(state=state))
    samples.add("kbroker_transactions_ended_total", counts.committed, 'outcome="commit"')
    samples.add("kbroker_transactions_ended_total", counts.aborted, 'outcome="abort"')
    samples.add("kbroker_transactions_timed_out_total", counts.timed_out)
    samples.add("kbroker_transaction_oldest_seconds", found.oldest_ms / _MS)
    samples.add("kbroker_transaction_markers_waiting", found.unmarked)


def _loads(samples: Samples, parts: Parts) -> None:
    for kind, found in _load_figures(parts).items():
        samples.add(f"kbroker_{kind}_partitions_loading", found.loading)
        samples.add(f"kbroker_{kind}_partitions_failed", found.failed)
        samples.add(f"kbroker_{kind}_state_passed_over", found.passed_over)


def _load_figures(parts: Parts) -> dict[str, LoadFigures]:
    services = parts.services
    return {
        "group": services.groups.load_figures(),
        "transaction": services.transactions.figures().loads,
    }


def _unreadable(parts: Parts) -> dict[str, int]:
    """What of the coordinators' topics could not be read."""
    told: dict[str, int] = {}
    for kind, found in _load_figures(parts).items():
        told[f"{kind}_partitions_failed"] = found.failed
        told[f"{kind}_state_passed_over"] = found.passed_over
    return told


def status(parts: Parts) -> dict[str, Any]:
    """What /status tells, as JSON has it."""
    services = parts.services
    stats = parts.data_plane.engine.stats()
    topics, partitions, sessions = parts.data_plane.counts()
    now_ms = services.clock.monotonic_ms()
    unready = parts.health.unready()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_s": round((now_ms - parts.serving_since_ms) / 1000, 1),
        "node_id": services.config.node_id,
        "cluster_id": services.store.meta.cluster_id,
        "listeners": parts.listeners,
        "http": parts.http,
        "data_dir": str(services.logs.directory),
        "log_dirs": {
            str(one): one.failure or ("cordoned" if one.cordoned else "online")
            for one in services.logs.directories
        },
        "durability": services.config.string("kbroker.durability"),
        "ready": not unready,
        "unready": unready,
        "topics": topics,
        "partitions": partitions,
        "offline_partitions": {
            f"{topic}-{index}": why for (topic, index), why in services.logs.offline.copy().items()
        },
        **_unreadable(parts),
        "fetch_sessions": sessions,
        "connections": stats["connections"],
        "requests": stats["requests"],
        "requests_waiting": stats["ops_live"],
        "memory_bytes": process_numbers().get("process_resident_memory_bytes"),
        "disk": {
            name.removeprefix("kbroker_disk_"): value for name, value in disk_numbers(parts).items()
        },
        "produce_refused": parts.disk.refused_for,
        "hanging": [
            str(one) for one in services.logs.directories if services.logs.hangs(one)
        ],
        "journal": parts.data_plane.journal_stats(),
    }
