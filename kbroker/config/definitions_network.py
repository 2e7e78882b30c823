"""Sockets, connections, requests, threads and quotas of them."""

from __future__ import annotations

from typing import Final

from kbroker.config.types import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
    at_least,
    list_of,
)

KEYS: Final = (
    ConfigKey(
        "advertised.listeners", LIST, None, list_of(empty=False), HIGH, READ_ONLY,
        "Addresses that clients are told to connect to, one per listener name. When unset, the "
        "addresses in listeners are told; give it where clients reach the broker through NAT, "
        "a container or a proxy.",
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.num", INT, "11", at_least(1), LOW, READ_ONLY,
        "Number of samples kept for throttling moves between log directories.",
        effective=False,
    ),
    ConfigKey(
        "alter.log.dirs.replication.quota.window.size.seconds", INT, "1", at_least(1), LOW,
        READ_ONLY,
        "Length of one sample of the throttle for moves between log directories.",
        effective=False,
    ),
    ConfigKey(
        "background.threads", INT, "10", at_least(1), HIGH, CLUSTER_WIDE,
        "Size of the pool for background chores in Apache Kafka. kbroker's maintenance runs on "
        "one thread of its own.",
        effective=False,
    ),
    ConfigKey(
        "client.quota.callback.class", CLASS, None, None, LOW, READ_ONLY,
        "Java class that computes client quotas. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms", INT, "100", at_least(0), LOW, READ_ONLY,
        "How long the close of a connection is put off after failed authentication, to slow "
        "down guessing.",
    ),
    ConfigKey(
        "connections.max.idle.ms", LONG, "600000", None, MEDIUM, READ_ONLY,
        "A connection without any request for this long is closed.",
    ),
    ConfigKey(
        "connections.max.reauth.ms", LONG, "0", None, MEDIUM, READ_ONLY,
        "When positive, a SASL session older than this must authenticate again.",
    ),
    ConfigKey(
        "controller.quota.window.num", INT, "11", at_least(1), LOW, READ_ONLY,
        "Number of samples kept for the quota on controller mutations.",
    ),
    ConfigKey(
        "controller.quota.window.size.seconds", INT, "1", at_least(1), LOW, READ_ONLY,
        "Length of one sample of the quota on controller mutations.",
    ),
    ConfigKey(
        "delete.records.purgatory.purge.interval.requests", INT, "1", None, MEDIUM, READ_ONLY,
        "After how many finished DeleteRecords requests their leftovers in purgatory are "
        "swept.",
        effective=False,
    ),
    ConfigKey(
        "early.start.listeners", LIST, None, list_of(), HIGH, READ_ONLY,
        "Listeners that open before authorization is ready. kbroker opens listeners last, all "
        "together.",
        effective=False,
    ),
    ConfigKey(
        "fetch.max.bytes", INT, "57671680", at_least(1024), MEDIUM, READ_ONLY,
        "Most bytes that one fetch response carries, whatever the client asks. The first batch "
        "is always returned whole, so that a client can get on.",
    ),
    ConfigKey(
        "fetch.purgatory.purge.interval.requests", INT, "1000", None, MEDIUM, READ_ONLY,
        "After how many finished fetches their leftovers in purgatory are swept.",
        effective=False,
    ),
    ConfigKey(
        "follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether an empty follower starts at the last tiered offset. There are no followers "
        "and no tiers here.",
        effective=False,
    ),
    ConfigKey(
        "inter.broker.listener.name", STRING, None, None, MEDIUM, READ_ONLY,
        "Listener over which brokers talk to one another. There is only one broker; where it is "
        "not the only listener, it is exempt from max.connections and its rate.",
    ),
    ConfigKey(
        "kafka.metrics.polling.interval.secs", INT, "10", at_least(1), LOW, READ_ONLY,
        "How often legacy Java metrics reporters are polled.",
        effective=False,
    ),
    ConfigKey(
        "kafka.metrics.reporters", LIST, "", list_of(), LOW, READ_ONLY,
        "Legacy Java metrics reporters. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", None, LOW,
        PER_BROKER,
        "Which security protocol each listener name speaks, as NAME:PROTOCOL pairs. A change waits "
        "for the next start.",
    ),
    ConfigKey(
        "listeners", LIST, "PLAINTEXT://127.0.0.1:9092", list_of(empty=False), HIGH, PER_BROKER,
        "Addresses to listen on, as NAME://host:port separated by commas. An empty host is "
        "every interface; port 0 lets the kernel choose. A change waits for the next start.",
    ),
    ConfigKey(
        "max.connection.creation.rate", INT, "2147483647", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Most new connections in a second, of the broker or, with its prefix, of a listener. Above "
        "it none is accepted for as long as brings the rate back there.",
    ),
    ConfigKey(
        "max.connections", INT, "2147483647", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Most connections that are open at a time, of the broker or, with its prefix, of a "
        "listener. At the limit a new one waits until another closes. Above the broker's, after it "
        "was lowered or when the listener between brokers takes more, those that were quiet for "
        "longest are closed.",
    ),
    ConfigKey(
        "max.connections.per.ip", INT, "2147483647", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Most connections from one address; more of them are closed at once.",
    ),
    ConfigKey(
        "max.connections.per.ip.overrides", STRING, "", None, MEDIUM, CLUSTER_WIDE,
        "Limits for single hosts in place of max.connections.per.ip, as host:count pairs. Names "
        "are resolved when the setting is taken over.",
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots", INT, "1000", at_least(0), MEDIUM, READ_ONLY,
        "Most incremental fetch sessions that are remembered.",
    ),
    ConfigKey(
        "max.request.partition.size.limit", INT, "2000", at_least(1), MEDIUM, READ_ONLY,
        "Most partitions that one DescribeTopicPartitions answer holds.",
    ),
    ConfigKey(
        "metric.reporters", LIST, "org.apache.kafka.common.metrics.JmxReporter", list_of(), LOW,
        CLUSTER_WIDE,
        "Java classes that report metrics. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "metrics.num.samples", INT, "2", at_least(1), LOW, READ_ONLY,
        "Samples kept for each Java metric.",
        effective=False,
    ),
    ConfigKey(
        "metrics.recording.level", STRING, "INFO", None, LOW, READ_ONLY,
        "Which Java metrics are recorded.",
        effective=False,
    ),
    ConfigKey(
        "metrics.sample.window.ms", LONG, "30000", at_least(1), LOW, READ_ONLY,
        "Length of a sample of a Java metric.",
        effective=False,
    ),
    ConfigKey(
        "num.io.threads", INT, "8", at_least(1), HIGH, CLUSTER_WIDE,
        "Threads for requests that may block or take long, such as cold reads and "
        "recompression.",
    ),
    ConfigKey(
        "num.network.threads", INT, "3", at_least(1), HIGH, CLUSTER_WIDE,
        "Threads that read from, work for and write to connections. A connection stays with its "
        "thread: a lower number holds for new ones.",
    ),
    ConfigKey(
        "num.replica.alter.log.dirs.threads", INT, None, None, HIGH, READ_ONLY,
        "Threads that move replicas between log directories. kbroker has one.",
        effective=False,
    ),
    ConfigKey(
        "num.replica.fetchers", INT, "1", at_least(1), HIGH, CLUSTER_WIDE,
        "Threads that fetch from each other broker. There is no other broker.",
        effective=False,
    ),
    ConfigKey(
        "producer.purgatory.purge.interval.requests", INT, "1000", None, MEDIUM, READ_ONLY,
        "After how many finished produce requests their leftovers in purgatory are swept.",
        effective=False,
    ),
    ConfigKey(
        "queued.max.request.bytes", LONG, "-1", None, MEDIUM, READ_ONLY,
        "Memory for requests that are being read or worked on; beyond it the broker stops "
        "reading from sockets. -1 sets no limit.",
    ),
    ConfigKey(
        "queued.max.requests", INT, "500", at_least(1), HIGH, READ_ONLY,
        "Requests that may wait for a worker before the broker stops reading from sockets.",
    ),
    ConfigKey(
        "quota.window.num", INT, "11", at_least(1), LOW, READ_ONLY,
        "Number of samples kept for client quotas.",
    ),
    ConfigKey(
        "quota.window.size.seconds", INT, "1", at_least(1), LOW, READ_ONLY,
        "Length of one sample of a client quota.",
    ),
    ConfigKey(
        "replica.fetch.backoff.ms", INT, "1000", at_least(0), MEDIUM, READ_ONLY,
        "Pause of a follower after a failed fetch. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.fetch.max.bytes", INT, "1048576", at_least(0), MEDIUM, READ_ONLY,
        "Bytes per partition that a follower asks for. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.fetch.min.bytes", INT, "1", None, HIGH, READ_ONLY,
        "Least bytes that a follower's fetch waits for. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes", INT, "10485760", at_least(0), MEDIUM, READ_ONLY,
        "Most bytes that a follower asks for at a time. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms", INT, "500", None, HIGH, READ_ONLY,
        "Longest wait of a follower's fetch. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", LONG, "5000", None, HIGH, READ_ONLY,
        "How often the high watermarks of all partitions are written to their checkpoint file.",
    ),
    ConfigKey(
        "replica.lag.time.max.ms", LONG, "30000", None, HIGH, READ_ONLY,
        "How long a follower may lag before it leaves the in-sync set. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.selector.class", STRING, None, None, MEDIUM, READ_ONLY,
        "Java class that picks the replica a client should read from. There is one replica.",
        effective=False,
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes", INT, "65536", None, HIGH, READ_ONLY,
        "Receive buffer of a follower's connection. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.socket.timeout.ms", INT, "30000", None, HIGH, READ_ONLY,
        "Time limit of a follower's requests. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replication.quota.window.num", INT, "11", at_least(1), LOW, READ_ONLY,
        "Number of samples of the replication throttle.",
        effective=False,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds", INT, "1", at_least(1), LOW, READ_ONLY,
        "Length of one sample of the replication throttle.",
        effective=False,
    ),
    ConfigKey(
        "request.timeout.ms", INT, "30000", None, HIGH, READ_ONLY,
        "How long the broker waits for an answer to a request of its own.",
    ),
    ConfigKey(
        "share.fetch.purgatory.purge.interval.requests", INT, "1000", None, MEDIUM, READ_ONLY,
        "After how many finished share fetches their leftovers in purgatory are swept.",
        effective=False,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.max.ms", LONG, "30000", None, MEDIUM, READ_ONLY,
        "Longest wait for a connection that the broker opens itself. It opens none.",
        effective=False,
    ),
    ConfigKey(
        "socket.connection.setup.timeout.ms", LONG, "10000", None, MEDIUM, READ_ONLY,
        "First wait for a connection that the broker opens itself. It opens none.",
        effective=False,
    ),
    ConfigKey(
        "socket.listen.backlog.size", INT, "50", at_least(1), MEDIUM, READ_ONLY,
        "Connections that the kernel may hold until they are accepted; kbroker asks for 1024 at "
        "least.",
    ),
    ConfigKey(
        "socket.receive.buffer.bytes", INT, "102400", None, HIGH, READ_ONLY,
        "SO_RCVBUF of accepted sockets; -1 leaves it to the kernel.",
    ),
    ConfigKey(
        "socket.request.max.bytes", INT, "104857600", at_least(1), HIGH, READ_ONLY,
        "Largest request frame; a bigger one closes the connection.",
    ),
    ConfigKey(
        "socket.send.buffer.bytes", INT, "102400", None, HIGH, READ_ONLY,
        "SO_SNDBUF of accepted sockets; -1 leaves it to the kernel.",
    ),
    ConfigKey(
        "telemetry.max.bytes", INT, "1048576", at_least(1), LOW, READ_ONLY,
        "Largest metrics push that is taken from a client.",
    ),
)

# Throttles of replication, which no file can hold. Of one broker or of all, while it runs.
THROTTLES: Final = (
    ConfigKey(
        "follower.replication.throttled.rate", LONG, str(LONG_MAX), at_least(0), MEDIUM,
        CLUSTER_WIDE,
        "Bytes a second that followers fetch of throttled replicas. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "leader.replication.throttled.rate", LONG, str(LONG_MAX), at_least(0), MEDIUM,
        CLUSTER_WIDE,
        "Bytes a second that leaders give followers of throttled replicas. There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "replica.alter.log.dirs.io.max.bytes.per.second", LONG, str(LONG_MAX), at_least(0), MEDIUM,
        CLUSTER_WIDE,
        "Bytes a second that are copied for moves between log directories. It can only be set "
        "while the broker runs.",
    ),
)
