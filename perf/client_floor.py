"""What the kernel alone takes for the bytes of a client: requests made beforehand, sent over one
connection, and answers read into one buffer in which no byte is looked at.

There is no accumulator, no checksum, no record and no second thread; only the sizes are those of
kbroker's client: one batch a partition in a request, five requests on their way; fetches of 1 MiB
a partition, the next one when the answer is there.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from kbroker.ext import records
from perf.admin import CLIENT_ID, read_exactly, text
from perf.client_load import BATCH_BYTES, PARTITIONS, Job, Meter

PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 4
IN_FLIGHT = 5
ANSWER_MS = 30_000
PARTITION_BYTES, FETCH_BYTES = 1 << 20, 50 << 20
READ_BYTES = 512 << 10
BATCH_HEAD = struct.Struct(">qiibIhi")  # up to the last offset delta


def connect(job: Job) -> socket.socket:
    host, port = job.bootstrap.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # as kbroker's client
    return sock


def framed(key: int, version: int, body: bytes) -> bytes:
    payload = struct.pack(">hhi", key, version, 0) + CLIENT_ID + body
    return struct.pack(">i", len(payload)) + payload


# ---- produce


def produce_request(job: Job) -> tuple[bytes, int]:
    """A request with a full batch for each partition, and how many messages it has."""
    each = BATCH_BYTES // (job.size + 16)
    batch = records.build((0, None, b"v" * job.size) for _ in range(each))
    body = struct.pack(">hhi", -1, -1, ANSWER_MS) + struct.pack(">i", 1) + text(job.topic)
    body += struct.pack(">i", PARTITIONS)
    for partition in range(PARTITIONS):
        body += struct.pack(">ii", partition, len(batch)) + batch
    return framed(PRODUCE, PRODUCE_VERSION, body), each * PARTITIONS


def produce(job: Job, meter: Meter) -> None:
    request, messages = produce_request(job)
    rounds = max(job.count // messages, IN_FLIGHT)
    with connect(job) as sock:
        sock.sendall(request)
        skip_answer(sock)
        meter.begin()
        for number in range(rounds):
            if number >= IN_FLIGHT:
                skip_answer(sock)
            sock.sendall(request)
        for _ in range(IN_FLIGHT):
            skip_answer(sock)
        meter.end(rounds * messages)


def skip_answer(sock: socket.socket) -> None:
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    read_exactly(sock, size)


# ---- fetch


def fetch_request(job: Job, offsets: dict[int, int]) -> bytes:
    body = struct.pack(">iiiibi", -1, 500, 1, FETCH_BYTES, 0, 1) + text(job.topic)
    body += struct.pack(">i", len(offsets))
    for partition, offset in offsets.items():
        body += struct.pack(">iqi", partition, offset, PARTITION_BYTES)
    return framed(FETCH, FETCH_VERSION, body)


def parts(answer: bytes, topic: str) -> Iterator[tuple[int, int, int]]:
    """(partition, begin and end of its records) of the one topic of an answer."""
    at = 4 + 4 + 4 + len(text(topic))
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(count):
        partition, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
        if error:
            raise RuntimeError(f"fetch: error {error}")
        at += struct.calcsize(">ihqqi") + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        yield partition, at + 4, at + 4 + max(size, 0)
        at += 4 + max(size, 0)


def behind(answer: bytes, at: int, end: int) -> tuple[int, int]:
    """(offset behind the last whole batch, messages); a broker may cut the last one."""
    offset = messages = 0
    while at + BATCH_HEAD.size <= end:
        base, length, *_, last = BATCH_HEAD.unpack_from(answer, at)
        at += 12 + length
        if at > end:
            break
        offset, messages = base + last + 1, messages + last + 1
    return offset, messages


def plan(job: Job, sock: socket.socket) -> tuple[list[bytes], int]:
    """The requests that read so many messages one after the other, and how many those are."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    requests: list[bytes] = []
    seen = 0
    while seen < job.count:
        requests.append(fetch_request(job, offsets))
        sock.sendall(requests[-1])
        (size,) = struct.unpack(">i", read_exactly(sock, 4))
        answer = read_exactly(sock, size)
        before = seen
        for partition, at, end in parts(answer, job.topic):
            offset, messages = behind(answer, at, end)
            offsets[partition] = max(offset, offsets[partition])
            seen += messages
        if seen == before:
            raise RuntimeError(f"{job.topic} has {seen} messages of {job.count}")
    return requests, seen


def fetch(job: Job, meter: Meter) -> None:
    buffer = memoryview(bytearray(READ_BYTES))
    with connect(job) as sock:
        requests, messages = plan(job, sock)
        meter.begin()
        for request in requests:
            sock.sendall(request)
            (left,) = struct.unpack(">i", read_exactly(sock, 4))
            while left:
                left -= sock.recv_into(buffer, min(left, READ_BYTES))
        meter.end(messages)
