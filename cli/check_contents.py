"""What `kbroker check` finds in a data directory at rest: whose it is, whether this version reads
it, and what a start has to do first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cli.finding import FAILED, OK, WARNING, Finding

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import Image

__all__ = ["contents"]


_NAMED_MAX = 3


def contents(places: Sequence[Path], config: BrokerConfig | None) -> Iterator[Finding]:
    """Findings on the log directories of a broker, the one with the metadata log first; none where
    no broker has been."""
    place = places[0]
    from kbroker.care.folders import links_of
    from kbroker.errors import KbrokerError
    from kbroker.metadata.batches import BatchError
    from kbroker.metadata.directories import further, is_further
    from kbroker.metadata.loader import load_image
    from kbroker.metadata.meta_properties import META_PROPERTIES, read_meta_properties
    from kbroker.storage.checkpoints import CLEAN_SHUTDOWN

    try:
        meta = read_meta_properties(place)
        if meta is None:
            return
        if is_further(place):
            text = f"cluster {meta.cluster_id}, node {meta.node_id}; its metadata log is elsewhere"
            yield Finding("contents", WARNING, text)
            return
        image = load_image(place)
    except (KbrokerError, BatchError, OSError, ValueError) as error:
        yield Finding("contents", FAILED, str(error))
        return
    wanted = config.static.get("node.id") if config is not None else None
    if wanted is not None and wanted.strip() != str(meta.node_id):
        yield Finding("contents", FAILED, f"of node {meta.node_id}, but node.id is {wanted}")
    elif unknown := ", ".join(_unknown(image)):
        yield Finding("contents", FAILED, f"of a later version: {unknown}")
    else:
        count = sum(len(topic.partitions) for topic in image.topics.values())
        text = f"cluster {meta.cluster_id}, node {meta.node_id}, {count} partitions"
        yield Finding("contents", OK, text)
    for one in further(place):
        if not (one / META_PROPERTIES).exists():
            text = f"{one} is not there: a start leaves its partitions offline"
            yield Finding("log directories", WARNING, text)
    links = list(map(str, chain.from_iterable(links_of(one) for one in places if one.is_dir())))
    if links:
        more = ", ..." if len(links) > _NAMED_MAX else ""
        text = f"{', '.join(links[:_NAMED_MAX])}{more}: a start refuses them"
        yield Finding("symbolic links", FAILED, text)
    if not (place / CLEAN_SHUTDOWN).exists():
        text = "no clean stop: a start reads the last segments before it serves"
        yield Finding("last stop", WARNING, text)


def _unknown(image: Image) -> Iterator[str]:
    """Feature levels that this version does not know."""
    from kbroker.metadata.features import SUPPORTED

    for name, level in image.features.items():
        least, most = SUPPORTED.get(name, (0, 0))
        if not least <= level <= most:
            yield f"{name} {level} (here {least} to {most})"
