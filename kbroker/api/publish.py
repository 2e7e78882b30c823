"""From the metadata to the logs and the data plane.

Each function is called after the records it is about were appended to the metadata log, and once
for every topic at the start. Nothing here fails the request: a log that the disk denies is left
out, its partition answers KAFKA_STORAGE_ERROR until it can be made (kbroker.api.recreation) or the
next start. What takes long is an operation (kbroker.operations).
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kbroker.api import registry
from kbroker.api.context import Services
from kbroker.api.hosts import Found
from kbroker.api.k18_api_versions import response_bodies
from kbroker.api.topic_names import INTERNAL_TOPICS
from kbroker.config.definitions_kbroker import CLIENT_TELEMETRY
from kbroker.config.topic import log_config
from kbroker.config.types import ConfigError
from kbroker.errors import DiskError
from kbroker.metadata.builders import change_directories
from kbroker.metadata.directories import home_of
from kbroker.metadata.features import KRAFT_VERSION, SUPPORTED, has_cordoned
from kbroker.metadata.image import Topic
from kbroker.operations import Completion, Steps
from kbroker.protocol import ApiKey
from kbroker.protocol.api_keys import FIRST_FLEXIBLE
from kbroker.security.admission import pass_over_bad_logins
from kbroker.storage.log_port import Key, PartitionSpec

_LOG: Final = logging.getLogger("kbroker.api")
_INT_MAX: Final = 2**31 - 1
_CHUNK_PARTITIONS: Final = 256
"""Of the topics that are offered together."""


class NewPartitions(NamedTuple):
    """Partitions that one change of the metadata created: those of `topic` from number `first` to
    before `end`."""

    topic: str
    topic_id: bytes
    first: int
    end: int


def specs_of(services: Services, topic: Topic) -> list[PartitionSpec]:
    """The partitions of a topic."""
    config = _log_config(services, topic)
    return [_spec(services, topic, index, config) for index in topic.partitions]


def _specs_of_new(services: Services, new: NewPartitions) -> list[PartitionSpec]:
    """New partitions as the metadata has them now; none where the topic was deleted meanwhile, or
    is another one of that name."""
    topic = services.image.topics.get(new.topic)
    if topic is None or topic.id != new.topic_id:
        return []
    config = _log_config(services, topic)
    return [_spec(services, topic, index, config) for index in range(new.first, new.end)]


def spec_of(services: Services, topic: Topic, index: int) -> PartitionSpec:
    """One of them."""
    return _spec(services, topic, index, _log_config(services, topic))


def _log_config(services: Services, topic: Topic) -> dict[str, int]:
    overrides = services.image.configs(("topic", topic.name))
    return log_config(services.config, overrides, _share_of_disk(services))


def _spec(
    services: Services, topic: Topic, index: int, config: dict[str, int]
) -> PartitionSpec:
    state = topic.partitions[index]
    home = home_of(state, services.config.node_id)
    return PartitionSpec(topic.name, topic.id, index, config, state.leader_epoch, home)


def offer_topic(services: Services, topic: Topic) -> None:
    """Tell the data plane a topic whose logs are open, or how it is now."""
    logs = [services.logs.get(topic.name, index) for index in topic.partitions]
    internal = topic.name in INTERNAL_TOPICS
    services.data_plane.add_topic(topic.name, topic.id, logs, internal=internal)
    services.note_topic(topic.name)


def create_topics(services: Services, names: Iterable[str]) -> Completion[None]:
    """Make the logs of new topics and offer them to clients; the completion is set when all are
    offered. To be called when their records take effect: they may be deleted a moment later."""
    offered: Completion[None] = Completion()
    new = []
    for name in names:
        topic = services.image.topics[name]
        new.append(NewPartitions(name, topic.id, 0, len(topic)))
        services.note_topic(name)
        services.offering[name] = offered
    made = services.operations.spawn(_create(services, new), "making the logs of new topics")

    def on_done(_: Completion[None]) -> None:
        for each in new:
            if services.offering.get(each.topic) is offered:
                del services.offering[each.topic]
        offered.resolve(None)

    made.on_done(on_done)
    return offered


def _create(services: Services, new: Iterable[NewPartitions]) -> Steps[None]:
    chunks: list[tuple[list[PartitionSpec], Completion[None]]] = []
    waiting: list[NewPartitions] = []
    count = 0
    for each in new:
        waiting.append(each)
        count += each.end - each.first
        if count >= _CHUNK_PARTITIONS:
            chunks.append(_begin(services, waiting))
            waiting, count = [], 0
        yield
    chunks.append(_begin(services, waiting))
    services.topics_changed()
    for specs, created in chunks:
        yield from _offer_new(services, specs, created)
    services.topics_changed()
    adapt_segments(services)


def _begin(
    services: Services, new: Iterable[NewPartitions]
) -> tuple[list[PartitionSpec], Completion[None]]:
    """Begin to make logs. In one slice with a look at the metadata: topics that are deleted
    afterwards take the logs with them."""
    specs = [spec for each in new for spec in _specs_of_new(services, each)]
    return specs, services.logs.create(specs)


def _offer_new(
    services: Services, specs: Iterable[PartitionSpec], created: Completion[None]
) -> Steps[None]:
    """Offer topics when their logs are made. A disk may have taken long: a topic may be deleted by
    now, be another of the same name, or have other settings."""
    try:
        yield created
    except DiskError as error:
        _LOG.error("%s", error)
    for spec in {spec.topic: spec for spec in specs}.values():
        topic = services.image.topics.get(spec.topic)
        if topic is None or topic.id != spec.topic_id:
            continue
        if _log_config(services, topic) != spec.config:
            configure_topics(services, [topic.name])
        offer_topic(services, topic)
        yield


def add_partitions(services: Services, grown: Iterable[tuple[str, int]]) -> Completion[None]:
    """Make the logs of new partitions, (topic, first of them), and offer them to clients. To be
    called when their records take effect."""
    new = []
    for name, first in grown:
        topic = services.image.topics[name]
        new.append(NewPartitions(name, topic.id, first, len(topic)))
    return services.operations.spawn(_create(services, new), "making the logs of new partitions")


def create_denied(services: Services) -> Completion[None]:
    """Make the logs that the disk denied when their partitions were created, and offer them."""
    new = [
        NewPartitions(spec.topic, spec.topic_id, spec.partition, spec.partition + 1)
        for key, spec in services.logs.denied.items()
        if services.logs.homes[key].online
    ]
    return services.operations.spawn(_create(services, new), "making logs that the disk denied")


def delete_topics(services: Services, deleted: Iterable[tuple[Topic, int]]) -> Steps[None]:
    """Remove deleted topics, each given with its file.delete.delay.ms. Clients do not find them any
    more when the steps have ended; their folders are renamed by the disk workers. To be run among
    the changes of the metadata: no topic of the same name may be created in between."""
    now_ms = services.clock.monotonic_ms()
    gone = list(deleted)
    yield from services.topics_deleted([topic.name for topic, _ in gone])
    chunk: list[tuple[Topic, int]] = []
    for topic, delay_ms in gone:
        services.forget_topic(topic.name)
        chunk.append((topic, now_ms + delay_ms))
        if sum(len(each) for each, _ in chunk) >= _CHUNK_PARTITIONS:
            _delete(services, chunk)
            chunk = []
        yield
    _delete(services, chunk)
    adapt_segments(services)


def _delete(services: Services, chunk: Sequence[tuple[Topic, int]]) -> None:
    services.data_plane.remove_topics([topic.name for topic, _ in chunk])
    renamed = services.logs.delete(
        [(topic.name, range(len(topic)), due_ms) for topic, due_ms in chunk],
        services.data_plane.wake,
    )

    def on_renamed(renamed: Completion[None]) -> None:
        if renamed.error is None:
            for topic, _ in chunk:
                services.image.deleted_topics.pop(topic.id, None)

    renamed.on_done(on_renamed)


def adapt_segments(services: Services, partitions: int | None = None) -> None:
    """Where segment sizes depend on how many partitions there are: note that, in powers of two,
    and give the logs what follows. Down only at a quarter, so that nothing goes to and fro."""
    count = len(services.logs) if partitions is None else partitions
    about = services.partitions_about
    if about // 4 < count <= about:
        return
    services.partitions_about = 1 << max(count - 1, 0).bit_length()
    if services.disk_bytes >= 0:
        configure_topics(services, list(services.image.topics))


def _share_of_disk(services: Services) -> int:
    """A partition's even share of what the disk's limits leave; -1 where there are none."""
    return services.disk_bytes // services.partitions_about if services.disk_bytes >= 0 else -1


def configure_topics(services: Services, names: Iterable[str]) -> Completion[None]:
    """Give the logs of these topics the settings that hold now, in slices."""
    return services.operations.spawn(_configure(services, names), "the settings of topics")


def _configure(services: Services, names: Iterable[str]) -> Steps[None]:
    """What holds is looked at behind each slice anew: a later change is not undone."""
    configs: dict[Key, dict[str, int]] = {}
    for name in names:
        first = 0
        while (topic := services.image.topics.get(name)) is not None and first < len(topic):
            config = _log_config(services, topic)
            end = min(len(topic), first + _CHUNK_PARTITIONS - len(configs))
            configs.update(dict.fromkeys(((name, index) for index in range(first, end)), config))
            first = end
            if len(configs) >= _CHUNK_PARTITIONS:
                services.logs.configure(configs)
                configs = {}
                yield
    services.logs.configure(configs)


def reload_broker_settings(services: Services) -> Completion[None]:
    """Take over the dynamic settings of the metadata, and give every log what follows from them:
    the completion is set when they have it."""
    image = services.image
    node = ("broker", str(services.config.node_id))
    services.config.set_dynamic(image.configs(node), image.configs(("broker", "")))
    pass_over_bad_logins(services.config)
    resize_threads(services)
    limit_connections(services)
    limit_listeners(services)
    cordon(services)
    limit_disk(services)
    services.groups.reconfigure()
    verify_transactions(services)
    if services.tls is not None:
        services.tls.reload()
    if services.logs.cleaner is not None:
        services.logs.cleaner.reconfigure()
    return configure_topics(services, list(image.topics))


def resize_threads(services: Services) -> None:
    """As many threads as are set now; the system may deny more of them."""
    config = services.config
    wanted = config.integer("num.network.threads"), config.integer("num.io.threads")
    try:
        services.data_plane.resize_threads(*wanted)
    except OSError as error:
        _LOG.error("no more threads: %s", error.strerror)


def verify_transactions(services: Services) -> None:
    """Whether batches are verified of clients that add partitions to transactions by themselves."""
    wanted = services.config.value("transaction.partition.verification.enable")
    services.data_plane.verify_transactions(bool(wanted))


def limit_disk(services: Services) -> None:
    """The disk's limits that hold now, and what they leave for segments and the journal."""
    limits = services.disk_limits
    limits.bytes_max = services.config.integer("kbroker.disk.bytes.max")
    limits.free_min = services.config.integer("kbroker.disk.free.bytes.min")
    each = [limits.leave(one.path) for one in services.logs.online]
    services.disk_bytes = -1 if -1 in each else sum(each)


