"""What a record on disk consists of: fields, types and the versions that carry them.

The generated modules beside this one declare one class per record of Apache Kafka 4.3's JSON
schemas, each with its `SCHEMA`; `codec` turns a schema and a version into an encoder and a
decoder. Uuids are 16 raw bytes, timestamps int64 milliseconds, offsets int64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

NO_UUID = bytes(16)
EMPTY: Any = ()
"""Default of an array or struct that is empty where nothing is told."""
VERSION_MAX = 32767
NEVER = VERSION_MAX + 1
"""A version that no record reaches: `nullable=NEVER` is a field that is never null."""


class Field:
    """One field of a record.

    `since`/`until` are the versions that carry it, `nullable` the first in which it may be null,
    `tag` and `tagged` its tag number and the first version that sends it as a tagged field (-1:
    always in place). `of` is the class of a nested struct. An `ignorable` field that its version
    does not carry is dropped silently; any other is refused unless it holds its default.
    """

    __slots__ = (
        "array", "default", "ignorable", "name", "nullable", "of", "since", "tag", "tagged",
        "type", "until",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        type_: str,
        since: int = 0,
        until: int = VERSION_MAX,
        *,
        nullable: int = NEVER,
        default: Any = EMPTY,
        tag: int = -1,
        tagged: int = NEVER,
        ignorable: bool = False,
        of: type[Record] | None = None,
    ) -> None:
        self.name = name
        self.array = type_.startswith("[]")
        self.type = type_.removeprefix("[]")
        self.since = since
        self.until = until
        self.nullable = nullable
        self.default = default
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.of = of


class Schema:
    """The fields of one record, its key (`apiKey`; -1 for what has none) and its versions."""

    __slots__ = ("fields", "flexible", "key", "latest", "name", "oldest")

    def __init__(
        self, name: str, key: int, versions: tuple[int, int], flexible: int, *fields: Field
    ) -> None:
        self.name = name
        self.key = key
        self.oldest, self.latest = versions
        self.flexible = flexible
        self.fields = fields


class Record:  # noqa: PLW1641 (mutable: no hash)
    """A decoded record or a struct within one; equal when all its fields are.

    `unknown_tags` keeps tagged fields of a newer writer, so that writing the record again loses
    nothing.
    """

    __slots__ = ("__weakref__", "unknown_tags")
    SCHEMA: ClassVar[Schema]
    unknown_tags: tuple[tuple[int, bytes], ...]

    def _names(self) -> Iterator[str]:
        return (field.name for field in self.SCHEMA.fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, name) == getattr(other, name) for name in self._names()
        )

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__name__}({inside})"

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        values = {name: getattr(self, name) for name in self._names()}
        copy = type(self)(**(values | changes))
        copy.unknown_tags = self.unknown_tags
        return copy
