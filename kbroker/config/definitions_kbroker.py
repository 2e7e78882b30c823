"""Keys that Apache Kafka does not have; all begin with `kbroker.`."""

from __future__ import annotations

from typing import Final

from kbroker.config.log_levels import levels
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
    between,
    list_of,
    one_of,
)

FSYNC: Final = "fsync"
PAGE_CACHE: Final = "page-cache"
HTTP_LISTENERS: Final = "kbroker.http.listeners"
CLIENT_TELEMETRY: Final = "kbroker.client.telemetry"
INSECURE: Final = "kbroker.insecure"
LOG_LEVEL: Final = "kbroker.log.level"
LOG_FORMAT: Final = "kbroker.log.format"

KEYS: Final = (
    ConfigKey(
        "kbroker.durability", STRING, FSYNC, one_of(FSYNC, PAGE_CACHE), HIGH, READ_ONLY,
        "With fsync a batch sent with acks=all is on disk before it is acknowledged and before a "
        "consumer sees it. With page-cache it is acknowledged once the kernel has it, as Apache "
        "Kafka does: a power cut may take back what was acknowledged.",
    ),
    ConfigKey(
        "kbroker.disk.bytes.max", LONG, "-1", at_least(-1), HIGH, CLUSTER_WIDE,
        "Most bytes that segments, indexes, metadata and journal take in each log directory; -1 "
        "for no limit. Near it the oldest closed segments of topics with cleanup.policy=delete "
        "are deleted, whichever topic they belong to; where that is not enough, produce is "
        "refused with KAFKA_STORAGE_ERROR until there is room. Compaction, which writes segments "
        "anew before the old ones go, makes room in the same way and goes on without: where "
        "nothing else can be deleted, the limit may be passed by what it rewrites at a time, "
        "segment.bytes of each log that is being cleaned, until that is done.",
    ),
    ConfigKey(
        "kbroker.disk.free.bytes.min", LONG, "0", at_least(0), HIGH, CLUSTER_WIDE,
        "Least bytes that stay free on the file system of each log directory, kept by the same "
        "means as kbroker.disk.bytes.max; 0 for no limit. Segments and the journal, where nobody "
        "set their sizes, are made for the size of the file system less these bytes.",
    ),
    ConfigKey(
        CLIENT_TELEMETRY, BOOLEAN, "false", None, MEDIUM, READ_ONLY,
        "Whether clients that push their metrics (KIP-714) find the broker willing. Which metrics, "
        "how often and of whom say the client-metrics settings; what came last is at "
        "/client-metrics of the HTTP listener.",
    ),
    ConfigKey(
        "kbroker.flush.interval.ms.max", INT, "50", between(1, 60_000), HIGH, READ_ONLY,
        "With fsync durability, the longest time that a batch sent with acks=1 or acks=0 waits "
        "for its flush when no other flush and no reader hurries it.",
    ),
    ConfigKey(
        HTTP_LISTENERS, LIST, "HTTP://127.0.0.1:9308", list_of(), HIGH, READ_ONLY,
        "Addresses, each HTTP://HOST:PORT, at which /metrics, /livez, /readyz and /status are "
        "served without authentication; empty for none. If another broker of the machine uses the "
        "default already, the broker starts without. A listener on loopback answers only requests "
        "whose Host header is localhost, an IP address, or a host name in this setting or in "
        "advertised.listeners, against DNS rebinding; other listeners accept every Host.",
    ),
    ConfigKey(
        "kbroker.slow.request.ms", LONG, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "A request that takes so long or longer is told in the log with the time of each phase, "
        "not counting what it waits for on purpose (records, other members of a group); 0 for "
        "none.",
    ),
    ConfigKey(
        LOG_LEVEL, STRING, "INFO", levels(), MEDIUM, READ_ONLY,
        "Level of the broker's log: FATAL, ERROR, WARN, INFO, DEBUG or TRACE; after it, between "
        "commas, LOGGER=LEVEL for single loggers, as in INFO,kbroker.group=DEBUG. Levels can be "
        "changed while the broker runs, as those of Apache Kafka: kafka-configs with the entity "
        "type broker-loggers.",
    ),
    ConfigKey(
        LOG_FORMAT, STRING, "auto", one_of("auto", "logfmt", "json"), MEDIUM, READ_ONLY,
        "Form of the log's lines: logfmt (key=value) or one JSON object each; auto is logfmt "
        "where the log goes to a terminal and JSON elsewhere.",
    ),
    ConfigKey(
        "kbroker.replication.factor.clamp", BOOLEAN, "false", None, MEDIUM, READ_ONLY,
        "Whether a topic asked for with a replication factor above 1 is created with 1 instead "
        "of being refused. For test suites that were written for clusters.",
    ),
    ConfigKey(
        "kbroker.segment.bytes.adaptive", BOOLEAN, "true", None, MEDIUM, CLUSTER_WIDE,
        "Whether a topic for which nobody set segment.bytes or log.segment.bytes gets segments "
        "of at most a quarter of its retention.bytes and a quarter of a partition's even share of "
        "what kbroker.disk.bytes.max and kbroker.disk.free.bytes.min leave, but of no less than "
        "1 MiB or one largest batch, so that deleting closed segments really frees space. For "
        "retention.ms likewise: where nobody set segment.ms, log.roll.ms or log.roll.hours, a "
        "segment of a topic with cleanup.policy=delete is closed at a quarter of it, after 10 s "
        "at the earliest. Settings are shown as Kafka has them.",
    ),
    ConfigKey(
        "kbroker.journal.bytes.max", LONG, "536870912", at_least(16_777_216), MEDIUM, READ_ONLY,
        "Most bytes of journal files in each log directory. The journal takes the sync for all "
        "partitions; more room lets the segments be flushed later and in larger pieces.",
    ),
    ConfigKey(
        "kbroker.journal.buffer.bytes", INT, "8388608", between(1_048_576, 1_073_741_824),
        MEDIUM, READ_ONLY,
        "Memory in which batches are gathered for the next write of the journal. A producer "
        "waits when it is full.",
    ),
    ConfigKey(
        "kbroker.control.queue.requests.max", INT, "1000", at_least(1), LOW, READ_ONLY,
        "Requests that may wait for the control thread before the broker stops reading from the "
        "sockets that sent them.",
    ),
    ConfigKey(
        "kbroker.network.read.bytes", INT, "262144", between(4096, 1_073_741_824), LOW, READ_ONLY,
        "Buffer of each network thread for reading from sockets. Small requests are worked on "
        "in it, without a buffer of their own.",
    ),
    ConfigKey(
        "kbroker.request.buffer.cache.bytes", LONG, "67108864", at_least(0), LOW, READ_ONLY,
        "Memory of finished large requests that is kept for the next ones.",
    ),
    ConfigKey(
        INSECURE, BOOLEAN, "false", None, MEDIUM, READ_ONLY,
        "Whether it is meant that a listener which other machines reach asks nobody who it is; "
        "otherwise the broker warns of it when it starts.",
    ),
    ConfigKey(
        "kbroker.tls.kernel", BOOLEAN, "false", None, LOW, READ_ONLY,
        "Whether the kernel encrypts what TLS listeners send, so that fetches stay sendfile; it "
        "needs the module tls and OpenSSL 3.",
    ),
    ConfigKey(
        "kbroker.handshake.timeout.ms", LONG, "30000", at_least(1), MEDIUM, READ_ONLY,
        "How long a client may take to say who it is, TLS and SASL together, whatever it sends "
        "meanwhile.",
    ),
    ConfigKey(
        "kbroker.connection.requests.max", INT, "1000", at_least(1), LOW, READ_ONLY,
        "Requests of one connection that may be in flight before the broker stops reading from "
        "it.",
    ),
    ConfigKey(
        "kbroker.connection.unsent.bytes.max", LONG, "4194304", at_least(1), LOW, READ_ONLY,
        "Bytes of answers that one connection may leave unread before the broker stops reading "
        "its requests.",
    ),
)
