"""Uuids as Apache Kafka makes and writes them: 16 bytes, as text base64 of 22 characters.

The text is the URL-safe alphabet without padding. Two values are never made, as they have a
meaning of their own: zero, which says "none", and one, the topic id of `__cluster_metadata`.
"""

from __future__ import annotations

import base64
import binascii
import os

UUID_BYTES = 16
ZERO_UUID = bytes(UUID_BYTES)
ONE_UUID = bytes(UUID_BYTES - 1) + b"\1"
_TEXT_CHARS = 22


def random_uuid() -> bytes:
    """A new random uuid (RFC 9562 version 4) whose text does not begin with a dash."""
    while True:
        raw = bytearray(os.urandom(UUID_BYTES))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:  # the dash is digit 62; tools would take the text for an option
            return bytes(raw)


def uuid_text(uuid: bytes) -> str:
    """The text of a uuid, as in file names, meta.properties and tools."""
    return base64.urlsafe_b64encode(uuid).decode()[:_TEXT_CHARS]


def parse_uuid(text: str) -> bytes:
    """The uuid of a text; ValueError for anything else."""
    try:
        uuid = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        uuid = b""
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} is no uuid: expected 22 characters of URL-safe base64")
    return uuid
