"""JAAS settings as Kafka has them in `sasl.jaas.config`: one login module with its options.

    org.apache.kafka...PlainLoginModule required username="alice" password="a secret";
"""

from __future__ import annotations

import re
from typing import Final

_VALUE: Final = r'"(?:\\.|[^"\\])*"|[^\s";]+'
_JAAS: Final = re.compile(
    rf"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)((?:\s+[\w.-]+\s*=\s*(?:{_VALUE}))*)"
    r"\s*;\s*",
    re.IGNORECASE | re.DOTALL,
)
_OPTION: Final = re.compile(rf"([\w.-]+)\s*=\s*({_VALUE})", re.DOTALL)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Login module and options. Raises ValueError."""
    found = _JAAS.fullmatch(text)
    if found is None:
        raise ValueError(
            'sasl.jaas.config: write MODULE required username="..." password="..."; with the ; '
            "at its end"
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        for name, value in _OPTION.findall(found[2])
    }
    return found[1], options
