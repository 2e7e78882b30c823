"""`meta.properties` of a log directory: which cluster, which node, which directory this is.

A Java properties file of version 1, as `kafka-storage format` writes it:

    version=1
    cluster.id=TEXT        any text; a uuid where the tools made it
    node.id=N
    directory.id=TEXT      a uuid; Kafka before 3.7 wrote none, and gets one added

Replaced whole. A log directory without it is not formatted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from kbroker.errors import CorruptFileError
from kbroker.files import read_file, write_atomically
from kbroker.uuids import parse_uuid, uuid_text

META_PROPERTIES = "meta.properties"
_VERSION = "1"


class MetaProperties(NamedTuple):
    """Who this log directory belongs to; `directory_id` is 16 bytes, None where it has none."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """What the directory's meta.properties says, None where it has none."""
    path = directory / META_PROPERTIES
    data = read_file(path)
    if data is None:
        return None
    found = _properties(data.decode("latin-1"))
    version = found.get("version", "0")
    if version != _VERSION:
        raise CorruptFileError(path, f"version {version}: a directory of KRaft has version 1")
    try:
        directory_id = found.get("directory.id")
        return MetaProperties(
            found["cluster.id"],
            int(found["node.id"]),
            None if directory_id is None else parse_uuid(directory_id),
        )
    except KeyError as error:
        raise CorruptFileError(path, f"{error.args[0]} is missing") from None
    except ValueError as error:
        raise CorruptFileError(path, str(error)) from None


def write_meta_properties(directory: Path, meta: MetaProperties) -> None:
    """Replace meta.properties."""
    lines = [f"cluster.id={meta.cluster_id}", f"node.id={meta.node_id}", f"version={_VERSION}"]
    if meta.directory_id is not None:
        lines.append(f"directory.id={uuid_text(meta.directory_id)}")
    write_atomically(directory / META_PROPERTIES, ("\n".join(lines) + "\n").encode())


def _properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file, as far as its writers go: no continued lines."""
    pairs = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            pairs[key.strip()] = re.sub(r"\\(.)", r"\1", value.strip())
    return pairs
