"""Transactional ids that go, some at a time."""

from __future__ import annotations

import pytest

from kbroker.txn.expiry import in_batches


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        ([], []),
        (["a"], [1]),
        (["a"] * 1_000, [1_000]),
        (["a"] * 2_001, [1_000, 1_000, 1]),
        (["a" * 32_767] * 7, [3, 3, 1]),
        (["a" * 200_000, "b"], [1, 1]),
    ],
)
def test_each_is_in_one_batch_of_bounded_size(names: list[str], sizes: list[int]) -> None:
    batches = list(in_batches(names))
    assert [len(batch) for batch in batches] == sizes
    assert [name for batch in batches for name in batch] == names
