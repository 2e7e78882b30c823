"""Whether a partition's folder held still while it was copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.care.folders import ChangedError, Listing, list_folder, partitions_of

BEFORE = Listing({0: 10, 100: 11, 200: 12}, [])


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ({0: 10, 100: 11, 200: 12}, {0, 100, 200}),
        ({0: 10, 100: 11, 200: 12, 300: 13}, {0, 100, 200}),  # rolled
        ({100: 11, 200: 12}, {100, 200}),  # retention took the oldest
        ({200: 12, 300: 13}, {200}),
        ({0: 20, 100: 11, 200: 12}, None),  # the first was cleaned
        ({0: 20, 200: 12}, None),  # the first two became one
        ({0: 10, 100: 21, 200: 12}, None),
        ({0: 10, 200: 12}, None),
        ({0: 10, 100: 11, 200: 22}, None),
        ({300: 13}, None),  # everything went
    ],
)
def test_what_may_have_happened_meanwhile(after: dict[int, int], left: set[int] | None) -> None:
    listing = Listing(after, [])
    if left is None:
        with pytest.raises(ChangedError):
            listing.left_of(BEFORE)
    else:
        assert listing.left_of(BEFORE) == left


def test_a_cleaning_that_is_being_put_in_place_is_waited_for(tmp_path: Path) -> None:
    assert list_folder(tmp_path / "gone") is None
    assert list_folder(tmp_path) == Listing({}, [])  # never appended to
    for name in ("a", "b"):
        (tmp_path / f"{int(name, 16):020}.log").touch()
    (tmp_path / f"{11:020}.snapshot").touch()
    found = list_folder(tmp_path)
    assert found is not None
    assert (list(found.segments), found.snapshots) == ([10, 11], [11])
    (tmp_path / f"{10:020}.log.swap").touch()
    with pytest.raises(ChangedError):
        list_folder(tmp_path)


def test_committed_offsets_come_first(tmp_path: Path) -> None:
    for name in ("b-0", "a-10", "a-9", "__consumer_offsets-1", "__cluster_metadata-0",
                 "__transaction_state-0", "t.0123456789abcdef0123456789abcdef-delete"):  # fmt: skip
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").touch()
    assert list(partitions_of(tmp_path)) == [
        "__transaction_state-0", "__consumer_offsets-1", "a-9", "a-10", "b-0"
    ]  # fmt: skip
