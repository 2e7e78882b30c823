"""Dashboards for Grafana: what stands on them, and the JSON that Grafana imports.

Each asks for its data source and has variables for instances, topics and groups.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kbroker.metrics.queries import here, rate

_SCHEMA: Final = 39  # Grafana 10 and later read it
_COLUMNS: Final = 24
_TOPICS: Final = 'topic=~"$topic",topic!=""'  # a counter without topic is that of all
_GROUPS: Final = 'consumergroup=~"$group"'


class Panel(NamedTuple):
    """A graph: its queries with the legend of each line. unit: as Grafana names it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    width: int = 8
    help: str = ""


class Row(NamedTuple):
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Dashboard(NamedTuple):
    """One page. `uid` stays, so that importing it again replaces it."""

    uid: str
    title: str
    rows: tuple[Row, ...]


_HEALTH: Final = Row("Health", (
    Panel("Brokers up", "none", ((here("kafka_brokers"), "{{instance}}"),), 4),
    Panel("Offline partitions", "none",
          ((here("kafka_controller_kafkacontroller_offlinepartitionscount"), "{{instance}}"),), 4),
    Panel("Produce refused", "none", ((here("kbroker_disk_refused"), "{{instance}}"),), 4,
          "1 while the disk has reached a limit and nothing is left to delete."),
    Panel("Partitions", "none",
          ((here("kafka_server_replicamanager_partitioncount"), "{{instance}}"),), 4),
    Panel("Connections", "none", ((here("kbroker_connections"), "{{instance}}"),), 4),
    Panel("Uptime", "s", ((here("kbroker_uptime_seconds"), "{{instance}}"),), 4),
))  # fmt: skip
_TRAFFIC: Final = Row("Traffic", (
    Panel("Requests", "reqps", ((rate("kbroker_requests_total"), "{{instance}}"),)),
    Panel("Bytes in", "Bps", ((rate("kbroker_network_received_bytes_total"), "{{instance}}"),)),
    Panel("Bytes out", "Bps",
          ((f"sum by (instance, way) ({rate('kbroker_network_sent_bytes_total')})",
            "{{instance}} {{way}}"),)),
    Panel("Requests that wait", "none",
          ((here("kbroker_purgatory_size"), "{{instance}} purgatory"),
           (here("kbroker_queue_requests"), "{{instance}} {{queue}}"))),
    Panel("Connections a second", "cps",
          ((rate("kbroker_connections_accepted_total"), "{{instance}} accepted"),
           (rate("kbroker_connections_closed_total"), "{{instance}} closed"))),
    Panel("Stalls", "ops", ((rate("kbroker_network_stalls_total"), "{{instance}}"),), 8,
          "Requests put back because journal, queue or disk had no room."),
))  # fmt: skip
_P99: Final = "histogram_quantile({share}, sum by (le, request) ({rate}))"
_TIMES: Final = "kbroker_request_phase_seconds"


def _quantile(share: float, *matchers: str) -> str:
    return _P99.format(share=share, rate=rate(_TIMES, *matchers, part="_bucket"))


def _phases(request: str) -> tuple[str, str]:
    """The average of each phase, which add up to that of the whole."""
    of = (f'request="{request}"', 'phase!="total"')
    sums, counts = (rate(_TIMES, *of, part=part) for part in ("_sum", "_count"))
    return f"sum by (phase) ({sums}) / sum by (phase) ({counts})", "{{phase}}"


