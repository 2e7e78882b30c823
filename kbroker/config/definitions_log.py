"""Logs: segments, retention, cleaning, flushing, messages."""

from __future__ import annotations

from typing import Final

from kbroker.config.types import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PER_BROKER,
    READ_ONLY,
    STRING,
    ConfigKey,
    at_least,
    between,
    gzip_level,
    list_of,
    one_of,
)

KEYS: Final = (
    ConfigKey(
        "alter.config.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "Java class that may veto config changes. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "auto.create.topics.enable", BOOLEAN, "true", None, HIGH, READ_ONLY,
        "Whether a metadata request for a missing topic creates it with the broker's defaults.",
    ),
    ConfigKey(
        "compression.gzip.level", INT, "-1", gzip_level(), MEDIUM, CLUSTER_WIDE,
        "Level used when the broker recompresses batches with gzip; -1 is the codec's own "
        "default.",
    ),
    ConfigKey(
        "compression.lz4.level", INT, "9", between(1, 17), MEDIUM, CLUSTER_WIDE,
        "Level used when the broker recompresses batches with lz4.",
    ),
    ConfigKey(
        "compression.type", STRING, "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), HIGH, CLUSTER_WIDE,
        "Codec in which batches are stored. The value producer keeps whatever codec the client "
        "chose.",
    ),
    ConfigKey(
        "compression.zstd.level", INT, "3", between(-131072, 22), MEDIUM, CLUSTER_WIDE,
        "Level used when the broker recompresses batches with zstd.",
    ),
    ConfigKey(
        "cordoned.log.dirs", LIST, "", list_of(), MEDIUM, PER_BROKER,
        "Log directories that take no new partitions; * for all.",
    ),
    ConfigKey(
        "create.topic.policy.class.name", CLASS, None, None, LOW, READ_ONLY,
        "Java class that may veto new topics. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "default.replication.factor", INT, "1", None, MEDIUM, READ_ONLY,
        "Replication factor of topics created without one. kbroker stores one copy whatever is "
        "asked with kbroker.replication.factor.clamp, and refuses more than one without it.",
    ),
    ConfigKey(
        "delete.topic.enable", BOOLEAN, "true", None, HIGH, READ_ONLY,
        "Whether topics may be deleted at all.",
    ),
    ConfigKey(
        "log.cleaner.backoff.ms", LONG, "15000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long the cleaner sleeps when there was nothing to clean.",
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size", LONG, "134217728", None, MEDIUM, CLUSTER_WIDE,
        "Memory for the map of keys that the cleaner builds, over all its threads.",
    ),
    ConfigKey(
        "log.cleaner.delete.retention.ms", LONG, "86400000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long tombstones and transaction markers stay in a compacted topic, so that slow "
        "readers still see them. Default of the topic setting delete.retention.ms.",
    ),
    ConfigKey(
        "log.cleaner.enable", BOOLEAN, "true", None, MEDIUM, READ_ONLY,
        "Whether compacted topics are cleaned in the background. Without it they grow for "
        "ever.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", None, MEDIUM, CLUSTER_WIDE,
        "How full the cleaner's map of keys may get. Higher cleans more at a time and collides "
        "more often.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size", INT, "524288", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Read and write buffers of the cleaner, over all its threads.",
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308", None, MEDIUM,
        CLUSTER_WIDE,
        "Ceiling for the bytes that the cleaner reads and writes in a second.",
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms", LONG, "9223372036854775807", at_least(1), MEDIUM,
        CLUSTER_WIDE,
        "Longest time a record of a compacted topic may wait until it becomes due for "
        "compaction. Default of max.compaction.lag.ms.",
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", between(0, 1), MEDIUM, CLUSTER_WIDE,
        "Share of not yet cleaned bytes from which a log becomes due for compaction. Default "
        "of min.cleanable.dirty.ratio.",
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms", LONG, "0", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Shortest time for which a record of a compacted topic stays as it is. Default of "
        "min.compaction.lag.ms.",
    ),
    ConfigKey(
        "log.cleaner.threads", INT, "1", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Threads that clean compacted topics; at least 1 unless log.cleaner.enable is false.",
    ),
    ConfigKey(
        "log.cleanup.policy", LIST, "delete", list_of("compact", "delete"), MEDIUM, CLUSTER_WIDE,
        "What happens to old segments: delete them, compact them by key, or both; an empty "
        "value keeps them for ever. Default of cleanup.policy.",
    ),
    ConfigKey(
        "log.dir", LIST, "/tmp/kafka-logs", list_of(empty=False), HIGH, READ_ONLY,
        "Data directory, used where log.dirs is not given.",
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms", LONG, "30000", at_least(1), LOW, READ_ONLY,
        "How long a broker may fail to tell the controller about a broken log directory. Here "
        "both are one process.",
        effective=False,
    ),
    ConfigKey(
        "log.dirs", LIST, None, list_of(empty=False), HIGH, READ_ONLY,
        "Data directories, the first of them with the metadata log. A new partition goes where "
        "there are fewest.",
    ),
    ConfigKey(
        "log.flush.interval.messages", LONG, "9223372036854775807", at_least(1), HIGH,
        CLUSTER_WIDE,
        "With page-cache durability, flush a partition after this many appended records. "
        "Default of flush.messages.",
    ),
    ConfigKey(
        "log.flush.interval.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "With page-cache durability, flush a partition once unflushed records are this old. "
        "Default of flush.ms.",
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms", INT, "60000", at_least(0), HIGH, READ_ONLY,
        "How often the recovery points of all partitions are written to their checkpoint file.",
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms", LONG, "9223372036854775807", None, HIGH, READ_ONLY,
        "How often Apache Kafka looks whether a log must be flushed; stands in for "
        "log.flush.interval.ms where that is unset.",
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms", INT, "60000", at_least(0), HIGH,
        READ_ONLY,
        "How often the log start offsets of all partitions are written to their checkpoint "
        "file.",
    ),
    ConfigKey(
        "log.index.interval.bytes", INT, "4096", at_least(0), MEDIUM, CLUSTER_WIDE,
        "An index entry is added each time about this many bytes were appended. Default of "
        "index.interval.bytes.",
    ),
    ConfigKey(
        "log.index.size.max.bytes", INT, "10485760", at_least(4), MEDIUM, CLUSTER_WIDE,
        "Largest size of an offset or time index; a full index rolls the segment. Default of "
        "segment.index.bytes.",
    ),
    ConfigKey(
        "log.initial.task.delay.ms", LONG, "30000", at_least(0), LOW, READ_ONLY,
        "Pause after the start before the first retention and checkpoint rounds.",
        internal=True,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms", LONG, "3600000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's create time may lie ahead of the broker's clock. Default of "
        "message.timestamp.after.max.ms.",
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms", LONG, "9223372036854775807", at_least(0), MEDIUM,
        CLUSTER_WIDE,
        "How far a record's create time may lie behind the broker's clock. Default of "
        "message.timestamp.before.max.ms.",
    ),
    ConfigKey(
        "log.message.timestamp.type", STRING, "CreateTime",
        one_of("CreateTime", "LogAppendTime"), MEDIUM, CLUSTER_WIDE,
        "Whether a record's timestamp is the producer's create time or the broker's append "
        "time. Default of message.timestamp.type.",
    ),
    ConfigKey(
        "log.preallocate", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether the file of a new segment is allocated in full on creation. Default of "
        "preallocate.",
    ),
    ConfigKey(
        "log.retention.bytes", LONG, "-1", None, HIGH, CLUSTER_WIDE,
        "Bytes a partition may hold before its oldest segments are deleted; -1 sets no limit. "
        "Default of retention.bytes.",
    ),
    ConfigKey(
        "log.retention.check.interval.ms", LONG, "300000", at_least(1), MEDIUM, READ_ONLY,
        "How often segments are checked for deletion.",
    ),
    ConfigKey(
        "log.retention.hours", INT, "168", None, HIGH, READ_ONLY,
        "Hours after which a segment may be deleted, used where neither log.retention.ms nor "
        "log.retention.minutes is given.",
    ),
    ConfigKey(
        "log.retention.minutes", INT, None, None, HIGH, READ_ONLY,
        "Minutes after which a segment may be deleted, used where log.retention.ms is not "
        "given.",
    ),
    ConfigKey(
        "log.retention.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Milliseconds after which a segment may be deleted; -1 sets no limit. Default of "
        "retention.ms.",
    ),
    ConfigKey(
        "log.roll.hours", INT, "168", at_least(1), HIGH, READ_ONLY,
        "Hours after which the active segment is rolled although it is not full, used where "
        "log.roll.ms is not given.",
    ),
    ConfigKey(
        "log.roll.jitter.hours", INT, "0", at_least(0), HIGH, READ_ONLY,
        "Most hours by which the time roll of a segment is brought forward at random, used "
        "where log.roll.jitter.ms is not given.",
    ),
    ConfigKey(
        "log.roll.jitter.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Most milliseconds by which the time roll of a segment is brought forward at random. "
        "Default of segment.jitter.ms.",
    ),
    ConfigKey(
        "log.roll.ms", LONG, None, None, HIGH, CLUSTER_WIDE,
        "Milliseconds after which the active segment is rolled although it is not full. "
        "Default of segment.ms.",
    ),
    ConfigKey(
        "log.segment.bytes", INT, "1073741824", at_least(1048576), HIGH, CLUSTER_WIDE,
        "Size at which a segment file is closed and a new one begun. Default of segment.bytes.",
    ),
    ConfigKey(
        "log.segment.delete.delay.ms", LONG, "60000", at_least(0), HIGH, CLUSTER_WIDE,
        "How long a removed segment file stays on disk under its .deleted name. Default of "
        "file.delete.delay.ms.",
    ),
    ConfigKey(
        "message.max.bytes", INT, "1048588", at_least(0), HIGH, CLUSTER_WIDE,
        "Largest record batch, as it is after compression, that the broker takes. Default of "
        "max.message.bytes.",
    ),
    ConfigKey(
        "min.insync.replicas", INT, "1", at_least(1), HIGH, CLUSTER_WIDE,
        "Replicas that must hold a batch before acks=all is answered. With one broker more "
        "than 1 can never be met. Default of the topic setting.",
    ),
    ConfigKey(
        "num.partitions", INT, "1", at_least(1), MEDIUM, READ_ONLY,
        "Partitions of topics that are created without a number of partitions.",
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir", INT, "2", at_least(1), HIGH, CLUSTER_WIDE,
        "Threads that open and recover partitions at the start and flush them at the stop.",
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms", INT, "600000", at_least(1), LOW, READ_ONLY,
        "How often producer ids without activity are looked for.",
        internal=True,
    ),
    ConfigKey(
        "producer.id.expiration.ms", INT, "86400000", at_least(1), LOW, CLUSTER_WIDE,
        "A producer id that has not written to a partition for this long is forgotten there.",
    ),
)
