"""Alert rules for Prometheus: each with what is wrong and what to look at, as a rules file."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kbroker.metrics.queries import metric

_CRITICAL: Final = "critical"
_WARNING: Final = "warning"


class Alert(NamedTuple):
    """A rule. lasting: how long the expression has to hold, as Prometheus writes it."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    description: str


_NETWORK: Final = 'thread=~"kbroker-net-.*"'
_PRODUCE: Final = 'request="Produce"'
_WHOLE: Final = 'phase="total"'
_ALL: Final = 'topic=""'
_OUR_FAULT: Final = 'error="UNKNOWN_SERVER_ERROR"'
_NO_LOGIN: Final = 'error="SASL_AUTHENTICATION_FAILED"'
_CONTROL: Final = 'thread="kbroker-control"'


def _growing(name: str, *matchers: str, window: str = "5m") -> str:
    return f"rate({metric(name, *matchers)}[{window}])"


def _loads(kind: str, topic: str, failed: str, damaged: str) -> tuple[Alert, ...]:
    """A coordinator's topic cannot be read, or not all of it."""
    name = f"Kbroker{kind.title()}"
    return (
        Alert(f"{name}sFailed", f"{metric(f'kbroker_{kind}_partitions_failed')} > 0", "1m",
              _WARNING, f"{{{{ $value }}}} partitions of {topic} on {{{{ $labels.instance }}}} are"
              " not read.",
              f"{failed}; the log names the error, and the broker goes on trying, unless their"
              " directory is offline."),
        Alert(f"{name}StateDamaged", f"{metric(f'kbroker_{kind}_state_passed_over')} > 0", "1m",
              _WARNING, f"{topic} of {{{{ $labels.instance }}}} is damaged in {{{{ $value }}}}"
              " places.",
              f"They were passed over. {damaged}; stopped, kbroker log repair --drop takes them"
              " out."),
    )  # fmt: skip


def _reached(job: str) -> tuple[Alert, ...]:
    """Of the brokers that Prometheus is to scrape one does not answer, or none is named at all."""
    up = f"up{{job=~{json.dumps(job, ensure_ascii=False)}}}"
    return (
        Alert("KbrokerDown", f"{up} == 0", "1m", _CRITICAL,
              "{{ $labels.instance }} is not scraped.",
              "Prometheus does not reach this broker: look whether it runs (kbroker status), and at"
              " kbroker.http.listeners."),
        Alert("KbrokerNotScraped", f"absent({up})", "1m", _CRITICAL,
              "No kbroker is scraped.",
              f"Prometheus has no target whose job_name matches {job}: scrape_configs of"
              " prometheus.yml lacks the broker, or names its job otherwise (kbroker dashboard"
              " alerts --job)."),
    )  # fmt: skip


