import re
from pathlib import Path

import pytest

from kbroker import limits
from tests.support.tree import text_of

UNITS = ("_BYTES", "_COUNT", "_CHARS", "_MS")


def test_every_bound_is_a_positive_number_with_its_unit_last():
    bounds = {name: value for name, value in vars(limits).items() if re.fullmatch("[A-Z_]+", name)}
    assert bounds
    for name, value in bounds.items():
        assert isinstance(value, int), name
        assert value > 0, name
        assert name.endswith(UNITS), name


@pytest.mark.parametrize(
    ("name", "enumerator", "file"),
    [
        ("STRING_LENGTH_MAX_BYTES", "STRING_BYTES_MAX", "wire"),
        ("ARRAY_ELEMENTS_MAX_COUNT", "ARRAY_ELEMENTS_MAX", "wire"),
        ("TAGGED_FIELDS_MAX_COUNT", "TAGGED_FIELDS_MAX", "wire"),
        ("CLIENT_FRAME_MAX_BYTES", "LINK_FRAME_BYTES_MAX", "client_link"),
    ],
)
def test_both_planes_keep_the_same_bound(name, enumerator, file):
    text = text_of(Path(f"ext/{file}.pxd"))
    found = re.search(rf"^\s+{enumerator} = (\d+)", text, re.MULTILINE)
    assert int(found[1]) == getattr(limits, name)
