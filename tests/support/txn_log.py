"""`__transaction_state` of a directory at rest: who is in which state, and what a coordinator would
have written that was killed a moment later."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kbroker.txn.records import Records, encode
from kbroker.txn.transaction import BUMPS_EPOCHS, State, Transaction
from tests.reference.crafted_batches import HEADER_BYTES, Batch, Record, parse_batches

_LENGTH_AT, _PREFIX, _MAGIC_AT, _MAGIC = 8, 12, 16, 2


class Place(NamedTuple):
    """Where a transactional id stands, and the end of that log."""

    value: Transaction
    log: Path
    end: int
    offset: int
    leader_epoch: int


def _batches(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """(position behind it, batch) of each; what follows the last may be prepared blocks."""
    at = 0
    while len(data) - at > HEADER_BYTES and data[at + _MAGIC_AT] == _MAGIC:
        (length,) = struct.unpack_from(">i", data, at + _LENGTH_AT)
        end = at + _PREFIX + length
        if length <= 0 or end > len(data):
            return
        (batch,) = parse_batches(data[at:end])
        at = end
        yield at, batch


def places(data_dir: Path) -> dict[str, Place]:
    """The last value of each transactional id."""
    found: dict[str, Place] = {}
    for log in sorted(data_dir.glob("__transaction_state-*/*.log")):
        records = Records(int(log.parent.name.rpartition("-")[2]))
        here: dict[str, Transaction] = {}
        end = offset = leader_epoch = 0
        for behind, batch in _batches(log.read_bytes()):
            end, offset = behind, batch["base_offset"] + batch["last_offset_delta"] + 1
            leader_epoch = batch["leader_epoch"]
            for record in batch["records"]:
                told = records.decode(0, record["key"], record["value"])
                if told is not None and told[1] is not None:
                    here[told[0]] = told[1]
        found |= {
            name: Place(value, log, end, offset, leader_epoch) for name, value in here.items()
        }
    return found


def prepare(data_dir: Path, name: str, state: State) -> None:
    """The decision on an open transaction is written, and nothing of what follows from it: as if
    the broker, which is dead, had been killed right behind that."""
    place = places(data_dir)[name]
    value = place.value
    assert value.state is State.ONGOING, value
    epoch = value.epoch + (value.version >= BUMPS_EPOCHS)
    decided = value.becomes(state, value.updated_ms, epoch=epoch)
    key, data = encode(name, decided, 1)
    batch = Batch(
        records=[Record(data, key)], base_offset=place.offset, leader_epoch=place.leader_epoch
    ).encode()
    with place.log.open("r+b") as log:
        log.seek(place.end)
        log.write(batch)
        log.flush()
        os.fsync(log.fileno())