def cordon(services: Services) -> None:
    """Which directories take no new partitions now; the metadata is told where that has changed."""
    node_id, logs = services.config.node_id, services.logs
    known = has_cordoned(services.image.metadata_version)
    named = services.config.cordoned_log_dirs if known else ()  # nobody could be told
    paths = {os.path.abspath(path) for path in named}
    for one in logs.directories:
        one.cordoned = str(one.path) in paths
    broker = services.image.brokers.get(node_id)
    told = None if broker is None else broker.cordoned_log_dirs
    if broker is None or told is None or broker.fenced:
        return
    if sorted(told) != sorted(logs.ids().cordoned):
        services.store.append(change_directories(services.image, node_id, logs.ids())).on_done(
            lambda done: _LOG.error("cordoned log directories are not in the metadata: %s",
                                    done.error) if done.error else None
        )  # fmt: skip


def limit_listeners(services: Services) -> None:
    """How many connections each listener takes, and how many a second; the same of the broker, for
    all listeners but that of brokers among themselves."""
    config = services.config
    exempt = config.string("inter.broker.listener.name")
    services.data_plane.limit_listeners(
        _rate(config.text("max.connection.creation.rate")),
        exempt or config.string("security.inter.broker.protocol"),
        {
            name: (
                int(config.text_of(name, "max.connections") or 0),
                _rate(config.text_of(name, "max.connection.creation.rate")),
            )
            for name in services.endpoints
        },
    )


