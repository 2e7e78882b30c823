"""Settings of topics, groups and client metrics subscriptions."""

from __future__ import annotations

from typing import Final

from kbroker.config.types import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MEDIUM,
    STRING,
    ConfigKey,
    at_least,
    between,
    gzip_level,
    list_of,
    offset_reset,
    one_of,
    throttled_replicas,
)

TOPIC_KEYS: Final = (
    ConfigKey(
        "cleanup.policy", LIST, "delete", list_of("compact", "delete"), MEDIUM, CLUSTER_WIDE,
        "What happens to old segments: delete drops them by age and size, compact keeps the "
        "last record of every key, both may be named; empty keeps everything.",
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
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), MEDIUM,
        CLUSTER_WIDE,
        "Codec in which batches are stored. The value producer keeps whatever codec the client "
        "chose; any other makes the broker recompress what differs.",
    ),
    ConfigKey(
        "compression.zstd.level", INT, "3", between(-131072, 22), MEDIUM, CLUSTER_WIDE,
        "Level used when the broker recompresses batches with zstd.",
    ),
    ConfigKey(
        "delete.retention.ms", LONG, "86400000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long tombstones and transaction markers stay in a compacted topic, so that slow "
        "readers still see them.",
    ),
    ConfigKey(
        "file.delete.delay.ms", LONG, "60000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a removed segment file stays on disk under its .deleted name.",
    ),
    ConfigKey(
        "flush.messages", LONG, "9223372036854775807", at_least(1), MEDIUM, CLUSTER_WIDE,
        "With page-cache durability, flush a partition after this many appended records.",
    ),
    ConfigKey(
        "flush.ms", LONG, "9223372036854775807", at_least(0), MEDIUM, CLUSTER_WIDE,
        "With page-cache durability, flush a partition once unflushed records are this old.",
    ),
    ConfigKey(
        "follower.replication.throttled.replicas", LIST, "", throttled_replicas(), MEDIUM,
        CLUSTER_WIDE,
        "Replicas whose fetching is throttled, as partition:broker pairs or *. There are no "
        "followers.",
        effective=False,
    ),
    ConfigKey(
        "index.interval.bytes", INT, "4096", at_least(0), MEDIUM, CLUSTER_WIDE,
        "An index entry is added each time about this many bytes were appended.",
    ),
    ConfigKey(
        "internal.segment.bytes", INT, None, None, MEDIUM, CLUSTER_WIDE,
        "Segment size without a lower bound, for tests.",
        internal=True,
    ),
    ConfigKey(
        "leader.replication.throttled.replicas", LIST, "", throttled_replicas(), MEDIUM,
        CLUSTER_WIDE,
        "Replicas whose serving of followers is throttled, as partition:broker pairs or *. "
        "There are no followers.",
        effective=False,
    ),
    ConfigKey(
        "local.retention.bytes", LONG, "-2", at_least(-2), MEDIUM, CLUSTER_WIDE,
        "Bytes of a tiered partition that are kept on local disk; -2 takes retention.bytes. "
        "There is no tiered storage here.",
        effective=False,
    ),
    ConfigKey(
        "local.retention.ms", LONG, "-2", at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How long a tiered segment is kept on local disk; -2 takes retention.ms. There is no "
        "tiered storage here.",
        effective=False,
    ),
    ConfigKey(
        "max.compaction.lag.ms", LONG, "9223372036854775807", at_least(1), MEDIUM, CLUSTER_WIDE,
        "Longest time a record may wait until it becomes due for compaction.",
    ),
    ConfigKey(
        "max.message.bytes", INT, "1048588", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Largest record batch, as it is after compression, that the topic takes.",
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", LONG, "3600000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How far a record's create time may lie ahead of the broker's clock.",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", LONG, "9223372036854775807", at_least(0), MEDIUM,
        CLUSTER_WIDE,
        "How far a record's create time may lie behind the broker's clock.",
    ),
    ConfigKey(
        "message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        MEDIUM, CLUSTER_WIDE,
        "Whether a record's timestamp is the producer's create time or the broker's append "
        "time.",
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", DOUBLE, "0.5", between(0, 1), MEDIUM, CLUSTER_WIDE,
        "Share of not yet cleaned bytes from which a log becomes due for compaction.",
    ),
    ConfigKey(
        "min.compaction.lag.ms", LONG, "0", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Shortest time for which a record stays as it is in a compacted topic.",
    ),
    ConfigKey(
        "min.insync.replicas", INT, "1", at_least(1), MEDIUM, CLUSTER_WIDE,
        "Replicas that must hold a batch before acks=all is answered. With one broker more "
        "than 1 can never be met.",
    ),
    ConfigKey(
        "preallocate", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether the file of a new segment is allocated in full on creation.",
    ),
    ConfigKey(
        "remote.log.copy.disable", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether copying to tiered storage is stopped. There is none here.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.delete.on.disable", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether tiered data is deleted when tiering is switched off. There is none here.",
        effective=False,
    ),
    ConfigKey(
        "remote.storage.enable", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether the topic is tiered. There is no tiered storage here.",
        effective=False,
    ),
    ConfigKey(
        "retention.bytes", LONG, "-1", None, MEDIUM, CLUSTER_WIDE,
        "Bytes a partition may hold before its oldest segments are deleted; -1 sets no limit.",
    ),
    ConfigKey(
        "retention.ms", LONG, "604800000", at_least(-1), MEDIUM, CLUSTER_WIDE,
        "Age from which a segment is deleted, by its newest record; -1 sets no limit.",
    ),
    ConfigKey(
        "segment.bytes", INT, "1073741824", at_least(1048576), MEDIUM, CLUSTER_WIDE,
        "Size at which a segment file is closed and a new one begun.",
    ),
    ConfigKey(
        "segment.index.bytes", INT, "10485760", at_least(4), MEDIUM, CLUSTER_WIDE,
        "Largest size of an offset or time index; a full index rolls the segment.",
    ),
    ConfigKey(
        "segment.jitter.ms", LONG, "0", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Most milliseconds by which the time roll of a segment is brought forward at random, "
        "so that not all roll at once.",
    ),
    ConfigKey(
        "segment.ms", LONG, "604800000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "Age at which the active segment is rolled although it is not full.",
    ),
    ConfigKey(
        "unclean.leader.election.enable", BOOLEAN, "false", None, MEDIUM, CLUSTER_WIDE,
        "Whether a replica out of sync may become leader at the price of lost records. There "
        "is one replica.",
        effective=False,
    ),
)

