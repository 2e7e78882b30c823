"""Write kbroker/metadata/records/*.py from the record schemas inside Apache Kafka's jars.

`python -m kbroker.metadata.generate LIBS` reads `LIBS/kafka-*.jar` (4.3.0; the JSON files are
under common/metadata and common/message) and writes one module per family of `FAMILIES`. A
schema that no family names is an error: a new record of a new Kafka is news, not surprise.
Only facts are taken: names, types, versions, defaults, tags.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

VERSION = "4.3.0"
JARS = (
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-transaction-coordinator",
)
_OF_CLIENTS = (
    "KRaftVersionRecord", "LeaderChangeMessage", "SnapshotFooterRecord", "SnapshotHeaderRecord",
    "VotersRecord",
)  # fmt: skip


class Family(NamedTuple):
    """A generated module: what it holds (its docstring) and the schemas that belong to it."""

    about: str
    schemas: str


FAMILIES = {
    "raft": Family(
        "The control records of a KRaft log and snapshot, and the election state file.",
        r"KRaftVersionRecord|LeaderChangeMessage|Snapshot(Footer|Header)Record|VotersRecord"
        r"|QuorumStateData",
    ),
    "cluster": Family(
        "Metadata records (KIP-631) of features, brokers, controllers and the log itself.",
        r"(Abort|Begin|End)TransactionRecord|NoOpRecord|FeatureLevelRecord|ZkMigrationStateRecord"
        r"|Register(Broker|Controller)Record|UnregisterBrokerRecord|(Unf|F)enceBrokerRecord"
        r"|BrokerRegistrationChangeRecord|ProducerIdsRecord",
    ),
    "topics": Family(
        "Metadata records (KIP-631) of topics, partitions and configs.",
        r"(Remove)?TopicRecord|Partition(Change)?Record|ConfigRecord|ClearElrRecord",
    ),
    "access": Family(
        "Metadata records (KIP-631) of ACLs, SCRAM credentials, delegation tokens and quotas.",
        r"(Remove)?(AccessControlEntry|UserScramCredential|DelegationToken)Record"
        r"|ClientQuotaRecord",
    ),
    "classic_group": Family(
        "Keys and values of `__consumer_offsets`: committed offsets and classic groups.",
        r"(Legacy)?OffsetCommit(Key|Value)|GroupMetadata(Key|Value)",
    ),
    "consumer_group": Family(
        "Keys and values of `__consumer_offsets`: consumer groups (KIP-848).",
        r"ConsumerGroup\w+(Key|Value)",
    ),
    "share_group": Family(
        "Keys and values of `__consumer_offsets`: share groups (KIP-932).",
        r"ShareGroup\w+(Key|Value)",
    ),
    "streams_group": Family(
        "Keys and values of `__consumer_offsets`: streams groups (KIP-1071) and their members.",
        r"StreamsGroup(?!Topology|Target)\w+(Key|Value)",
    ),
    "streams_topology": Family(
        "Keys and values of `__consumer_offsets`: topologies and targets of streams groups.",
        r"StreamsGroup(Topology|Target)\w*(Key|Value)",
    ),
    "share_state": Family(
        "Keys and values of `__share_group_state` (KIP-932).",
        r"Share(Snapshot|Update)(Key|Value)",
    ),
    "transaction": Family(
        "Key and value of `__transaction_state`, and the producer state file of a partition.",
        r"TransactionLog(Key|Value)|ProducerSnapshot",
    ),
}
_NOT_KEPT_BY_A_BROKER = re.compile(r"Remote\w+Record")
"""Records of tiered storage's own topic: there is no tiered storage on one node."""

_KINDS = {
    "metadata": "Metadata record",
    "coordinator-key": "Key of record",
    "coordinator-value": "Value of record",
}
_TABLES = {"metadata": "METADATA", "coordinator-key": "KEYS", "coordinator-value": "VALUES"}
_PYTHON_TYPES = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "string": "str",
    "uuid": "bytes",
}
_SIMPLE_DEFAULTS: dict[str, object] = {
    "bool": False, "bytes": b"", "float64": 0.0, "string": "", "uuid": bytes(16),
}  # fmt: skip


def read_schemas(libs: Path) -> dict[str, dict[str, Any]]:
    """Every record schema of the jars in `libs`, by name."""
    found = {}
    for jar in JARS:
        with zipfile.ZipFile(libs / f"{jar}-{VERSION}.jar") as archive:
            for path in archive.namelist():
                stem = Path(path).stem
                if not re.search(r"(message|metadata)/\w+\.json$", path):
                    continue
                if jar == "kafka-clients" and stem not in _OF_CLIENTS:
                    continue
                text = re.sub(r"(?m)^\s*//.*$", "", archive.read(path).decode())
                schema = json.loads(text)
                found[schema["name"]] = schema
    return found


