"""What the coordinators of groups are built on: the broker's metadata, logs and settings."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from kbroker.api.topic_names import CONSUMER_OFFSETS
from kbroker.clock import Clock
from kbroker.config.topic import effective_value
from kbroker.ext.log import Log
from kbroker.ext.offsets_load import OffsetsLoad
from kbroker.ext.pulses import Pulses
from kbroker.group.loading import Load
from kbroker.group.settings import GroupSettings, settings_of
from kbroker.group.topics import TopicInfo
from kbroker.metadata.image import Image, Topic
from kbroker.storage.manager import LogPort, State

if TYPE_CHECKING:
    from kbroker.api.context import Services

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class ImageTopics:
    """The topics of the metadata image (kbroker.group.topics.Topics)."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image
        self._version = 0
        self._known: dict[str, TopicInfo] = {}

    @property
    def version(self) -> int:
        """Changes with the topics."""
        return self._version

    def changed(self) -> None:
        """A topic came, went or got partitions."""
        self._version += 1
        self._known.clear()

    def names(self) -> Collection[str]:
        """All topics."""
        return self._image().topics.keys()

    def by_name(self, name: str) -> TopicInfo | None:
        """A topic, None where there is none."""
        found = self._known.get(name)
        if found is None:
            topic = self._image().topics.get(name)
            if topic is not None:
                found = self._known[name] = self._info(topic)
        return found

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        """The topic of an id, None where there is none."""
        topic = self._image().topic_by_id(topic_id)
        return None if topic is None else self.by_name(topic.name)

    def _info(self, topic: Topic) -> TopicInfo:
        racks = {broker_id: broker.rack for broker_id, broker in self._image().brokers.items()}
        of_partitions = [
            frozenset(rack for node in state.replicas if (rack := racks.get(node)))
            for state in topic.partitions.values()
        ]
        known = of_partitions if any(of_partitions) else ()
        return TopicInfo(topic.name, topic.id, len(topic), known)


class GroupHost:
    """What the group coordinators use of the broker (kbroker.group.host.Host)."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.topics = ImageTopics(lambda: services.image)

    @property
    def clock(self) -> Clock:
        """The broker's."""
        return self._services.clock

    @property
    def pulses(self) -> Pulses:
        """Of members whose heartbeats the data plane answers."""
        return self._services.data_plane.pulses

    def settings(self) -> GroupSettings:
        """The broker's settings of now, and the way to those of a group."""
        services = self._services
        return settings_of(services.config, lambda group: services.image.configs(("group", group)))

    def partitions(self) -> int:
        """Partitions of `__consumer_offsets`; 0 where it is not there."""
        topic = self._services.image.topics.get(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic)

    def log(self, partition: int) -> LogPort | None:
        """The log of a partition of it, None where the disk denies it."""
        return self._services.logs.get(CONSUMER_OFFSETS, partition)

    def is_offline(self, partition: int) -> bool:
        """Whether the disk denies it."""
        return self._services.logs.state(CONSUMER_OFFSETS, partition) is State.OFFLINE

    def load(self, log: LogPort, *, strict: bool) -> Load:
        """Begin to read a log."""
        assert isinstance(log, Log)
        return OffsetsLoad(log, strict=strict)

    def batch_bytes_max(self) -> int:
        """max.message.bytes of it."""
        overrides = self._services.image.configs(("topic", CONSUMER_OFFSETS))
        value = effective_value(self._services.config, overrides, "max.message.bytes")
        assert isinstance(value, int)
        return value

    def codec(self) -> str:
        """The codec for its batches."""
        return CODECS[self._services.config.integer("offsets.topic.compression.codec")]

    def post(self, do: Callable[[], None]) -> None:
        """Have it done on the control thread."""
        self._services.post(do)
