"""ApiVersions: what the broker can speak, and its features.

Behavior: answered by the data plane, with bytes that are made here ahead of time, one body for
each version. A version that is not known gets the answer of version 0 with UNSUPPORTED_VERSION
(KIP-511). Written without kio, whose five schemas would be imported at every start.

Version notes:
  v1: throttle time.
  v3: flexible, features (KIP-584).
  v4: features whose lowest level is 0 are told too (KAFKA-17492).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from kbroker.api.registry import Registration, register_data_plane
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import write_uvarint

register_data_plane(ApiKey.API_VERSIONS, 0, 4)

VERSION_MAX: Final = 4
FIRST_FLEXIBLE: Final = 3
_FIRST_WITH_LEVEL_0: Final = 4
_SUPPORTED_TAG, _EPOCH_TAG, _FINALIZED_TAG = 0, 1, 2


def response_bodies(
    apis: Iterable[Registration],
    supported: Mapping[str, tuple[int, int]],
    finalized: Mapping[str, int],
    finalized_epoch: int,
) -> dict[int, bytes]:
    """The body of every version's answer.

    `supported` holds lowest and highest level by feature, `finalized` the level in force, and
    `finalized_epoch` tells how recent the latter is.
    """
    keys = sorted(apis)
    bodies = {}
    for version in range(VERSION_MAX + 1):
        body = bytearray(struct.pack(">h", ErrorCode.NONE))
        _write_keys(body, keys, version)
        if version >= 1:
            body += struct.pack(">i", 0)
        if version >= FIRST_FLEXIBLE:
            shown = {
                name: levels
                for name, levels in supported.items()
                if levels[0] > 0 or version >= _FIRST_WITH_LEVEL_0
            }
            _write_features(body, shown, finalized, finalized_epoch)
        bodies[version] = bytes(body)
    return bodies


def unsupported_version_body(apis: Iterable[Registration]) -> bytes:
    """The version 0 body for a client whose version is unknown: ApiVersions' own range."""
    body = bytearray(struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION))
    _write_keys(body, [entry for entry in apis if entry.key is ApiKey.API_VERSIONS], 0)
    return bytes(body)


def _write_keys(body: bytearray, entries: list[Registration], version: int) -> None:
    if version >= FIRST_FLEXIBLE:
        write_uvarint(body, len(entries) + 1)
    else:
        body += struct.pack(">i", len(entries))
    for entry in entries:
        body += struct.pack(">hhh", entry.key, entry.advertised_low, entry.high)
        if version >= FIRST_FLEXIBLE:
            body.append(0)


def _write_features(
    body: bytearray,
    supported: Mapping[str, tuple[int, int]],
    finalized: Mapping[str, int],
    finalized_epoch: int,
) -> None:
    """The tagged fields; a list that is empty and an epoch of -1 are defaults and left out."""
    in_force = {name: (level, level) for name, level in finalized.items() if level}
    tags = {}
    if supported:
        tags[_SUPPORTED_TAG] = _feature_list(supported)
    if finalized_epoch != -1:
        tags[_EPOCH_TAG] = struct.pack(">q", finalized_epoch)
    if in_force:
        tags[_FINALIZED_TAG] = _feature_list(in_force)
    write_uvarint(body, len(tags))
    for tag, data in tags.items():
        write_uvarint(body, tag)
        write_uvarint(body, len(data))
        body += data


def _feature_list(features: Mapping[str, tuple[int, int]]) -> bytes:
    """Name and two levels each: lowest and highest supported, or twice the one in force."""
    out = bytearray()
    write_uvarint(out, len(features) + 1)
    for name, levels in features.items():
        write_uvarint(out, len(name) + 1)
        out += name.encode()
        out += struct.pack(">hh", *levels)
        out.append(0)
    return bytes(out)