def generate(libs: Path) -> dict[str, str]:
    """The text of every generated module, by module name."""
    schemas = read_schemas(libs)
    left = {name for name in schemas if not _NOT_KEPT_BY_A_BROKER.fullmatch(name)}
    modules = {}
    for module, family in FAMILIES.items():
        names = sorted(name for name in left if re.fullmatch(family.schemas, name))
        left -= set(names)
        modules[module] = _module(family, [schemas[name] for name in names])
    if left:
        raise SystemExit(f"no family of generate.py names {sorted(left)}")
    return modules


def _module(family: Family, schemas: list[dict[str, Any]]) -> str:
    lines = [
        f'"""Generated by kbroker/metadata/generate.py from the schemas of Apache Kafka {VERSION}.',
        "",
        family.about,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import ClassVar",
        "",
        "@IMPORT@",
    ]
    uses = Counter(struct["name"] for schema in schemas for struct in _structs(schema))
    for schema in schemas:
        names = {
            struct["name"]: _class_name(schema["name"], struct["name"], uses)
            for struct in _structs(schema)
        }
        for struct in _structs(schema):
            lines += ["", "", *_class(names[struct["name"]], schema, struct["fields"], names)]
        lines += ["", "", *_class(schema["name"], schema, schema["fields"], names)]
    for kind, table in _TABLES.items():
        of_kind = {s["apiKey"]: s["name"] for s in schemas if s["type"] == kind and "apiKey" in s}
        if of_kind:
            lines += ["", *([""] if table != "VALUES" else [])]
            lines += [f"{table}: dict[int, type[Record]] = {{"]
            lines += [f"    {key}: {of_kind[key]}," for key in sorted(of_kind)]
            lines += ["}"]
    text = "\n".join(lines) + "\n"
    used = [name for name in ("EMPTY", "NO_UUID", "Field", "Record", "Schema")
            if re.search(rf"\b{name}\b", text)]  # fmt: skip
    return text.replace("@IMPORT@", f"from .schema import {', '.join(used)}")


