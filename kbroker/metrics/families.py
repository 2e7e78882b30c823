"""The list of all metrics, in the order of /metrics. There is no second list: a sample of a name
that is not here cannot be made, and dashboards and alerts are checked against it.

Three spellings stand beside each other, so that existing dashboards need no change: those of the
JMX exporter for Apache Kafka (kafka_server_..., kafka_network_..., kafka_log_...), those of
kafka_exporter (kafka_topic_partition_..., kafka_consumergroup_...), and kbroker's own.
"""

from __future__ import annotations

from typing import Final

from kbroker.metrics.family import COUNTER, GAUGE, HISTOGRAM, SUMMARY, UNTYPED, Family

_PARTITION: Final = ("topic", "partition")
_GROUP: Final = ("consumergroup", "topic", "partition")
_GROUPS_ONLY: Final = "while a group has committed an offset"
_IN_TIME: Final = "where kbroker_scrape_complete is 1"
_FSYNC_ONLY: Final = "with kbroker.durability=fsync"
_LINUX_ONLY: Final = "where the kernel tells the time of threads"

_BROKER: Final = (
    Family("kbroker_build_info", GAUGE, "Always 1; the labels tell what runs.",
           ("version", "python")),
    Family("kbroker_uptime_seconds", GAUGE, "Time since the broker began to serve."),
    Family("kbroker_scrape_complete", GAUGE,
           "1 where all was told; 0: groups are left out, as the control thread did not come to"
           " them, or logs told as they were, as the disk holds up who writes to them."),
    Family("kbroker_scrape_seconds", GAUGE, "Time that collecting the last scrape took.",
           rarely="from the second scrape on"),
    Family("process_cpu_seconds_total", COUNTER, "Processor time of the broker."),
    Family("process_resident_memory_bytes", GAUGE, "Memory of the broker that is in RAM."),
    Family("process_virtual_memory_bytes", GAUGE, "Address space of the broker."),
    Family("process_start_time_seconds", GAUGE, "Start of the process, since 1970."),
    Family("process_open_fds", GAUGE, "Open file descriptors."),
    Family("process_max_fds", GAUGE, "Most file descriptors that may be open."),
    Family("kbroker_process_threads", GAUGE, "Threads of the broker."),
)

