import struct

import pytest

testing = pytest.importorskip("kbroker.ext.testing", reason="built without KBROKER_TEST=1")

FORMATS = {
    "be16": ">H", "be32": ">I", "be64": ">Q",
    "le16": "<H", "le32": "<I", "le64": "<Q",
    "i16": ">h", "i32": ">i", "i64": ">q",
}  # fmt: skip


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("value", [0, 1, 0x0123456789ABCDEF, 2**63, 2**64 - 1])
def test_store_and_load_agree_with_struct_at_any_alignment(value, shift):
    for name, (loaded, stored) in testing.endian_round_trip(value, shift).items():
        unsigned = FORMATS[name].upper()
        low = value % 2 ** (8 * struct.calcsize(unsigned))
        assert stored == struct.pack(unsigned, low), name
        assert loaded == struct.unpack(FORMATS[name], stored)[0], name