_ERRORS: Final = rate("kafka_network_requestmetrics_errors_total", 'error!="NONE"')
_LATENCY: Final = Row("Latency", (
    Panel("99th percentile by request", "s",
          ((_quantile(0.99, 'phase="total"', 'request!="Fetch"'), "{{request}}"),), 12),
    Panel("Median by request", "s",
          ((_quantile(0.5, 'phase="total"', 'request!="Fetch"'), "{{request}}"),), 12),
    Panel("Produce by phase", "s", (_phases("Produce"),), 12,
          "remote is the wait for the disk, response and send that for the client."),
    Panel("Fetch by phase", "s", (_phases("Fetch"),), 12, "remote is the wait for records."),
    Panel("Requests by API", "reqps",
          ((f"sum by (request) ({rate('kafka_network_requestmetrics_requests_total')})",
            "{{request}}"),), 12),
    Panel("Errors by API and code", "reqps",
          ((f"sum by (request, error) ({_ERRORS})", "{{request}} {{error}}"),), 12),
    Panel("Wait for Python's lock, 99th percentile", "s",
          ((f"histogram_quantile(0.99, {rate('kbroker_gil_wait_seconds', part='_bucket')})",
            "{{instance}}"),), 12),
))  # fmt: skip
_THREADS: Final = Row("Process", (
    Panel("Idle threads", "percentunit",
          ((here("kbroker_thread_idle_ratio"), "{{instance}} {{thread}}"),)),
    Panel("Processor time", "none", ((rate("process_cpu_seconds_total"), "{{instance}}"),)),
    Panel("Memory", "bytes", ((here("process_resident_memory_bytes"), "{{instance}}"),)),
    Panel("File descriptors", "none",
          ((here("process_open_fds"), "{{instance}} open"),
           (here("process_max_fds"), "{{instance}} limit"))),
    Panel("Threads", "none", ((here("kbroker_process_threads"), "{{instance}}"),)),
    Panel("Scrape", "s", ((here("kbroker_scrape_seconds"), "{{instance}}"),)),
))  # fmt: skip
_DISK: Final = Row("Disk", (
    Panel("Group commits", "ops", ((rate("kbroker_journal_groups_total"), "{{instance}}"),)),
    Panel("Time of a group commit", "s",
          ((f"{rate('kbroker_journal_flush_seconds_total')} / "
            f"{rate('kbroker_journal_groups_total')}", "{{instance}}"),)),
    Panel("Sync, 99th percentile", "s",
          ((f"histogram_quantile(0.99, {rate('kbroker_journal_sync_seconds', part='_bucket')})",
            "{{instance}}"),)),
    Panel("Batches in a group commit", "none",
          ((f"{rate('kbroker_journal_batches_total')} / "
            f"{rate('kbroker_journal_groups_total')}", "{{instance}}"),)),
    Panel("Size of a group commit", "bytes",
          ((f"{rate('kbroker_journal_written_bytes_total')} / "
            f"{rate('kbroker_journal_groups_total')}", "{{instance}}"),)),
    Panel("Disk", "bytes",
          ((here("kbroker_disk_used_bytes"), "{{instance}} used"),
           (here("kbroker_disk_limit_bytes"), "{{instance}} limit"),
           (here("kbroker_disk_free_bytes"), "{{instance}} free"))),
    Panel("Compaction", "none",
          ((here("kbroker_cleaner_running"), "{{instance}} running"),
           (here("kbroker_cleaner_uncleanable_partitions"), "{{instance}} uncleanable"))),
    Panel("Compacted", "Bps",
          ((rate("kbroker_cleaner_read_bytes_total"), "{{instance}} read"),
           (rate("kbroker_cleaner_written_bytes_total"), "{{instance}} stayed"))),
    Panel("Stray folders", "none",
          ((here("kbroker_log_directory_stray_folders"), "{{instance}} {{logdirectory}}"),), 8,
          "Folders that belong to no partition: kbroker log strays lists them."),
    Panel("Buffers of requests", "bytes",
          ((here("kbroker_request_buffer_bytes"), "{{instance}} {{state}}"),)),
))  # fmt: skip
_TOPIC: Final = Row("Topics", (
    Panel("Records a second", "wps",
          ((rate("kafka_server_brokertopicmetrics_messagesin_total", _TOPICS), "{{topic}}"),), 12),
    Panel("Bytes in", "Bps",
          ((rate("kafka_server_brokertopicmetrics_bytesin_total", _TOPICS), "{{topic}}"),), 12),
    Panel("Bytes out", "Bps",
          ((rate("kafka_server_brokertopicmetrics_bytesout_total", _TOPICS), "{{topic}}"),), 12),
    Panel("Failed requests", "reqps",
          ((rate("kafka_server_brokertopicmetrics_failedproducerequests_total", _TOPICS),
            "{{topic}} produce"),
           (rate("kafka_server_brokertopicmetrics_failedfetchrequests_total", _TOPICS),
            "{{topic}} fetch")), 12),
    Panel("Size", "bytes",
          ((f"sum by (topic) ({here('kafka_log_log_size', _TOPICS)})", "{{topic}}"),), 12),
    Panel("Records kept", "none",
          ((f"sum by (topic) ({here('kafka_log_log_logendoffset', _TOPICS)} - "
            f"{here('kafka_log_log_logstartoffset', _TOPICS)})", "{{topic}}"),), 12),
    Panel("Partitions", "none", ((here("kafka_topic_partitions", _TOPICS), "{{topic}}"),), 12),
))  # fmt: skip


