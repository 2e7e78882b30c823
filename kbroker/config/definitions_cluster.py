"""Identity of the node, its metadata log and the KRaft quorum."""

from __future__ import annotations

from typing import Final

from kbroker.config.types import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    ConfigKey,
    at_least,
    list_of,
)

KEYS: Final = (
    ConfigKey(
        "auto.leader.rebalance.enable", BOOLEAN, "true", None, HIGH, READ_ONLY,
        "Whether leadership is moved back to preferred replicas in the background. With one "
        "broker every leader is the preferred one.",
        effective=False,
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms", INT, "2000", None, MEDIUM, READ_ONLY,
        "How often a broker reports to the controller. Here both are one process.",
        effective=False,
    ),
    ConfigKey(
        "broker.id", INT, "-1", None, HIGH, READ_ONLY,
        "Former name of node.id; taken as the node id when node.id is not given.",
    ),
    ConfigKey(
        "broker.rack", STRING, None, None, MEDIUM, READ_ONLY,
        "Rack or zone name that is told to clients for this broker.",
    ),
    ConfigKey(
        "broker.session.timeout.ms", INT, "9000", None, MEDIUM, READ_ONLY,
        "How long the controller waits for heartbeats before it fences a broker. Here both are "
        "one process.",
        effective=False,
    ),
    ConfigKey(
        "config.providers", LIST, "", list_of(), LOW, CLUSTER_WIDE,
        "Names of the providers that resolve ${NAME:PATH:KEY} and ${NAME:KEY} in static settings; "
        "config.providers.NAME.class says which of Apache Kafka's each is: FileConfigProvider, "
        "DirectoryConfigProvider or EnvVarConfigProvider.",
    ),
    ConfigKey(
        "controlled.shutdown.enable", BOOLEAN, "true", None, MEDIUM, READ_ONLY,
        "Whether leadership is handed over before a broker stops. There is no other broker to "
        "hand it to.",
        effective=False,
    ),
    ConfigKey(
        "controller.listener.names", LIST, "CONTROLLER", list_of(empty=False), HIGH, READ_ONLY,
        "Names of the listeners that belong to the KRaft controller. kbroker opens no such "
        "listener; the names only tell which entries of listeners to leave out.",
        effective=False,
    ),
    ConfigKey(
        "controller.performance.always.log.threshold.ms", LONG, "2000", at_least(0), MEDIUM,
        READ_ONLY,
        "Controller events slower than this are always logged.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "controller.performance.sample.period.ms", LONG, "60000", at_least(100), MEDIUM,
        READ_ONLY,
        "Period over which controller event times are summed up for the log.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "controller.quorum.append.linger.ms", INT, "25", at_least(0), MEDIUM, READ_ONLY,
        "How long the KRaft leader gathers metadata records before it writes them. kbroker "
        "writes and syncs them at once.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.auto.join.enable", BOOLEAN, "false", None, LOW, READ_ONLY,
        "Whether a controller joins the quorum by itself. The quorum here is this one node.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers", LIST, "", None, HIGH, READ_ONLY,
        "Addresses for finding the KRaft quorum. The quorum here is this one node.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms", INT, "1000", at_least(0), HIGH, READ_ONLY,
        "Longest pause between KRaft elections. A quorum of one needs none.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.election.timeout.ms", INT, "1000", at_least(0), HIGH, READ_ONLY,
        "How long a KRaft election may take. A quorum of one needs none.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.fetch.max.bytes", INT, "1048576", at_least(1), LOW, READ_ONLY,
        "Most bytes that one fetch of the metadata log between nodes returns.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.fetch.snapshot.max.bytes", INT, "1048576", at_least(1), LOW,
        READ_ONLY,
        "Most bytes of a metadata snapshot that one fetch between nodes returns.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms", INT, "2000", at_least(0), HIGH, READ_ONLY,
        "How long a follower of the metadata log waits before it seeks a new leader.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.request.timeout.ms", INT, "2000", at_least(0), MEDIUM, READ_ONLY,
        "Time limit of requests between members of the KRaft quorum.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.retry.backoff.ms", INT, "20", at_least(0), LOW, READ_ONLY,
        "Pause before a request between members of the KRaft quorum is repeated.",
        effective=False,
    ),
    ConfigKey(
        "controller.quorum.voters", LIST, "", None, HIGH, READ_ONLY,
        "Fixed list of KRaft voters. The quorum here is this one node.",
        effective=False,
    ),
    ConfigKey(
        "controller.socket.timeout.ms", INT, "30000", None, MEDIUM, READ_ONLY,
        "Socket time limit from controller to brokers. Here both are one process.",
        effective=False,
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms", INT, "60000", None, MEDIUM, READ_ONLY,
        "How long a broker tries to register with the controller before it gives up. Here both "
        "are one process.",
        effective=False,
    ),
    ConfigKey(
        "internal.metadata.delete.delay.millis", LONG, "60000", None, LOW, READ_ONLY,
        "How long a removed file of the metadata log stays on disk.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "internal.metadata.log.segment.bytes", INT, None, None, LOW, READ_ONLY,
        "Segment size of the metadata log, for tests.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "internal.metadata.max.batch.size.in.bytes", INT, "8388608", None, LOW, READ_ONLY,
        "Largest batch in the metadata log, for tests.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", LONG, "300", at_least(1), HIGH, READ_ONLY,
        "How often the controller looks for leaders that are not the preferred replica. With "
        "one broker all are.",
        effective=False,
    ),
    ConfigKey(
        "metadata.log.dir", STRING, None, None, HIGH, READ_ONLY,
        "Which of log.dirs has the metadata log, where it is not the first.",
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", at_least(1), HIGH,
        READ_ONLY,
        "A snapshot of the metadata is written after about this many bytes of new metadata "
        "records.",
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms", LONG, "3600000", at_least(0), HIGH, READ_ONLY,
        "Longest time between two metadata snapshots while there are new records; 0 switches "
        "the rule off.",
    ),
    ConfigKey(
        "metadata.log.segment.bytes", INT, "1073741824", at_least(8388608), HIGH, READ_ONLY,
        "Segment size of the metadata log.",
        effective=False,
    ),
    ConfigKey(
        "metadata.log.segment.ms", LONG, "604800000", None, HIGH, READ_ONLY,
        "Age at which a segment of the metadata log is rolled.",
        effective=False,
    ),
    ConfigKey(
        "metadata.max.idle.interval.ms", INT, "500", at_least(0), LOW, READ_ONLY,
        "How often an idle KRaft leader writes a no-op record. kbroker writes none.",
        effective=False,
    ),
    ConfigKey(
        "metadata.max.retention.bytes", LONG, "104857600", None, HIGH, READ_ONLY,
        "Total size of metadata log and snapshots from which old ones are deleted.",
        effective=False,
    ),
    ConfigKey(
        "metadata.max.retention.ms", LONG, "604800000", None, HIGH, READ_ONLY,
        "Age from which old metadata segments and snapshots are deleted.",
        effective=False,
    ),
    ConfigKey(
        "node.id", INT, "1", at_least(0), HIGH, READ_ONLY,
        "Id of this node in the cluster.",
    ),
    ConfigKey(
        "process.roles", LIST, "broker,controller", list_of("broker", "controller", empty=False),
        HIGH, READ_ONLY,
        "Roles of this process in Apache Kafka. kbroker is always broker and controller in "
        "one.",
    ),
    ConfigKey(
        "server.max.startup.time.ms", LONG, "9223372036854775807", at_least(0), MEDIUM,
        READ_ONLY,
        "Longest time that the start may take before Apache Kafka gives up.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", None, HIGH, CLUSTER_WIDE,
        "Whether a replica out of sync may become leader at the price of lost records. There "
        "is one replica. Default of the topic setting.",
        effective=False,
    ),
    ConfigKey(
        "unclean.leader.election.interval.ms", LONG, "300000", at_least(1), MEDIUM, READ_ONLY,
        "How often partitions waiting for an unclean election are looked at. There is one "
        "replica.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "unstable.api.versions.enable", BOOLEAN, "false", None, HIGH, READ_ONLY,
        "Whether API versions still in development are offered. kbroker offers none.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "unstable.feature.versions.enable", BOOLEAN, "false", None, HIGH, READ_ONLY,
        "Whether feature levels still in development are offered. kbroker offers none.",
        effective=False, internal=True,
    ),
)
