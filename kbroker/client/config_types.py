"""Settings of clients: what a field of a config class says of itself, and how values are read.

A config class is a frozen dataclass whose fields are Kafka's names with underscores; each field
carries a Spec (type, range, meaning) in its metadata. `read_settings` turns what a user gave into
such an object and raises ConfigError with one line that names the setting, the value and what
would be right.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kbroker.client.errors import ConfigError

__all__ = [
    "Check",
    "Spec",
    "at_least",
    "between",
    "boolean",
    "double",
    "gzip_level",
    "int16",
    "int32",
    "int64",
    "invalid",
    "non_empty",
    "offset_reset",
    "one_of",
    "one_of_any_case",
    "password",
    "plugin",
    "plugins",
    "read_settings",
    "specs_of",
    "string",
    "words",
]  # fmt: skip

C = TypeVar("C")

_BITS: Final = {"short": 16, "int": 32, "long": 64}


class Check(NamedTuple):
    """A rule: its text as Kafka writes it, and a function from a good value to the one kept.

    The function raises ValueError with what would be right.
    """

    text: str
    apply: Callable[[Any], Any]


class Spec(NamedTuple):
    """What a setting is. kind: Kafka's name of the type in small letters; doc: one sentence.

    effective: False where Kafka knows the name but it can mean nothing outside of a JVM: taken,
    and told in the log.
    """

    kind: str
    check: Check | None
    doc: str
    effective: bool = True

    @property
    def secret(self) -> bool:
        """Whether the value is never shown."""
        return self.kind == "password"


def invalid(name: str, value: object, wrong: str) -> ConfigError:
    """The error for a bad value; name as Kafka writes it."""
    return ConfigError(f"{name}={value!r}: {wrong}")


def _maker(kind: str) -> Callable[..., Any]:
    def make(default: Any, *rest: Any, effective: bool = True) -> Any:
        """A field: default, check (may be left out), doc."""
        *check, doc = rest
        spec = Spec(kind, check[0] if check else None, doc, effective)
        return dataclasses.field(default=default, metadata={"spec": spec})

    return make


boolean: Final = _maker("boolean")
string: Final = _maker("string")
int16: Final = _maker("short")
int32: Final = _maker("int")
int64: Final = _maker("long")
double: Final = _maker("double")
words: Final = _maker("list")
password: Final = _maker("password")
plugin: Final = _maker("class")  # any Python object, looked at by who uses it
plugins: Final = _maker("plugins")  # a list of such; Kafka's type is list


def at_least(low: int) -> Check:
    """Numbers from `low` on."""

    def apply(value: Any) -> Any:
        if value < low:
            raise ValueError(f"must be at least {low}")
        return value

    return Check(f"[{low},...]", apply)


def between(low: float, high: float) -> Check:
    """Numbers from `low` to `high`, both included."""

    def apply(value: Any) -> Any:
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}")
        return value

    return Check(f"[{low},...,{high}]", apply)


def gzip_level() -> Check:
    """Levels 1 to 9, or -1 for the codec's own default."""

    def apply(value: Any) -> Any:
        if value != -1 and not 1 <= value <= 9:
            raise ValueError("must be from 1 to 9, or -1 for the codec's default")
        return value

    return Check("[1,...,9] or -1", apply)


