import re

from kbroker import limits

UNITS = ("_BYTES", "_COUNT", "_CHARS", "_MS")


def test_every_bound_is_a_positive_number_with_its_unit_last():
    bounds = {name: value for name, value in vars(limits).items() if re.fullmatch("[A-Z_]+", name)}
    assert bounds
    for name, value in bounds.items():
        assert isinstance(value, int), name
        assert value > 0, name
        assert name.endswith(UNITS), name
