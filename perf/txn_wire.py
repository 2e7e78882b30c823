"""A transactional producer as bytes: version 2 of the protocol (KIP-890), one request in flight.

The batches of a transaction are built once. What differs from one to the next is the producer id
and its epoch, which each EndTxn answers anew, and the checksum over them; sequence numbers begin
at zero with each epoch. So a transaction costs this side some tens of microseconds.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import NamedTuple

from kbroker.ext import crc32c
from perf.admin import CLIENT_ID, read_exactly
from perf.group_wire import FIND_COORDINATOR, FIND_VERSION, NONE, compact, read_varint, varint
from perf.group_wire import frame as group_frame
from tests.reference.crafted_batches import TRANSACTIONAL, Batch, Record

PRODUCE, PRODUCE_VERSION = 0, 12
INIT, INIT_VERSION = 22, 5
END, END_VERSION = 26, 5

CONCURRENT_TRANSACTIONS = 51
#: The coordinator is being found or loaded, or its topic is not there yet.
NOT_YET = frozenset({14, 15, 16, CONCURRENT_TRANSACTIONS})

TIMEOUT_MS = 60_000
RETRY_S = 0.02  # what Java's producer waits where the transaction before has not ended yet
_CRC, _CRC_FROM, _PRODUCER = 17, 21, 43


class Timed(NamedTuple):
    """A transaction: moments of time.perf_counter()."""

    begun: float
    ending: float
    ended: float


def frame(key: int, version: int, body: bytes) -> bytearray:
    payload = struct.pack(">hhi", key, version, 0) + CLIENT_ID + b"\0" + body
    return bytearray(struct.pack(">i", len(payload)) + payload)


class Load(NamedTuple):
    """A Produce of one transaction, and where its batches lie."""

    data: bytearray
    batches: list[tuple[int, int]]

    def stamp(self, producer_id: int, epoch: int) -> None:
        for begin, end in self.batches:
            struct.pack_into(">qh", self.data, begin + _PRODUCER, producer_id, epoch)
            crc = crc32c.checksum(memoryview(self.data)[begin + _CRC_FROM : end])
            struct.pack_into(">I", self.data, begin + _CRC, crc)


class TxnProducer:
    """Raises RuntimeError for what no transaction of this kind ought to meet."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.retries = 0
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.id, self.epoch = -1, -1

    def close(self) -> None:
        self._socket.close()

    def _ask(self, request: bytes | bytearray) -> bytes:
        """The answer behind its correlation id."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", read_exactly(self._socket, 4))
        return read_exactly(self._socket, size)[4:]

    def init(self) -> None:
        """With a coordinator that may still be coming up."""
        name = struct.pack(">h", len(self.name)) + self.name.encode()
        find = group_frame(FIND_COORDINATOR, FIND_VERSION, name + b"\1")
        body = compact(self.name) + struct.pack(">iqh", TIMEOUT_MS, -1, -1) + b"\0"
        until = time.monotonic() + TIMEOUT_MS / 1000
        while time.monotonic() < until:
            code = struct.unpack_from(">h", self._ask(find), 4)[0]
            if code == NONE:
                answer = self._ask(frame(INIT, INIT_VERSION, body))
                code, self.id, self.epoch = struct.unpack_from(">hqh", answer, 5)
            if code == NONE:
                return
            if code not in NOT_YET:
                raise RuntimeError(f"InitProducerId: error {code}")
            time.sleep(RETRY_S)
        raise TimeoutError(f"no producer id for {self.name}")

    def load(self, topic: str, partitions: range, records: int, size: int) -> Load:
        """So many records over the partitions, the first of which get what does not divide."""
        data = frame(PRODUCE, PRODUCE_VERSION, b"")
        data += compact(self.name) + struct.pack(">hi", -1, 30_000) + varint(2) + compact(topic)
        used = partitions[:records]
        data += varint(len(used) + 1)
        batches = []
        for number, index in enumerate(used):
            count = records // len(used) + (number < records % len(used))
            one = Batch([Record(b"x" * size)] * count, producer_id=0, producer_epoch=0,
                        base_sequence=0, attributes=TRANSACTIONAL).encode()  # fmt: skip
            data += struct.pack(">i", index) + varint(len(one) + 1)
            batches.append((len(data), len(data) + len(one)))
            data += one + b"\0"
        data += b"\0\0"
        struct.pack_into(">i", data, 0, len(data) - 4)
        return Load(data, batches)

    def transact(self, load: Load, commit: bool = True) -> Timed:
        """One transaction, acknowledged and ended."""
        load.stamp(self.id, self.epoch)
        begun = time.perf_counter()
        while (code := self._produced(self._ask(load.data))) != NONE:
            if code != CONCURRENT_TRANSACTIONS:
                raise RuntimeError(f"Produce: error {code}")
            self.retries += 1
            time.sleep(RETRY_S)
        body = compact(self.name) + struct.pack(">qhb", self.id, self.epoch, commit) + b"\0"
        request = frame(END, END_VERSION, body)
        ending = time.perf_counter()
        while True:
            code, producer_id, epoch = struct.unpack_from(">hqh", self._ask(request), 5)
            if code == NONE:
                break
            if code != CONCURRENT_TRANSACTIONS:
                raise RuntimeError(f"EndTxn: error {code}")
            self.retries += 1
            time.sleep(RETRY_S)
        ended = time.perf_counter()
        self.id, self.epoch = producer_id, epoch
        return Timed(begun, ending, ended)

    @staticmethod
    def _produced(answer: bytes) -> int:
        """The first error of a Produce answer with one topic. What is not taken of one partition
        is not taken of any: they are refused before the transaction is told of them."""
        size, at = read_varint(answer, 2)  # tagged fields of the header, one topic
        count, at = read_varint(answer, at + size - 1)
        for _ in range(count - 1):
            (code,) = struct.unpack_from(">h", answer, at + 4)
            if code != NONE:
                return int(code)
            _, at = read_varint(answer, at + 6 + 3 * 8)  # no record errors
            size, at = read_varint(answer, at)
            at = at + max(size - 1, 0) + 1
        return NONE