_CLUSTER: Final = (
    Family("kafka_brokers", GAUGE, "Brokers of the cluster."),
    Family("kafka_broker_info", GAUGE, "Always 1; the labels tell id and address of a broker.",
           ("id", "address")),
    Family("kafka_controller_kafkacontroller_activecontrollercount", GAUGE,
           "1 where this node is the active controller."),
    Family("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE,
           "Partitions without a leader that can serve."),
    Family("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, "Topics."),
    Family("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, "Partitions."),
    Family("kafka_server_replicamanager_partitioncount", GAUGE, "Partitions on this broker."),
    Family("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this broker leads."),
    Family("kafka_server_replicamanager_underreplicatedpartitions", GAUGE,
           "Partitions with replicas that are not in sync: offline ones, on one node."),
    Family("kafka_server_replicamanager_offlinereplicacount", GAUGE,
           "Replicas on this broker that the disk denies."),
    Family("kafka_server_replicamanager_underminisrpartitioncount", GAUGE,
           "Partitions with fewer replicas in sync than min.insync.replicas."),
    Family("kafka_server_replicamanager_produceridcount", GAUGE,
           "Producer ids that partitions remember, each where it is remembered."),
    Family("kafka_log_logmanager_offlinelogdirectorycount", GAUGE,
           "Log directories that failed."),
    Family("kafka_log_logmanager_cordonedlogdirectorycount", GAUGE,
           "Log directories that take no new partitions."),
    Family("kafka_log_logmanager_logdirectoryoffline", GAUGE,
           "1 where the log directory failed.", ("logdirectory",)),
    Family("kafka_log_logmanager_logdirectorycordoned", GAUGE,
           "1 where the log directory takes no new partitions.", ("logdirectory",)),
    Family("kbroker_log_directory_hangs", GAUGE,
           "1 while a write to the log directory stands for half a second and longer.",
           ("logdirectory",)),
    Family("kbroker_log_directory_partitions", GAUGE, "Partitions that live in the log directory.",
           ("logdirectory",)),
    Family("kbroker_log_directory_stray_folders", GAUGE,
           "Folders of the log directory that belong to no partition and are kept.",
           ("logdirectory",)),
    Family("kbroker_log_directory_used_bytes", GAUGE,
           "What the files of the log directory take.", ("logdirectory",), "where it is online"),
    Family("kbroker_log_directory_free_bytes", GAUGE,
           "Room that is left on the file system of the log directory.", ("logdirectory",),
           "where it is online"),
)

_NETWORK: Final = (
    Family("kbroker_connections", GAUGE, "Open connections of clients."),
    Family("kbroker_connections_accepted_total", COUNTER, "Connections accepted."),
    Family("kbroker_connections_closed_total", COUNTER, "Connections closed, by either side."),
    Family("kbroker_tls_handshakes_total", COUNTER, "TLS handshakes done."),
    Family("kbroker_tls_handshakes_failed_total", COUNTER, "TLS handshakes that failed."),
    *(
        Family(f"kafka_server_socket_server_metrics_{name}_total", COUNTER, text, ("listener",))
        for name, text in (
            ("successful_authentication", "Clients that said by SASL who they are."),
            ("failed_authentication", "Clients that SASL refused."),
            ("successful_reauthentication", "Sessions that were renewed (KIP-368)."),
            ("failed_reauthentication", "Sessions that could not be renewed."),
        )
    ),
    Family("kbroker_connections_idle_closed_total", COUNTER,
           "Connections closed after connections.max.idle.ms."),
    Family("kbroker_requests_total", COUNTER, "Requests taken from connections, of any API."),
    Family("kbroker_network_received_bytes_total", COUNTER, "Bytes read from connections."),
    Family("kbroker_network_sent_bytes_total", COUNTER, "Bytes sent to connections.", ("way",)),
    Family("kbroker_network_reads_total", COUNTER, "Read calls on connections."),
    Family("kbroker_network_sends_total", COUNTER, "Send and sendfile calls on connections."),
    Family("kbroker_network_turns_total", COUNTER, "Turns of the network threads' loops."),
    Family("kbroker_network_stalls_total", COUNTER,
           "Requests put back because journal, queue or disk had no room."),
    Family("kbroker_requests_parked_total", COUNTER,
           "Requests that did not get their answer at once."),
    Family("kbroker_purgatory_size", GAUGE, "Requests that wait for their answer."),
    Family("kbroker_queue_requests", GAUGE, "Requests that wait for a thread, by queue.",
           ("queue",)),
    Family("kafka_network_requestchannel_requestqueuesize", GAUGE,
           "Requests that wait for the control thread or the I/O pool."),
    Family("kbroker_request_buffer_bytes", GAUGE, "Memory of large requests, in use or kept.",
           ("state",)),
    Family("kbroker_request_buffers", GAUGE, "Large requests that are in memory."),
    Family("kbroker_log_lines_dropped_total", COUNTER,
           "Log lines of the data plane for which there was no room."),
    Family("kbroker_fetch_sessions", GAUGE, "Fetch sessions that are kept."),
    Family("kbroker_thread_busy_seconds_total", COUNTER,
           "Time that a thread ran or waited for a processor.", ("thread",), _LINUX_ONLY),
    Family("kbroker_thread_idle_ratio", GAUGE,
           "Share of the time between two scrapes that a thread had nothing to do.",
           ("thread",), _LINUX_ONLY),
    Family("kafka_network_socketserver_networkprocessoravgidle_percent", GAUGE,
           "Idle share of the network threads since the last scrape, 0 to 1.", (), _LINUX_ONLY),
    Family("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", GAUGE,
           "Idle share of the I/O pool and the control thread since the last scrape, 0 to 1.",
           (), _LINUX_ONLY),
)

_PHASES: Final = tuple(
    Family(f"kafka_network_requestmetrics_{name}", SUMMARY, text, ("request",))
    for name, text in (
        ("totaltimems", "From the last byte of a request to the last byte of its answer, in ms."),
        ("requestqueuetimems", "Until its handler begins, in ms."),
        ("localtimems", "In its handler, in ms."),
        ("remotetimems", "Waiting for the disk, records or other members, in ms."),
        ("responsequeuetimems", "The answer waiting to be sent, in ms."),
        ("responsesendtimems", "Sending the answer, in ms."),
    )
)
_REQUESTS: Final = (
    Family("kafka_network_requestmetrics_requests_total", COUNTER, "Requests by API and version.",
           ("request", "version")),
    Family("kafka_network_requestmetrics_errors_total", COUNTER,
           "Error codes that answers told, NONE too: one for each part that has one.",
           ("request", "error")),
    Family("kbroker_request_bytes_total", COUNTER, "Bytes of requests.",
           ("request",)),
    Family("kafka_network_requestmetrics_requestbytes", SUMMARY,
           "Bytes of requests: their sum and how many there were, without quantiles.",
           ("request",)),
    *_PHASES,
    Family("kbroker_request_phase_seconds", HISTOGRAM,
           "Time of requests by phase: queue, local, remote, response, send, total.",
           ("request", "phase")),
    Family("kbroker_requests_waiting", GAUGE, "Requests without an answer yet, by API.",
           ("request",)),
    Family("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE,
           "Produce and Fetch requests that wait.", ("delayedoperation",)),
    Family("kbroker_throttled_total", COUNTER,
           "Answers, and connections, that had to wait for a quota.", ("quota",)),
    Family("kbroker_throttle_seconds_total", COUNTER, "How long they were told to wait.",
           ("quota",)),
    Family("kbroker_gil_wait_seconds", HISTOGRAM,
           "The control thread's wait for Python's lock, with a request in hand."),
)
_TRAFFIC: Final = tuple(
    Family(f"kafka_server_brokertopicmetrics_{name}_total", COUNTER, text, ("topic",))
    for name, text in (
        ("messagesin", "Records appended."),
        ("bytesin", "Bytes appended."),
        ("bytesout", "Bytes that consumers fetched."),
        ("totalproducerequests", "Produce requests, one for each partition they name."),
        ("failedproducerequests", "... of which so many failed."),
        ("totalfetchrequests", "Answers to fetches, one for each partition in them."),
        ("failedfetchrequests", "... of which so many had an error."),
    )
)

_REFUSED: Final = (
    *(
        Family(f"kafka_server_brokertopicmetrics_{name}_total", COUNTER, text)
        for name, text in (
            ("bytesrejected", "Bytes of batches that were too large."),
            ("invalidmagicnumberrecords", "Batches of no format, or of one before 0.11."),
            ("invalidmessagecrcrecords", "Batches whose checksum is wrong."),
            ("invalidoffsetorsequencerecords", "Batches whose offsets or sequences are wrong."),
            ("nokeycompactedtopicrecords", "Batches for compacted topics that lack a key."),
        )
    ),
    Family("kbroker_batches_refused_total", COUNTER, "Batches refused by their content."),
)

_DISK: Final = (
    Family("kbroker_journal_sync_seconds", HISTOGRAM,
           "Time to write and sync a group of the journal.", (), _FSYNC_ONLY),
    Family("kbroker_journal_group_bytes", HISTOGRAM, "Size of a group of the journal.", (),
           _FSYNC_ONLY),
    Family("kbroker_journal_batches_total", COUNTER, "Batches in the journal's groups.", (),
           _FSYNC_ONLY),
    Family("kafka_log_logflushstats_logflushrateandtimems", SUMMARY,
           "Time of a flush, the journal's, in ms.", (), _FSYNC_ONLY),
    Family("kbroker_journal_groups_total", COUNTER, "Group commits of the journal.", (),
           _FSYNC_ONLY),
    Family("kbroker_journal_written_bytes_total", COUNTER, "Bytes that the journal wrote.", (),
           _FSYNC_ONLY),
    Family("kbroker_journal_flush_seconds_total", COUNTER,
           "Time that writing and syncing the journal took.", (), _FSYNC_ONLY),
    Family("kbroker_journal_files", GAUGE, "Files of the journal.", (), _FSYNC_ONLY),
    Family("kbroker_disk_used_bytes", GAUGE, "What the files of all log directories take."),
    Family("kbroker_disk_limit_bytes", GAUGE, "kbroker.disk.bytes.max.", (), "where it is set"),
    Family("kbroker_disk_free_bytes", GAUGE,
           "Room that is left on the file system of the first log directory."),
    Family("kbroker_disk_free_limit_bytes", GAUGE, "kbroker.disk.free.bytes.min.", (),
           "where it is set"),
    Family("kbroker_disk_size_bytes", GAUGE, "Size of the file system of the first log directory."),
    Family("kbroker_disk_refused", GAUGE, "1 while produce is refused for want of room."),
    Family("kbroker_cleaner_uncleanable_partitions", GAUGE,
           "Compacted partitions that hold what cannot be read."),
    Family("kbroker_cleaner_running", GAUGE, "Partitions that are being compacted now."),
    Family("kbroker_cleaner_runs_total", COUNTER, "Compactions of a partition that ended well."),
    Family("kbroker_cleaner_seconds_total", COUNTER, "Time that those took."),
    Family("kbroker_cleaner_read_bytes_total", COUNTER, "Bytes of segments that those read."),
    Family("kbroker_cleaner_written_bytes_total", COUNTER, "Bytes of them that stayed."),
)

_LOGS: Final = (
    Family("kafka_topic_partitions", GAUGE, "Partitions of a topic.", ("topic",)),
    Family("kafka_topic_partition_current_offset", GAUGE, "Next offset of a partition.",
           _PARTITION),
    Family("kafka_topic_partition_oldest_offset", GAUGE, "First offset of a partition.",
           _PARTITION),
    Family("kafka_topic_partition_in_sync_replica", GAUGE, "Replicas in sync.", _PARTITION),
    Family("kafka_topic_partition_leader", GAUGE, "Id of the leader, -1 for none.", _PARTITION),
    Family("kafka_topic_partition_leader_is_preferred", GAUGE,
           "1 where the leader is the preferred one.", _PARTITION),
    Family("kafka_topic_partition_replicas", GAUGE, "Replicas.", _PARTITION),
    Family("kafka_topic_partition_under_replicated_partition", GAUGE,
           "1 where replicas are not in sync.", _PARTITION),
    Family("kafka_log_log_size", GAUGE, "Bytes of a partition's segments.", _PARTITION),
    Family("kafka_log_log_numlogsegments", GAUGE, "Segments of a partition.", _PARTITION),
    Family("kafka_log_log_logstartoffset", GAUGE, "First offset of a partition.", _PARTITION),
    Family("kafka_log_log_logendoffset", GAUGE, "Next offset of a partition.", _PARTITION),
)



def _loads(kind: str, topic: str, holds: str) -> tuple[Family, ...]:
    """How far a coordinator's topic is read (kbroker.group.slot_loads.LoadFigures)."""
    return (
        Family(f"kbroker_{kind}_partitions_loading", GAUGE,
               f"Partitions of {topic} that are still being read."),
        Family(f"kbroker_{kind}_partitions_failed", GAUGE,
               f"... that could not be read: their {holds} are not served."),
        Family(f"kbroker_{kind}_state_passed_over", GAUGE,
               f"Damaged places of {topic} that were passed over."),
    )  # fmt: skip


_GROUPS: Final = (
    Family("kafka_consumergroup_current_offset", GAUGE, "Committed offset.", _GROUP,
           _GROUPS_ONLY),
    Family("kafka_consumergroup_current_offset_sum", UNTYPED,
           "Committed offsets of a topic's partitions, added up.", _GROUP[:2], _GROUPS_ONLY),
    Family("kafka_consumergroup_lag", GAUGE,
           "Records between a committed offset and the high watermark.", _GROUP, _GROUPS_ONLY),
    Family("kafka_consumergroup_lag_sum", UNTYPED, "Lag of a topic's partitions, added up.",
           _GROUP[:2], _GROUPS_ONLY),
    Family("kafka_consumergroup_members", GAUGE, "Members of a group.", ("consumergroup",),
           "while there is a group"),
    Family("kbroker_groups", GAUGE, "Groups by protocol and state.", ("protocol", "state"),
           "while there is a group"),
    Family("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, "Groups.", (),
           _IN_TIME),
    Family("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE,
           "Committed offsets of groups and partitions.", (), _IN_TIME),
    *_loads("group", "__consumer_offsets", "groups"),
)  # fmt: skip

_TRANSACTIONS: Final = (
    Family("kbroker_transactional_ids", GAUGE, "Transactional ids by their transaction's state.",
           ("state",), "while there is a transactional id"),
    Family("kbroker_transactions_ended_total", COUNTER,
           "Transactions whose end is on disk, with all of their markers.", ("outcome",)),
    Family("kbroker_transactions_timed_out_total", COUNTER,
           "... of those aborted because their time was over."),
    Family("kbroker_transaction_oldest_seconds", GAUGE,
           "Age of the transaction that is open longest, 0 for none."),
    Family("kbroker_transaction_markers_waiting", GAUGE,
           "Partitions that wait for the marker of a transaction that ends."),
    *_loads("transaction", "__transaction_state", "transactional ids"),
)

FAMILIES: Final = (
    *_BROKER, *_CLUSTER, *_NETWORK, *_REQUESTS, *_DISK, *_TRAFFIC, *_REFUSED, *_LOGS, *_GROUPS,
    *_TRANSACTIONS,
)  # fmt: skip
BY_NAME: Final = {family.name: family for family in FAMILIES}

assert len(BY_NAME) == len(FAMILIES), "a metric is in the list once"