def _rate(text: str | None) -> float:
    """Connections a second; the default is no limit."""
    rate = int(text or 0)
    return rate if rate < _INT_MAX else math.inf


def _offered(services: Services) -> registry.Table:
    """The APIs that clients are told of; those of telemetry where it is turned on."""
    table = registry.table()
    if services.config.flag(CLIENT_TELEMETRY):
        return table
    hidden = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
    return {key: entry for key, entry in table.items() if key not in hidden}


def tell_versions(services: Services) -> None:
    """What ApiVersions answers from now on: the APIs, and the features as they are."""
    store, table = services.store, _offered(services)
    levels = dict(store.image.features)
    if store.quorum.kraft_version:
        levels[KRAFT_VERSION] = store.quorum.kraft_version
    bodies = response_bodies(table.values(), SUPPORTED, levels, store.next_offset - 1)
    keys = [
        (int(one.key), one.low, one.high, FIRST_FLEXIBLE.get(one.key, -1))
        for one in table.values()
    ]
    services.data_plane.engine.set_api_versions(bodies, keys)


def limit_connections(services: Services, found: Found | None = None) -> None:
    """Give the data plane its limits of connections; a host without an address has none, and one
    whose address takes long gets it later."""
    config = services.config
    try:
        wanted = config.connection_overrides()
    except ConfigError as error:  # written by another version
        _LOG.error("%s", error)
        wanted = {}
    if found is None or not wanted.keys() <= found.keys():
        found = services.hosts.look_up(wanted, lambda late: limit_connections(services, late))
    overrides = [(one, count) for host, count in wanted.items() for one in found.get(host, ())]
    services.data_plane.limit_connections(
        config.integer("max.connections"), config.integer("max.connections.per.ip"), overrides
    )
