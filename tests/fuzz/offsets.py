"""`__consumer_offsets` as it is loaded: any batch, any key, any value."""

import random
from collections.abc import Sequence

from kbroker.ext import records
from kbroker.ext.offsets_rows import OffsetsFold
from kbroker.metadata.records.classic_group import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kbroker.metadata.records.frame import encode_key, encode_value
from tests.fuzz.engine import Target
from tests.fuzz.targets import LIMIT, NOW, batch_seal
from tests.support.logs import marker


def commit(version: int, chosen: random.Random) -> tuple[int, bytes, bytes]:
    key = OffsetCommitKey("group-é", "topic", chosen.randrange(3))
    value = OffsetCommitValue(chosen.getrandbits(40), metadata="m" * chosen.randrange(9))
    if version == 4:
        value.topic_id = chosen.randbytes(16)
        value.unknown_tags = ((9, b"later"),)
    return NOW, encode_key(key), encode_value(value, version)


def offsets_corpus() -> Sequence[bytes]:
    chosen = random.Random(4)
    tombstone = (NOW, encode_key(OffsetCommitKey("group-é", "topic", 1)), None)
    old = encode_key(LegacyOffsetCommitKey("g", "t", 1)), encode_value(LegacyOffsetCommitValue(), 0)
    found = [records.build([commit(version, chosen)]) for version in range(5)]
    found += [
        records.build([commit(4, chosen), tombstone, (NOW, *old)]),
        records.build([(NOW, encode_key(GroupMetadataKey("g")), b"anything"), tombstone]),
        records.build([commit(4, chosen)] * 3, codec="lz4"),
    ]
    transaction = records.build([commit(4, chosen)] * 2, producer_id=7, transactional=True)
    return [*found, transaction, transaction + marker(7, 0, commit=True)]


def offsets_run(data: memoryview) -> None:
    folded = OffsetsFold()
    others = folded.feed(data, LIMIT)
    rows, pending = folded.packed(1 << 20), folded.pending()
    assert len(rows) + len(pending) + len(others) <= folded.records_read
    assert len(folded.problems) == min(folded.problem_count, 100)
    for group, topic, _, packed in rows:
        assert len(group) + len(topic) + len(packed) - 44 <= LIMIT + len(data)
    assert all(len(packed) <= 44 + LIMIT + len(data) for *_, packed in pending)


TARGETS = {
    "offsets": Target(
        "what is folded is no more than what was read", offsets_corpus, offsets_run, batch_seal
    )
}
