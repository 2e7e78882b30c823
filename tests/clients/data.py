"""What the foreign clients send, and the judgement of what they read back."""

from __future__ import annotations

from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, order=True)
class Message:
    """One record as every client can tell it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def numbered(count: int) -> list[tuple[bytes, bytes]]:
    """Keys and values that tell lost, repeated and mixed-up records apart."""
    return [
        (b"key-%d" % (number % 97), b"value-%d-" % number + b"x" * 200) for number in range(count)
    ]


def check_read(sent: list[tuple[bytes, bytes]], got: list[Message]) -> None:
    """Each record once, offsets without a gap, and one key's records in their order."""
    assert len(got) == len(sent), f"{len(sent)} sent, {len(got)} read"
    assert sorted((m.key, m.value) for m in got) == sorted(sent)
    by_partition: dict[int, list[Message]] = {}
    for message in sorted(got):
        by_partition.setdefault(message.partition, []).append(message)
    for messages in by_partition.values():
        assert [m.offset for m in messages] == list(range(len(messages)))
        for key in {m.key for m in messages}:
            in_log = [m.value for m in messages if m.key == key]
            assert in_log == [value for sent_key, value in sent if sent_key == key]
