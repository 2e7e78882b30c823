"""Tiered storage, which a kbroker does not have."""

from __future__ import annotations

from typing import Final

from kbroker.config.types import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LONG,
    LOW,
    MEDIUM,
    READ_ONLY,
    STRING,
    ConfigKey,
    at_least,
    between,
    non_empty,
)

KEYS: Final = (
    ConfigKey(
        "log.local.retention.bytes", LONG, "-2", at_least(-2), MEDIUM, CLUSTER_WIDE,
        "Bytes of a tiered partition that are kept on local disk. There is no tiered storage "
        "here.",
        effective=False,
    ),
    ConfigKey(
        "log.local.retention.ms", LONG, "-2", at_least(-2), MEDIUM, CLUSTER_WIDE,
        "How long a tiered segment is kept on local disk. There is no tiered storage here.",
        effective=False,
    ),
    ConfigKey(
        "remote.fetch.max.wait.ms", INT, "500", at_least(1), MEDIUM, CLUSTER_WIDE,
        "Longest wait of a fetch for tiered storage. There is none here.",
        effective=False,
    ),
    ConfigKey(
        "remote.list.offsets.request.timeout.ms", LONG, "30000", at_least(1), MEDIUM,
        CLUSTER_WIDE,
        "Longest wait of an offset lookup in tiered storage. There is none here.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", at_least(1), LOW,
        CLUSTER_WIDE,
        "Disk space for cached indexes of tiered segments.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.index.file.cache.ttl.ms", LONG, "900000", at_least(-1), LOW, READ_ONLY,
        "How long a cached index of a tiered segment is kept.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "remote.log.manager.copier.thread.pool.size", INT, "10", at_least(1), MEDIUM,
        CLUSTER_WIDE,
        "Threads that copy segments to tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807", at_least(1),
        MEDIUM, CLUSTER_WIDE,
        "Ceiling for copying to tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.copy.quota.window.num", INT, "11", at_least(1), MEDIUM, READ_ONLY,
        "Number of samples of the quota for copying to tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.copy.quota.window.size.seconds", INT, "1", at_least(1), MEDIUM,
        READ_ONLY,
        "Length of one sample of the quota for copying to tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.expiration.thread.pool.size", INT, "10", at_least(1), MEDIUM,
        CLUSTER_WIDE,
        "Threads that delete expired segments from tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807",
        at_least(1), MEDIUM, CLUSTER_WIDE,
        "Ceiling for reading from tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.fetch.quota.window.num", INT, "11", at_least(1), MEDIUM, READ_ONLY,
        "Number of samples of the quota for reading from tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.fetch.quota.window.size.seconds", INT, "1", at_least(1), MEDIUM,
        READ_ONLY,
        "Length of one sample of the quota for reading from tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.follower.thread.pool.size", INT, "2", at_least(1), MEDIUM,
        CLUSTER_WIDE,
        "Threads for tiered storage work of follower partitions.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.task.interval.ms", LONG, "30000", at_least(1), LOW, READ_ONLY,
        "How often tiered storage tasks run.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.manager.task.retry.backoff.max.ms", LONG, "30000", at_least(1), LOW,
        READ_ONLY,
        "Longest pause before a tiered storage task is tried again.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "remote.log.manager.task.retry.backoff.ms", LONG, "500", at_least(1), LOW, READ_ONLY,
        "First pause before a tiered storage task is tried again.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "remote.log.manager.task.retry.jitter", DOUBLE, "0.2", between(0, 0.5), LOW, READ_ONLY,
        "Random part of the pause before a tiered storage task is tried again.",
        effective=False, internal=True,
    ),
    ConfigKey(
        "remote.log.manager.thread.pool.size", INT, "2", at_least(1), MEDIUM, READ_ONLY,
        "Threads that schedule tiered storage tasks.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.metadata.custom.metadata.max.bytes", INT, "128", at_least(0), LOW, READ_ONLY,
        "Longest custom metadata that a tiered storage plugin may attach to a segment.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.metadata.manager.class.name", STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        non_empty(), MEDIUM, READ_ONLY,
        "Java class that keeps the metadata of tiered segments.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.metadata.manager.class.path", STRING, None, None, MEDIUM, READ_ONLY,
        "Class path of the tiered storage metadata plugin.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", non_empty(), MEDIUM,
        READ_ONLY,
        "Prefix of the settings handed to the tiered storage metadata plugin.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.metadata.manager.listener.name", STRING, None, non_empty(), MEDIUM,
        READ_ONLY,
        "Listener that the tiered storage metadata plugin connects to.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.reader.max.pending.tasks", INT, "100", at_least(1), MEDIUM, READ_ONLY,
        "Most reads that may wait for tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.reader.threads", INT, "10", at_least(1), MEDIUM, CLUSTER_WIDE,
        "Threads that read from tiered storage.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.storage.manager.class.name", STRING, None, non_empty(), MEDIUM, READ_ONLY,
        "Java class that stores tiered segments.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.storage.manager.class.path", STRING, None, None, MEDIUM, READ_ONLY,
        "Class path of the tiered storage plugin.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", non_empty(), MEDIUM,
        READ_ONLY,
        "Prefix of the settings handed to the tiered storage plugin.",
        effective=False,
    ),
    ConfigKey(
        "remote.log.storage.system.enable", BOOLEAN, "false", None, MEDIUM, READ_ONLY,
        "Whether tiered storage is on. There is none here.",
        effective=False,
    ),
)