GROUP_KEYS: Final = (
    ConfigKey(
        "consumer.assignment.interval.ms", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Least time between two assignments computed for this consumer group.",
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "How often members of this consumer group must report.",
    ),
    ConfigKey(
        "consumer.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "A member of this consumer group that is silent for this long is removed.",
    ),
    ConfigKey(
        "share.assignment.interval.ms", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Least time between two assignments computed for this share group.",
        effective=False,
    ),
    ConfigKey(
        "share.auto.offset.reset", STRING, "latest", offset_reset(), MEDIUM, CLUSTER_WIDE,
        "Where a share group starts in a partition it has no position for: latest, earliest, "
        "or by_duration: and an ISO 8601 duration back from now.",
        effective=False,
    ),
    ConfigKey(
        "share.delivery.count.limit", INT, "5", at_least(2), MEDIUM, CLUSTER_WIDE,
        "How often a record is delivered to this share group before it counts as failed.",
        effective=False,
    ),
    ConfigKey(
        "share.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "How often members of this share group must report.",
        effective=False,
    ),
    ConfigKey(
        "share.isolation.level", STRING, "read_uncommitted",
        one_of("read_committed", "read_uncommitted"), MEDIUM, CLUSTER_WIDE,
        "Whether this share group reads all records or only those of committed transactions.",
        effective=False,
    ),
    ConfigKey(
        "share.partition.max.record.locks", INT, "2000", at_least(100), MEDIUM, CLUSTER_WIDE,
        "Most records of one partition that this share group may hold locked at a time.",
        effective=False,
    ),
    ConfigKey(
        "share.record.lock.duration.ms", INT, "30000", at_least(1000), MEDIUM, CLUSTER_WIDE,
        "How long a record stays locked for the consumer that acquired it.",
        effective=False,
    ),
    ConfigKey(
        "share.renew.acknowledge.enable", BOOLEAN, "true", None, MEDIUM, CLUSTER_WIDE,
        "Whether consumers of this share group may extend the lock on a record.",
        effective=False,
    ),
    ConfigKey(
        "share.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "A member of this share group that is silent for this long is removed.",
        effective=False,
    ),
    ConfigKey(
        "streams.assignment.interval.ms", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Least time between two assignments computed for this streams group.",
        effective=False,
    ),
    ConfigKey(
        "streams.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "How often members of this streams group must report.",
        effective=False,
    ),
    ConfigKey(
        "streams.initial.rebalance.delay.ms", INT, "3000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "How long a new streams group waits for further members before its first assignment.",
        effective=False,
    ),
    ConfigKey(
        "streams.num.standby.replicas", INT, "0", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Standby copies of each stateful task.",
        effective=False,
    ),
    ConfigKey(
        "streams.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, CLUSTER_WIDE,
        "A member of this streams group that is silent for this long is removed.",
        effective=False,
    ),
)

CLIENT_METRICS_KEYS: Final = (
    ConfigKey(
        "interval.ms", INT, "300000", None, MEDIUM, CLUSTER_WIDE,
        "How often matching clients push their metrics.",
    ),
    ConfigKey(
        "match", LIST, "", None, MEDIUM, CLUSTER_WIDE,
        "Patterns of client attributes that pick the clients of this subscription, as "
        "name=regex pairs.",
    ),
    ConfigKey(
        "metrics", LIST, "", None, MEDIUM, CLUSTER_WIDE,
        "Prefixes of the metric names that matching clients push.",
    ),
)