def one_of(*allowed: str) -> Check:
    """One of the given words."""

    def apply(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(_nearest(value, allowed, f"must be one of {', '.join(allowed)}"))
        return value

    return Check(f"[{', '.join(allowed)}]", apply)


def one_of_any_case(*allowed: str) -> Check:
    """One of the given words in any case; the value kept is spelt as here."""
    spelt = {word.lower(): word for word in allowed}

    def apply(value: Any) -> Any:
        if value.lower() not in spelt:
            raise ValueError(_nearest(value, allowed, f"must be one of {', '.join(allowed)}"))
        return spelt[value.lower()]

    return Check(f"(case insensitive) [{', '.join(allowed)}]", apply)


def non_empty() -> Check:
    """A text with at least one character."""

    def apply(value: Any) -> Any:
        if not value:
            raise ValueError("must not be empty")
        return value

    return Check("non-empty string", apply)


_DURATION: Final = (
    r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"
)


def offset_reset() -> Check:
    """latest, earliest, none, or by_duration: with an ISO 8601 duration (KIP-1106)."""

    def apply(value: Any) -> Any:
        if value not in ("latest", "earliest", "none") and not re.fullmatch(_DURATION, value):
            raise ValueError("must be latest, earliest, none or by_duration:PnDTnHnMn.nS")
        return value

    return Check("[latest, earliest, none, by_duration:PnDTnHnMn.nS]", apply)


def specs_of(kind: type[Any]) -> dict[str, Spec]:
    """The settings of a config class by their attributes' names."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata["spec"] for field in fields if field.metadata}


def read_settings(
    kind: type[C], given: Mapping[str, Any] | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings by attribute, of a dict and of keyword arguments, typed and checked.

    Dots and underscores are the same in both. None stands for the default. Raises ConfigError.
    """
    specs = specs_of(kind)
    found: dict[str, Any] = {}
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(
            f"settings come in a dict or by keyword, not as {type(given).__name__}:"
            " bootstrap_servers='HOST:PORT'"
        )
    for source in (given or {}, more):
        for name, value in source.items():
            attribute = str(name).replace(".", "_")
            if attribute not in specs:
                raise ConfigError(f"no setting is named {name!r}; {_instead(attribute, specs)}")
            if attribute in found:
                raise ConfigError(f"{name} is given twice")
            if value is not None:
                found[attribute] = _typed(attribute.replace("_", "."), specs[attribute], value)
    return found


def _typed(name: str, spec: Spec, value: Any) -> Any:
    try:
        typed = _READERS[spec.kind](spec.kind, value)
        return spec.check.apply(typed) if spec.check else typed
    except ValueError as error:
        raise invalid(name, "[hidden]" if spec.secret else value, str(error)) from None


def _read_boolean(_: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ValueError("must be True or False")


def _read_integer(kind: str, value: Any) -> int:
    bound = 1 << (_BITS[kind] - 1)
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", value, re.ASCII):
        value = int(value)
    if hasattr(value, "__index__") and not isinstance(value, bool):
        number = int(value)
        if -bound <= number < bound:
            return number
    raise ValueError(f"must be a whole number of {_BITS[kind]} bits")


def _read_double(_: str, value: Any) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    raise ValueError("must be a number")


def _read_string(_: str, value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):  # acks=1
        return str(value)
    raise ValueError("must be a str")


def _read_password(_: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("must be a str")


def _read_words(_: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",") if value.strip() else []
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise ValueError("must be a list, or names with commas between them")
    entries = tuple(value)
    if not all(isinstance(entry, str) for entry in entries):
        raise ValueError("must be a list of str")
    stripped = tuple(entry.strip() for entry in entries)
    if not all(stripped):
        raise ValueError("must not have empty entries")
    if len(set(stripped)) != len(stripped):
        raise ValueError("must not have the same entry twice")
    return stripped


def _read_plugins(kind: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(value)
    return _read_words(kind, value) if isinstance(value, str) else (value,)


_READERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "boolean": _read_boolean,
    "string": _read_string,
    "short": _read_integer,
    "int": _read_integer,
    "long": _read_integer,
    "double": _read_double,
    "list": _read_words,
    "password": _read_password,
    "class": lambda _, value: value,
    "plugins": _read_plugins,
}


def _instead(attribute: str, specs: Mapping[str, Spec]) -> str:
    """What to do about a name that is none."""
    from kbroker.client import config, config_elsewhere  # only for who has to be told

    name = attribute.replace("_", ".")
    for kind in (config.ProducerConfig, config.ConsumerConfig, config.AdminConfig):
        if attribute in specs_of(kind):
            client = kind.__name__.removesuffix("Config").lower()
            return f"only {'an' if client == 'admin' else 'a'} {client} has it"
    known = [entry.replace("_", ".") for entry in specs]
    return config_elsewhere.advice(name) or _nearest(name, known, "see kbroker.client.config")


def _nearest(word: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean ...?` where something is near."""
    import difflib  # only for who misspelt

    close = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {close[0]}?" if close else otherwise
