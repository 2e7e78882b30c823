"""Writes kbroker/client/errors.py: `python -m tests.support.error_classes`."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from kbroker.errors import ErrorCode

TARGET = Path(__file__).parents[2] / "kbroker" / "client" / "errors.py"
BASE = TARGET.with_name("error_base.py")

_HEAD = '''\
"""What can go wrong for a client: one tree under KafkaError, and in it a class for each error code.

`except UnknownTopicOrPartitionError`, or ask `retriable`, `fatal`, `stale_metadata`, `code`. The
classes of codes are made from kbroker.errors by `python -m tests.support.error_classes`; what all
have in common is in error_base.
"""

from __future__ import annotations

'''

_AUTHENTICATION = {
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.ILLEGAL_SASL_STATE,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
}


def class_name(code: ErrorCode) -> str:
    """The name of a code's class: UNKNOWN_TOPIC_ID is UnknownTopicIdError."""
    words = code.name.removesuffix("_EXCEPTION").removesuffix("_ERROR").split("_")
    return "".join(word.capitalize() for word in words) + "Error"


def source() -> str:
    """The text of the module."""
    codes = [code for code in ErrorCode if code is not ErrorCode.NONE]
    base = sorted(
        node.name
        for node in ast.parse(BASE.read_text()).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
    )
    imported = "".join(f"    {name},\n" for name in sorted(base, key=lambda n: (n.islower(), n)))
    names = ", ".join(f'"{name}"' for name in sorted([*base, *map(class_name, codes)]))
    exported = textwrap.fill(names, 100, initial_indent="    ", subsequent_indent="    ")
    return (
        f"{_HEAD}from kbroker.client.error_base import (\n{imported})\n\n"
        f"__all__ = [\n{exported},\n]  # fmt: skip\n\n# fmt: off\n" + "".join(map(_class, codes))
    )


def _class(code: ErrorCode) -> str:
    bases = "BrokerError"
    if code in _AUTHENTICATION:
        bases += ", AuthenticationError"
    elif code.name.endswith("_AUTHORIZATION_FAILED"):
        bases += ", AuthorizationError"
    return f"class {class_name(code)}({bases}):\n    code = {int(code)}\n"


if __name__ == "__main__":
    TARGET.write_text(source())