ALERTS: Final = (
    Alert("KbrokerRestarted", f"{metric('kbroker_uptime_seconds')} < 300", "0m", _WARNING,
          "{{ $labels.instance }} was started less than five minutes ago.",
          "If nobody did, its log says why it ended."),
    Alert("KbrokerOfflinePartitions",
          f"{metric('kafka_controller_kafkacontroller_offlinepartitionscount')} > 0", "1m",
          _CRITICAL, "{{ $value }} partitions of {{ $labels.instance }} are offline.",
          "The disk denies them; the log and /status name each with its error."),
    Alert("KbrokerDiskFailed", f"{metric('kafka_log_logmanager_offlinelogdirectorycount')} > 0",
          "0m", _CRITICAL, "The data directory of {{ $labels.instance }} failed.",
          "A write or sync of the journal failed, so nothing is acknowledged any more. Check the"
          " disk, then start the broker again: what was acknowledged is there."),
    Alert("KbrokerDiskHangs", f"{metric('kbroker_log_directory_hangs')} == 1", "0m", _CRITICAL,
          "{{ $labels.logdirectory }} of {{ $labels.instance }} hangs.",
          "A write there has stood for half a second: nothing that goes to it is acknowledged until"
          " the disk goes on. What is in other log directories is served."),
    Alert("KbrokerProduceRefused", f"{metric('kbroker_disk_refused')} == 1", "1m", _CRITICAL,
          "{{ $labels.instance }} refuses produce for want of room.",
          "kbroker log sizes tells where the space is; then raise kbroker.disk.bytes.max, shorten"
          " retention or delete topics."),
    Alert("KbrokerDiskFillsUp",
          f"{metric('kbroker_disk_free_bytes')} / {metric('kbroker_disk_size_bytes')} < 0.1",
          "10m", _WARNING, "Less than a tenth of the disk of {{ $labels.instance }} is free.",
          "kbroker.disk.bytes.max or kbroker.disk.free.bytes.min delete old records in time."),
    Alert("KbrokerStrayFolders", f"{metric('kbroker_log_directory_stray_folders')} > 0", "0m",
          _WARNING, "{{ $value }} folders in {{ $labels.logdirectory }} of {{ $labels.instance }}"
          " belong to no partition.",
          "They keep their records and their space: kbroker log strays lists them, kbroker log"
          " stray-delete deletes them."),
    Alert("KbrokerSyncIsSlow",
          f"{_growing('kbroker_journal_flush_seconds_total')} / "
          f"{_growing('kbroker_journal_groups_total')} > 0.1", "10m", _WARNING,
          "A group commit of {{ $labels.instance }} takes {{ $value | humanizeDuration }}.",
          "Producers with acks=all wait that long: the disk is slow, or something else uses it."),
    Alert("KbrokerProduceIsSlow",
          "histogram_quantile(0.99, sum by (instance, le) ("
          f"rate({metric('kbroker_request_phase_seconds', _PRODUCE, _WHOLE, part='_bucket')}[5m])))"
          " > 1", "10m", _WARNING,
          "One in a hundred produce requests of {{ $labels.instance }} takes more than a second.",
          "The phases tell where: remote is the disk; the log names slow requests"
          " (kbroker.slow.request.ms)."),
    Alert("KbrokerProduceFails",
          f"{_growing('kafka_server_brokertopicmetrics_failedproducerequests_total', _ALL)} > 0",
          "10m", _WARNING, "Produce requests to {{ $labels.instance }} fail.",
          "By topic on the dashboard; the producers' own logs have the error."),
    Alert("KbrokerInternalErrors",
          f"{_growing('kafka_network_requestmetrics_errors_total', _OUR_FAULT)} > 0", "5m",
          _WARNING, "{{ $labels.request }} of {{ $labels.instance }} fails by the broker's fault.",
          "UNKNOWN_SERVER_ERROR is never the client's: the log has a traceback for each."),
    Alert("KbrokerLoginsFail",
          f"{_growing('kafka_network_requestmetrics_errors_total', _NO_LOGIN)} > 1", "5m", _WARNING,
          "Logins at {{ $labels.instance }} fail.",
          "A client has an old password, or somebody guesses: the log (kbroker.audit) has hosts."),
    Alert("KbrokerHandshakesFail",
          f"{_growing('kbroker_tls_handshakes_failed_total')} > 1", "5m", _WARNING,
          "TLS handshakes at {{ $labels.instance }} fail.",
          "A certificate that is over or not trusted, or a client without TLS: the log names why."),
    Alert("KbrokerStalls", f"{_growing('kbroker_network_stalls_total')} > 10", "10m", _WARNING,
          "Requests of {{ $labels.instance }} are put back again and again.",
          "The journal, a queue or the disk has no room as fast as clients want it."),
    Alert("KbrokerThreadsBusy",
          f"min by (instance) ({metric('kbroker_thread_idle_ratio', _NETWORK)}) < 0.1", "15m",
          _WARNING, "A network thread of {{ $labels.instance }} has hardly any rest.",
          "More of them (num.network.threads), or fewer, larger batches from producers."),
    Alert("KbrokerControlBusy",
          f"{metric('kbroker_thread_idle_ratio', _CONTROL)} < 0.1", "15m",
          _WARNING, "The control thread of {{ $labels.instance }} has hardly any rest.",
          "Groups, commits and metadata wait for it; look for clients that ask without pause."),
    Alert("KbrokerFileDescriptors",
          f"{metric('process_open_fds')} / {metric('process_max_fds')} > 0.8", "10m", _WARNING,
          "{{ $labels.instance }} has used four fifths of its file descriptors.",
          "Raise LimitNOFILE; a segment in use takes one, a connection another."),
    Alert("KbrokerUncleanable", f"{metric('kbroker_cleaner_uncleanable_partitions')} > 0", "10m",
          _WARNING, "{{ $value }} partitions of {{ $labels.instance }} cannot be compacted.",
          "They hold damaged batches: the log names them, kbroker log verify shows where."),
    Alert("KbrokerLagGrows",
          f"delta({metric('kafka_consumergroup_lag_sum')}[15m]) > 0 and "
          f"{metric('kafka_consumergroup_lag_sum')} > 10000", "30m", _WARNING,
          "{{ $labels.consumergroup }} falls behind in {{ $labels.topic }}.",
          "It is {{ $value }} records further behind than a quarter of an hour ago: kbroker group"
          " describe tells who reads what."),
    Alert("KbrokerGroupWithoutMembers",
          f"{metric('kafka_consumergroup_members')} == 0 and on (instance, consumergroup) "
          f"sum by (instance, consumergroup) ({metric('kafka_consumergroup_lag_sum')}) > 0", "15m",
          _WARNING, "Nobody reads for {{ $labels.consumergroup }}, and records wait.",
          "Its consumers are gone."),
    Alert("KbrokerTransactionHangs", f"{metric('kbroker_transaction_oldest_seconds')} > 1800", "5m",
          _WARNING, "A transaction on {{ $labels.instance }} is open for {{ $value |"
          " humanizeDuration }}.",
          "Readers of committed data stand still behind it: kbroker txn list and find-hanging."),
    Alert("KbrokerMarkersWait", f"{metric('kbroker_transaction_markers_waiting')} > 0", "5m",
          _WARNING, "Transactions on {{ $labels.instance }} do not come to their end.",
          "Their partitions take no markers: offline, or no room; the log names them."),
    *_loads("group", "__consumer_offsets", "Groups that are in them are not served",
            "Groups may go on from offsets that they had committed before"),
    *_loads("transaction", "__transaction_state",
            "Producers whose transactional ids are in them wait",
            "kbroker txn find-hanging shows what is left open by it"),
    Alert("KbrokerLogLinesDropped", f"{_growing('kbroker_log_lines_dropped_total')} > 0", "5m",
          _WARNING, "{{ $labels.instance }} has more to say than its log takes.",
          "Thousands of connections fail a second; the lines that are there say how."),
)  # fmt: skip


def rules_file(job: str) -> str:
    """The rules as YAML. `job`: a regular expression for job_name of the brokers' scrapes."""
    lines = ["groups:", "  - name: kbroker", "    rules:"]
    for alert in (*_reached(job), *ALERTS):
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasting}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(alert.description)}",
        ]
    return "\n".join(lines) + "\n"
