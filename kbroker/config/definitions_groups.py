"""Group, share and transaction coordinators with their topics."""

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
    SHORT,
    STRING,
    ConfigKey,
    at_least,
    between,
    list_of,
    one_of_any_case,
)

KEYS: Final = (
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms", INT, "100", at_least(0), HIGH, READ_ONLY,
        "Longest wait before the broker tries again to verify that a partition belongs to a "
        "transaction.",
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms", INT, "20", at_least(1), HIGH, READ_ONLY,
        "First wait before the broker tries again to verify that a partition belongs to a "
        "transaction.",
        effective=False,
    ),
    ConfigKey(
        "group.consumer.assignment.interval.ms", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Least time between two assignments computed for a consumer group of the new protocol.",
    ),
    ConfigKey(
        "group.consumer.assignors", LIST, "uniform,range", list_of(empty=False), MEDIUM,
        READ_ONLY,
        "Server-side assignors for consumer groups of the new protocol; the first is the "
        "default.",
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, READ_ONLY,
        "How often members of a consumer group of the new protocol must report.",
    ),
    ConfigKey(
        "group.consumer.max.assignment.interval.ms", INT, "15000", at_least(0), MEDIUM,
        READ_ONLY,
        "Upper bound for consumer.assignment.interval.ms set on a group.",
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms", INT, "15000", at_least(1), MEDIUM, READ_ONLY,
        "Upper bound for consumer.heartbeat.interval.ms set on a group.",
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms", INT, "60000", at_least(1), MEDIUM, READ_ONLY,
        "Upper bound for consumer.session.timeout.ms set on a group.",
    ),
    ConfigKey(
        "group.consumer.max.size", INT, "2147483647", at_least(1), MEDIUM, READ_ONLY,
        "Most members that a consumer group of the new protocol may have.",
    ),
    ConfigKey(
        "group.consumer.migration.policy", STRING, "bidirectional",
        one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), MEDIUM, READ_ONLY,
        "In which directions a group may be converted between the classic and the consumer "
        "protocol while it is running.",
    ),
    ConfigKey(
        "group.consumer.min.assignment.interval.ms", INT, "0", at_least(0), MEDIUM, READ_ONLY,
        "Lower bound for consumer.assignment.interval.ms set on a group.",
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, READ_ONLY,
        "Lower bound for consumer.heartbeat.interval.ms set on a group.",
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, READ_ONLY,
        "Lower bound for consumer.session.timeout.ms set on a group.",
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms", INT, "600000", at_least(10000), MEDIUM,
        READ_ONLY,
        "How often a subscription by regular expression is resolved again.",
        internal=True,
    ),
    ConfigKey(
        "group.consumer.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, READ_ONLY,
        "A member of a consumer group of the new protocol that is silent for this long is "
        "removed.",
    ),
    ConfigKey(
        "group.coordinator.append.linger.ms", INT, "-1", at_least(-1), MEDIUM, READ_ONLY,
        "How long the group coordinator gathers records before it writes them; -1 adapts to "
        "the load.",
        effective=False,
    ),
    ConfigKey(
        "group.coordinator.background.threads", INT, "2", at_least(1), HIGH, READ_ONLY,
        "Threads for the group coordinator's background work in Apache Kafka. kbroker has one "
        "control thread.",
        effective=False,
    ),
    ConfigKey(
        "group.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(524288), MEDIUM,
        CLUSTER_WIDE,
        "Largest write buffer that a group coordinator keeps for use again.",
        effective=False,
    ),
    ConfigKey(
        "group.coordinator.rebalance.protocols", LIST, "classic,consumer,streams",
        list_of("consumer", "classic", "share", "streams"), MEDIUM, READ_ONLY,
        "Group protocols that clients may use.",
    ),
    ConfigKey(
        "group.coordinator.threads", INT, "4", at_least(1), HIGH, READ_ONLY,
        "Threads of the group coordinator in Apache Kafka. kbroker has one control thread.",
        effective=False,
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms", INT, "3000", None, MEDIUM, READ_ONLY,
        "How long a new classic group waits for further members, from the last that came on, "
        "before its first rebalance; rebalance.timeout.ms at most.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms", INT, "1800000", None, MEDIUM, READ_ONLY,
        "Longest session timeout that a member of a classic group may ask for.",
    ),
    ConfigKey(
        "group.max.size", INT, "2147483647", at_least(1), MEDIUM, READ_ONLY,
        "Most members that a classic group may have.",
    ),
    ConfigKey(
        "group.min.session.timeout.ms", INT, "6000", None, MEDIUM, READ_ONLY,
        "Shortest session timeout that a member of a classic group may ask for.",
    ),
    ConfigKey(
        "group.share.assignment.interval.ms", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Least time between two assignments computed for a share group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.assignors", LIST, "simple", list_of(empty=False), MEDIUM, READ_ONLY,
        "Server-side assignors for share groups.",
        effective=False,
    ),
    ConfigKey(
        "group.share.delivery.count.limit", INT, "5", between(2, 10), MEDIUM, READ_ONLY,
        "How often a record is delivered to a share group before it counts as failed.",
        effective=False,
    ),
    ConfigKey(
        "group.share.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, READ_ONLY,
        "How often members of a share group must report.",
        effective=False,
    ),
    ConfigKey(
        "group.share.initialize.retry.interval.ms", INT, "30000", at_least(1), LOW, READ_ONLY,
        "Pause before the initialisation of share state is tried again.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "group.share.max.assignment.interval.ms", INT, "15000", at_least(0), MEDIUM, READ_ONLY,
        "Upper bound for share.assignment.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.delivery.count.limit", INT, "10", between(5, 25), MEDIUM, READ_ONLY,
        "Upper bound for share.delivery.count.limit set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.heartbeat.interval.ms", INT, "15000", at_least(1), MEDIUM, READ_ONLY,
        "Upper bound for share.heartbeat.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.partition.max.record.locks", INT, "4000", between(2000, 10000), MEDIUM,
        READ_ONLY,
        "Upper bound for share.partition.max.record.locks set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.record.lock.duration.ms", INT, "60000", between(30000, 3600000), MEDIUM,
        READ_ONLY,
        "Upper bound for share.record.lock.duration.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.session.timeout.ms", INT, "60000", at_least(1), MEDIUM, READ_ONLY,
        "Upper bound for share.session.timeout.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.share.sessions", INT, "2000", at_least(1), MEDIUM, READ_ONLY,
        "Most share sessions that are kept open on the broker.",
        effective=False,
    ),
    ConfigKey(
        "group.share.max.size", INT, "200", between(1, 1000), MEDIUM, READ_ONLY,
        "Most members that a share group may have.",
        effective=False,
    ),
    ConfigKey(
        "group.share.min.assignment.interval.ms", INT, "0", at_least(0), MEDIUM, READ_ONLY,
        "Lower bound for share.assignment.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.min.delivery.count.limit", INT, "2", between(2, 5), MEDIUM, READ_ONLY,
        "Lower bound for share.delivery.count.limit set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.min.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, READ_ONLY,
        "Lower bound for share.heartbeat.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.min.partition.max.record.locks", INT, "100", between(100, 2000), MEDIUM,
        READ_ONLY,
        "Lower bound for share.partition.max.record.locks set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.min.record.lock.duration.ms", INT, "15000", between(1000, 30000), MEDIUM,
        READ_ONLY,
        "Lower bound for share.record.lock.duration.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.min.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, READ_ONLY,
        "Lower bound for share.session.timeout.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.partition.max.record.locks", INT, "2000", between(100, 10000), MEDIUM,
        READ_ONLY,
        "Most records of one partition that a share group may hold locked at a time.",
        effective=False,
    ),
    ConfigKey(
        "group.share.persister.class.name", STRING,
        "org.apache.kafka.server.share.persister.DefaultStatePersister", None, MEDIUM, READ_ONLY,
        "Java class that stores share group state. kbroker loads no Java classes.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "group.share.record.lock.duration.ms", INT, "30000", between(1000, 3600000), MEDIUM,
        READ_ONLY,
        "How long a record stays locked for the consumer that acquired it in a share group.",
        effective=False,
    ),
    ConfigKey(
        "group.share.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, READ_ONLY,
        "A member of a share group that is silent for this long is removed.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.assignment.interval.ms", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE,
        "Least time between two assignments computed for a streams group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, READ_ONLY,
        "How often members of a streams group must report.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.initial.rebalance.delay.ms", INT, "3000", at_least(0), MEDIUM, READ_ONLY,
        "How long a new streams group waits for further members before its first assignment.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.max.assignment.interval.ms", INT, "15000", at_least(0), MEDIUM, READ_ONLY,
        "Upper bound for streams.assignment.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.max.heartbeat.interval.ms", INT, "15000", at_least(1), MEDIUM, READ_ONLY,
        "Upper bound for streams.heartbeat.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.max.session.timeout.ms", INT, "60000", at_least(1), MEDIUM, READ_ONLY,
        "Upper bound for streams.session.timeout.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.max.size", INT, "2147483647", at_least(1), MEDIUM, READ_ONLY,
        "Most members that a streams group may have.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.max.standby.replicas", INT, "2", at_least(0), MEDIUM, READ_ONLY,
        "Upper bound for streams.num.standby.replicas set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.min.assignment.interval.ms", INT, "0", at_least(0), MEDIUM, READ_ONLY,
        "Lower bound for streams.assignment.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.min.heartbeat.interval.ms", INT, "5000", at_least(1), MEDIUM, READ_ONLY,
        "Lower bound for streams.heartbeat.interval.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.min.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, READ_ONLY,
        "Lower bound for streams.session.timeout.ms set on a group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.num.standby.replicas", INT, "0", at_least(0), MEDIUM, READ_ONLY,
        "Standby copies of each stateful task in a streams group.",
        effective=False,
    ),
    ConfigKey(
        "group.streams.session.timeout.ms", INT, "45000", at_least(1), MEDIUM, READ_ONLY,
        "A member of a streams group that is silent for this long is removed.",
        effective=False,
    ),
    ConfigKey(
        "offset.metadata.max.bytes", INT, "4096", None, HIGH, READ_ONLY,
        "Longest metadata text that a client may store with a committed offset.",
    ),
    ConfigKey(
        "offsets.commit.timeout.ms", INT, "5000", at_least(1), HIGH, READ_ONLY,
        "How long an offset commit may wait for its records to be in place.",
    ),
    ConfigKey(
        "offsets.load.buffer.size", INT, "5242880", at_least(1), HIGH, READ_ONLY,
        "Bytes read at a time while a group coordinator loads its partition.",
        effective=False,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms", LONG, "600000", at_least(1), HIGH, READ_ONLY,
        "How often expired committed offsets are looked for.",
    ),
    ConfigKey(
        "offsets.retention.minutes", INT, "10080", at_least(1), HIGH, READ_ONLY,
        "How long committed offsets are kept once their group is empty or the topic no longer "
        "read.",
    ),
    ConfigKey(
        "offsets.topic.compression.codec", INT, "0", None, HIGH, READ_ONLY,
        "Codec for batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
    ConfigKey(
        "offsets.topic.num.partitions", INT, "50", at_least(1), HIGH, READ_ONLY,
        "Partitions of __consumer_offsets. It must not change once the topic exists.",
    ),
    ConfigKey(
        "offsets.topic.replication.factor", SHORT, "3", at_least(1), HIGH, READ_ONLY,
        "Copies of __consumer_offsets. One node keeps one.",
        effective=False,
    ),
    ConfigKey(
        "offsets.topic.segment.bytes", INT, "104857600", at_least(1), HIGH, READ_ONLY,
        "Segment size of __consumer_offsets; small segments load and compact quickly.",
    ),
    ConfigKey(
        "share.coordinator.append.linger.ms", INT, "-1", at_least(-1), MEDIUM, READ_ONLY,
        "How long the share coordinator gathers records before it writes them; -1 adapts to "
        "the load.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.cached.buffer.max.bytes", INT, "1048588", at_least(524288), MEDIUM,
        CLUSTER_WIDE,
        "Largest write buffer that a share coordinator keeps for use again.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.cold.partition.snapshot.interval.ms", INT, "300000", at_least(1), LOW,
        READ_ONLY,
        "How often share partitions without traffic are written as a snapshot.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "share.coordinator.load.buffer.size", INT, "5242880", at_least(1), HIGH, READ_ONLY,
        "Bytes read at a time while a share coordinator loads its partition.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.snapshot.update.records.per.snapshot", INT, "500", between(0, 500),
        MEDIUM, READ_ONLY,
        "Updates of a share partition's state between two snapshots of it.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.state.topic.compression.codec", INT, "0", None, HIGH, READ_ONLY,
        "Codec for batches in __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr", SHORT, "2", at_least(1), HIGH, READ_ONLY,
        "In-sync replicas that __share_group_state asks for. One node has one.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.state.topic.num.partitions", INT, "50", at_least(1), HIGH, READ_ONLY,
        "Partitions of __share_group_state. It must not change once the topic exists.",
    ),
    ConfigKey(
        "share.coordinator.state.topic.prune.interval.ms", INT, "300000", at_least(1), LOW,
        READ_ONLY,
        "How often outdated records of __share_group_state are removed.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "share.coordinator.state.topic.replication.factor", SHORT, "3", at_least(1), HIGH,
        READ_ONLY,
        "Copies of __share_group_state. One node keeps one.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.state.topic.segment.bytes", INT, "104857600", at_least(1), HIGH,
        READ_ONLY,
        "Segment size of __share_group_state.",
    ),
    ConfigKey(
        "share.coordinator.threads", INT, "1", at_least(1), MEDIUM, READ_ONLY,
        "Threads of the share coordinator in Apache Kafka. kbroker has one control thread.",
        effective=False,
    ),
    ConfigKey(
        "share.coordinator.write.timeout.ms", INT, "5000", at_least(1), HIGH, READ_ONLY,
        "How long a write of share state may take.",
        effective=False,
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000", at_least(1),
        LOW, READ_ONLY,
        "How often transactions beyond their timeout are looked for and aborted.",
    ),
    ConfigKey(
        "transaction.max.timeout.ms", INT, "900000", at_least(1), HIGH, READ_ONLY,
        "Longest transaction timeout that a producer may ask for.",
    ),
    ConfigKey(
        "transaction.partition.verification.enable", BOOLEAN, "true", None, LOW, CLUSTER_WIDE,
        "Whether a transactional batch is taken only after its partition was found to be part "
        "of the transaction.",
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000",
        at_least(1), LOW, READ_ONLY,
        "How often expired transactional ids are looked for and removed.",
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size", INT, "5242880", at_least(1), HIGH, READ_ONLY,
        "Bytes read at a time while a transaction coordinator loads its partition.",
        effective=False,
    ),
    ConfigKey(
        "transaction.state.log.min.isr", INT, "2", at_least(1), HIGH, READ_ONLY,
        "In-sync replicas that __transaction_state asks for. One node has one.",
        effective=False,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions", INT, "50", at_least(1), HIGH, READ_ONLY,
        "Partitions of __transaction_state. It must not change once the topic exists.",
    ),
    ConfigKey(
        "transaction.state.log.replication.factor", SHORT, "3", at_least(1), HIGH, READ_ONLY,
        "Copies of __transaction_state. One node keeps one.",
        effective=False,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes", INT, "104857600", at_least(1), HIGH, READ_ONLY,
        "Segment size of __transaction_state; small segments load and compact quickly.",
    ),
    ConfigKey(
        "transaction.two.phase.commit.enable", BOOLEAN, "false", None, LOW, READ_ONLY,
        "Whether producers may take part in a two-phase commit that has no timeout.",
        effective=False,
    ),
    ConfigKey(
        "transactional.id.expiration.ms", INT, "604800000", at_least(1), HIGH, READ_ONLY,
        "A transactional id without any activity for this long is forgotten.",
    ),
)