def _structs(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every struct within a schema, once each, the inner ones before those that hold them."""
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}
    found: dict[str, dict[str, Any]] = {}

    def walk(fields: list[dict[str, Any]]) -> None:
        for field in fields:
            name = field["type"].removeprefix("[]")
            inner = field.get("fields") or common.get(name)
            if inner and name not in found:
                walk(inner)
                found[name] = {"name": name, "fields": inner}

    walk(schema["fields"])
    return list(found.values())


def _class_name(record: str, struct: str, uses: Counter[str]) -> str:
    """A struct's own name, after its record's where two records of a module have one of it."""
    return struct if uses[struct] == 1 else re.sub("Value$|Record$|Message$", "", record) + struct


def _about(schema: dict[str, Any], name: str) -> str:
    if name != schema["name"]:
        return f"A part of {schema['name']}."
    oldest, latest = _versions(schema["validVersions"])
    flexible, _ = _versions(schema["flexibleVersions"])
    versions = f"version {oldest}" if oldest == latest else f"versions {oldest}-{latest}"
    if flexible <= latest:
        versions += f", flexible from {flexible}"
    if "apiKey" not in schema:
        return versions.capitalize() + "."
    return f"{_KINDS[schema['type']]} {schema['apiKey']}, {versions}."


def _class(
    name: str, schema: dict[str, Any], fields: list[dict[str, Any]], names: dict[str, str]
) -> Iterator[str]:
    """A class: slots, schema and constructor; `names` are the classes of the structs."""
    oldest, latest = _versions(schema["validVersions"])
    flexible, _ = _versions(schema["flexibleVersions"])
    key = schema.get("apiKey", -1) if name == schema["name"] else -1
    fields = [field | {"python": _python_type(field["type"], names)} for field in fields]
    yield f"class {name}(Record):"
    yield f'    """{_about(schema, name)}"""'
    yield ""
    slots = sorted(_snake(field["name"]) for field in fields)
    yield from _call("    __slots__ = ", [f'"{slot}"' for slot in slots], tuple_=True)
    yield "    SCHEMA: ClassVar[Schema] = Schema("
    yield f'        "{name}", {key}, ({oldest}, {latest}), {flexible},'
    for field in fields:
        yield from _call("        Field", _field(field, names), after=",")
    yield "    )  # fmt: skip"
    yield ""
    if not fields:
        yield "    def __init__(self) -> None:"
        yield "        self.unknown_tags = ()"
        return
    yield "    def __init__(" + ("  # noqa: PLR0917" if len(fields) > 5 else "")
    yield "        self,"
    for field in fields:
        yield f"        {_argument(field)},"
    yield "    ) -> None:"
    yield "        self.unknown_tags = ()"
    for field in fields:
        yield from _assignment(field)


def _call(before: str, parts: list[str], after: str = "", *, tuple_: bool = False) -> Iterator[str]:
    """`before(parts)after`, on two or more lines where one would be too long."""
    comma = "," if tuple_ and len(parts) == 1 else ""
    line = f"{before}({', '.join(parts)}{comma}){after}"
    if len(line) <= 100:
        yield line
        return
    indent = " " * (len(before) - len(before.lstrip()))
    yield f"{before}("
    row = ""
    for part in parts:
        if len(indent + "    " + row + part) >= 99:
            yield f"{indent}    {row.rstrip()}"
            row = ""
        row += f"{part}, "
    yield f"{indent}    {row.rstrip()}"
    yield f"{indent}){after}{'  # fmt: skip' if tuple_ else ''}"


def _field(field: dict[str, Any], names: dict[str, str]) -> list[str]:
    since, until = _versions(field.get("versions", "0+"))
    parts = [f'"{_snake(field["name"])}"', f'"{field["type"]}"']
    if since or until is not None:
        parts.append(str(since))
    if until is not None:
        parts.append(str(until))
    if "nullableVersions" in field:
        parts.append(f"nullable={_versions(field['nullableVersions'])[0]}")
    if not _empty_by_default(field):
        parts.append(f"default={_literal(_default(field))}")
    if "tag" in field:
        parts += [f"tag={field['tag']}", f"tagged={_versions(field['taggedVersions'])[0]}"]
    if field.get("ignorable"):
        parts.append("ignorable=True")
    if _is_struct(field["type"]):
        parts.append(f"of={names[field['type'].removeprefix('[]')]}")
    return parts


def _default(field: dict[str, Any]) -> object:
    """The default value of what is no array and no struct, None where it is null."""
    kind, told = field["type"], field.get("default")
    if told == "null":
        return None
    if kind == "bool":
        return told in (True, "true")
    if kind in ("string", "bytes", "float64", "uuid"):
        return told or _SIMPLE_DEFAULTS[kind]
    return int(str(told), 0) if told is not None else 0


def _literal(value: object) -> str:
    if value == bytes(16):
        return "NO_UUID"
    return json.dumps(value) if isinstance(value, str) else repr(value).replace("'", '"')


def _argument(field: dict[str, Any]) -> str:
    kind = field["python"] + (" | None" if "nullableVersions" in field else "")
    default = "EMPTY" if _empty_by_default(field) else _literal(_default(field))
    return f"{_snake(field['name'])}: {kind} = {default}"


def _empty_by_default(field: dict[str, Any]) -> bool:
    """An array or struct whose default is one without elements, or of defaults.

    Kafka takes the text "null" for null; JSON's own null says nothing.
    """
    kind = field["type"]
    return (kind.startswith("[]") or _is_struct(kind)) and field.get("default") != "null"


def _assignment(field: dict[str, Any]) -> Iterator[str]:
    name, kind, python = _snake(field["name"]), field["type"], field["python"]
    value, target = name, f"self.{name}"
    if _empty_by_default(field):
        empty = "[]" if kind.startswith("[]") else f"{python}()"
        value = f"{empty} if {name} is EMPTY else {name}"
        target += f": {python}{' | None' if 'nullableVersions' in field else ''}"
    if len(target + value) <= 100 - 11:
        yield f"        {target} = {value}"
        return
    yield f"        {target} = ("
    yield f"            {value}"
    yield "        )"


def _python_type(kind: str, names: dict[str, str]) -> str:
    if kind.startswith("[]"):
        return f"list[{_python_type(kind[2:], names)}]"
    if _is_struct(kind):
        return names[kind]
    return _PYTHON_TYPES.get(kind, "int")


def _is_struct(kind: str) -> bool:
    return kind.removeprefix("[]")[0].isupper()


def _versions(text: str) -> tuple[int, Any]:
    """`"2+"` is (2, None), `"1-3"` is (1, 3), `"4"` is (4, 4), `"none"` is never."""
    if text == "none":
        return 32768, None
    if text.endswith("+"):
        return int(text[:-1]), None
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _snake(name: str) -> str:
    name = name.replace("KRaft", "Kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def main() -> None:
    libs = Path(sys.argv[1])
    directory = Path(__file__).parent / "records"
    for module, text in generate(libs).items():
        (directory / f"{module}.py").write_text(text)


if __name__ == "__main__":
    main()