def _unreadable(kind: str) -> Panel:
    """Of a coordinator's topic."""
    queries = (
        (here(f"kbroker_{kind}_partitions_failed"), "{{instance}} partitions"),
        (here(f"kbroker_{kind}_state_passed_over"), "{{instance}} passed over"),
    )
    return Panel("State that cannot be read", "none", queries)


_GROUP: Final = Row("Groups", (
    Panel("Lag", "none",
          ((here("kafka_consumergroup_lag_sum", _GROUPS, _TOPICS),
            "{{consumergroup}} {{topic}}"),), 12),
    Panel("Records read a second", "rps",
          ((f"rate({here('kafka_consumergroup_current_offset_sum', _GROUPS, _TOPICS)}"
            "[$__rate_interval])", "{{consumergroup}} {{topic}}"),), 12),
    Panel("Lag by partition", "none",
          ((here("kafka_consumergroup_lag", _GROUPS, _TOPICS),
            "{{consumergroup}} {{topic}}-{{partition}}"),), 12),
    Panel("Members", "none",
          ((here("kafka_consumergroup_members", _GROUPS), "{{consumergroup}}"),), 12),
    Panel("Groups", "none", ((here("kbroker_groups"), "{{protocol}} {{state}}"),), 12),
    _unreadable("group"),
))  # fmt: skip

_TRANSACTIONS: Final = Row("Transactions", (
    Panel("Ended a second", "ops",
          ((rate("kbroker_transactions_ended_total"), "{{instance}} {{outcome}}"),
           (rate("kbroker_transactions_timed_out_total"), "{{instance}} timed out"))),
    Panel("Transactional ids", "none",
          ((here("kbroker_transactional_ids"), "{{instance}} {{state}}"),)),
    Panel("Open longest", "s", ((here("kbroker_transaction_oldest_seconds"), "{{instance}}"),)),
    Panel("Markers that wait", "none",
          ((here("kbroker_transaction_markers_waiting"), "{{instance}}"),)),
    _unreadable("transaction"),
    Panel("Producer ids", "none",
          ((here("kafka_server_replicamanager_produceridcount"), "{{instance}}"),)),
))  # fmt: skip

DASHBOARDS: Final = {
    "broker": Dashboard("kbroker-broker", "kbroker: broker",
                        (_HEALTH, _TRAFFIC, _LATENCY, _DISK, _THREADS)),
    "topics": Dashboard("kbroker-topics", "kbroker: topics and groups",
                        (_TOPIC, _GROUP, _TRANSACTIONS)),
}


def grafana(dashboard: Dashboard) -> dict[str, Any]:
    """What Grafana's import takes."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["kbroker"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _panels(dashboard),
    }


def _variables() -> list[dict[str, Any]]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource",
              "query": "prometheus"}  # fmt: skip
    asked = (
        ("instance", "Instance", "kbroker_build_info"),
        ("topic", "Topic", "kafka_topic_partitions"),
        ("consumergroup", "Group", "kafka_consumergroup_members"),
    )
    found: list[dict[str, Any]] = [source]
    for label, title, name in asked:
        found.append({
            "name": "group" if label == "consumergroup" else label,
            "label": title,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({name}, {label})", "refId": label},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        })  # fmt: skip
    return found


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Rows from top to bottom, panels from left to right."""
    drawn: list[dict[str, Any]] = []
    top = 0
    for row in dashboard.rows:
        drawn.append(_placed({"type": "row", "title": row.title, "panels": [],
                              "collapsed": False}, len(drawn), (0, top, _COLUMNS, 1)))  # fmt: skip
        top, left = top + 1, 0
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                top, left = top + 8, 0
            drawn.append(_placed(_graph(panel), len(drawn), (left, top, panel.width, 8)))
            left += panel.width
        top += 8
    return drawn


def _placed(panel: dict[str, Any], number: int, at: tuple[int, int, int, int]) -> dict[str, Any]:
    left, top, width, height = at
    return {"id": number + 1, **panel, "gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _graph(panel: Panel) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expression,
             "legendFormat": legend}
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }  # fmt: skip
