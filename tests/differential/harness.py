"""The same frames to Apache Kafka 4.3 and to kbroker, and their answers compared field by field.

A script is a function of (script, version) that sends requests and may use their answers (topic
ids, offsets, session ids). It runs once against each broker; every answer goes into a transcript.
The two transcripts must be equal once what may differ is taken out of them: RULES says which
fields those are, and why. Where kbroker is not built, Kafka is compared with itself, which shows
that a script is repeatable and that the rules take out all that is random.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.reference.crafted_batches import CONTROL, Batch, Record, parse_batches
from tests.support import wire
from tests.support.messages import ZERO_UUID
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import ConnectionClosedError, WireConnection

Answer = dict[str, Any]


class Script:
    """One broker's side of a script: its connection, its topics and the transcript."""

    def __init__(self, broker: BrokerProcess, prefix: str, now_ms: int) -> None:
        self.broker = broker
        self.prefix = prefix
        self.now_ms = now_ms
        self.transcript: list[tuple[str, Any]] = []
        self.ids: dict[uuid.UUID, str] = {}
        self.source = ""
        """The address that its connection comes from, where it matters."""
        self._connection: WireConnection | None = None

    @property
    def connection(self) -> WireConnection:
        if self._connection is None:
            self._connection = WireConnection(self.broker.port, timeout_s=30, source=self.source)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(
        self, api: int, version: int, body: Answer | None = None,
        keep: Callable[[Answer], Any] | None = None,
    ) -> Answer:  # fmt: skip
        """Sends a request and notes its answer, or that the connection was closed instead.

        `keep` cuts the part to be noted out of the answer.
        """
        label = f"api {api} v{version}"
        try:
            answer = self.connection.call(api, version, body)
        except (ConnectionClosedError, TimeoutError) as error:
            self.close()
            self.transcript.append((label, {"no answer": type(error).__name__}))
            return {}
        self.transcript.append((label, keep(answer) if keep else answer))
        return answer

    def note(self, label: str, value: Any) -> None:
        """Puts something else that must be equal into the transcript."""
        self.transcript.append((label, value))

    # --- topics -------------------------------------------------------------------------------

    def name(self, short: str = "t") -> str:
        """A name of this script's own; equal on both sides but for the prefix."""
        return f"{self.prefix}{short}"

    def topic(self, short: str = "t", partitions: int = 1, **configs: str) -> str:
        """Creates a topic, silently; `_` in a config's name stands for `.`."""
        name = self.name(short)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wire.create_topic(self.broker.port, name, partitions, settings)
        self.ids[wire.topic_id(self.broker.port, name)] = f"id of {short}"
        return name

    def until_unknown(self, name: str) -> None:
        """Waits until a deleted topic is gone from the metadata."""

        def is_gone() -> bool:
            body = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
            answer = wire.call_once(self.broker.port, wire.METADATA, 9, body)
            return bool(answer["topics"][0]["error_code"] == 3)

        wait_for(f"{name} is gone", is_gone, 15)

    def until_known(self, name: str, partitions: int = 1) -> None:
        """Waits until so many partitions of a topic have their leaders."""
        wire.wait_for_topic(self.broker.port, name, partitions)

    def until_coordinator(self, kind: int) -> None:
        """Waits until the internal topic behind a kind of coordinator is there, if it comes."""

        def is_there() -> bool:
            body = {"key_type": kind, "coordinator_keys": ["any"]}
            answer = wire.call_once(self.broker.port, wire.FIND_COORDINATOR, 4, body)
            return bool(answer["coordinators"][0]["error_code"] != 15)

        wait_for(f"a coordinator of kind {kind}", is_there, 15)

    def until_config(self, name: str, key: str, value: str, kind: int = 2) -> None:
        """Waits until a changed setting is told; Kafka's broker hears of it after the answer."""

        def is_there() -> bool:
            wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
            answer = wire.call_once(
                self.broker.port, wire.DESCRIBE_CONFIGS, 4, {"resources": [wanted]}
            )
            return any(row["value"] == value for row in answer["results"][0]["configs"])

        wait_for(f"{key} of {name} is {value}", is_there, 15)

    def until_feature(self, name: str, level: int) -> None:
        """Waits until the level of a feature is told."""
        names = {"client_software_name": "testbed", "client_software_version": "1.0"}

        def is_there() -> bool:
            rows = wire.call_once(self.broker.port, 18, 4, names)["finalized_features"]
            return next((r["max_version_level"] for r in rows if r["name"] == name), 0) == level

        wait_for(f"{name} at {level}", is_there, 60)

    def id_of(self, name: str) -> uuid.UUID:
        return next(key for key, short in self.ids.items() if name == self.name(short[6:]))

    def producer_id(self) -> int:
        """A fresh producer id; Kafka refuses while it fetches a block of them."""

        def ask() -> Answer:
            body = {"transactional_id": None, "transaction_timeout": 60000}
            return self.connection.call(wire.INIT_PRODUCER_ID, 4, body)

        answer = wait_for("a producer id", lambda: (a := ask())["error_code"] == 0 and a, 15)
        return int(answer["producer_id"])

    # --- data ---------------------------------------------------------------------------------

    def batch(self, *values: bytes, **fields: Any) -> bytes:
        """A batch whose timestamps are the same on both sides."""
        fields.setdefault("base_timestamp", self.now_ms)
        records = fields.pop("records", None) or [Record(v) for v in values or (b"value",)]
        return Batch(records=records, **fields).encode()

    def produce(
        self, topic: str, data: bytes | None, version: int = 9, acks: int = -1, partition: int = 0
    ) -> Answer:
        """Produces to one partition and returns that partition's answer."""
        answer = self.call(0, version, self.produce_body({topic: {partition: data}}, version, acks))
        return partition_of(answer, "partition_responses") if answer else {}

    def produce_body(
        self, data: dict[str, dict[int, bytes | None]], version: int, acks: int = -1
    ) -> Answer:
        topics = []
        for topic, partitions in data.items():
            parts = [{"index": index, "records": part} for index, part in partitions.items()]
            topics.append(
                self.topic_field(topic, version >= 13, "name") | {"partition_data": parts}
            )
        return {"acks": acks, "timeout": 10000, "topic_data": topics}

    def topic_field(self, topic: str, by_id: bool, key: str) -> Answer:
        return {"topic_id": self.id_of(topic)} if by_id else {key: topic}

    def fetch(self, topic: str, offset: int, version: int = 12, **fields: Any) -> Answer:
        """Fetches from partition 0 and returns that partition's answer."""
        answer = self.call(1, version, self.fetch_body(topic, offset, version, **fields))
        return partition_of(answer, "partitions") if answer.get("responses") else {}

    def fetch_body(
        self, topic: str, offset: int, version: int, *, partition: int = 0, max_wait: int = 0,
        min_bytes: int = 0, partition_max_bytes: int = 1 << 20, epoch: int = -1, **fields: Any,
    ) -> Answer:  # fmt: skip
        part: Answer = {"partition": partition, "fetch_offset": offset,
                        "partition_max_bytes": partition_max_bytes}  # fmt: skip
        if version >= 9:
            part["current_leader_epoch"] = epoch
        topics = [self.topic_field(topic, version >= 13, "topic") | {"partitions": [part]}]
        body = {"max_wait": max_wait, "min_bytes": min_bytes, "topics": topics}
        return body | ({"replica_id": -1} if version < 15 else {}) | fields

    def offset(self, topic: str, timestamp: int, version: int = 7) -> Answer:
        body = list_offsets_body(topic, timestamp)
        return partition_of(self.call(2, version, body), "partitions", "topics")


def list_offsets_body(topic: str, *timestamps: int, **fields: Any) -> Answer:
    """Asks each timestamp of a partition of its own index, from 0 on."""
    parts = [{"partition_index": i, "timestamp": t} | fields for i, t in enumerate(timestamps)]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": parts}]}


def partition_of(answer: Answer, parts: str, topics: str = "responses") -> Answer:
    """The one partition of an answer about one partition."""
    result: Answer = answer[topics][0][parts][0]
    return result


# --- what may differ --------------------------------------------------------------------------


@dataclass
class Naming:
    """Random values of one transcript by the order in which they came."""

    own_port: int
    prefix: str
    ids: dict[uuid.UUID, str]
    seen: dict[tuple[str, Any], str] = field(default_factory=dict)

    def ordinal(self, kind: str, value: Any) -> str:
        return self.seen.setdefault((kind, value), f"{kind} #{len(self.seen)}")


def _dropped(value: Any, naming: Naming) -> Any:
    return "(any)"


def _presence(value: Any, naming: Naming) -> Any:
    return "(text)" if value else value


def _sign(value: Any, naming: Naming) -> Any:
    return "(positive)" if value > 0 else value


def _topic_id(value: Any, naming: Naming) -> Any:
    if value == ZERO_UUID:
        return "zero"
    return naming.ids.get(value) or naming.ordinal("id", value)


def _producer_id(value: Any, naming: Naming) -> Any:
    return naming.ordinal("producer", value) if 0 <= value < 1 << 40 else value


def _session_id(value: Any, naming: Naming) -> Any:
    return naming.ordinal("session", value) if value > 0 else value


def _member_id(value: Any, naming: Naming) -> Any:
    """A member id ends in a random uuid; what it begins with tells client or instance."""
    if value is None:
        return None
    stem, found = (value[:-36], value[-36:]) if len(value) > 36 else (value, "")
    return f"{stem}{naming.ordinal('member', found)}" if found else stem


def _port(value: Any, naming: Naming) -> Any:
    return "own" if value == naming.own_port else value


def _records(value: Any, naming: Naming) -> Any:
    """Batches field by field; the time at which a broker stamped a batch is its own."""
    if not isinstance(value, bytes):
        return value
    try:
        batches = parse_batches(value)
    except Exception as error:
        # A batch that a broker took without looking inside reads back as the bytes it was.
        return [type(error).__name__, value[17:].hex()]
    for parsed in batches:
        if parsed.get("attributes", 0) & 0x08:
            parsed["max_timestamp"] = "(now)"
        if parsed.get("attributes", 0) & CONTROL:
            parsed["base_timestamp"] = parsed["max_timestamp"] = "(now)"
            parsed.pop("crc_is_right", None)
        if "producer_id" in parsed:
            parsed["producer_id"] = _producer_id(parsed["producer_id"], naming)
    return batches


#: Field name -> (how it is made comparable, why it may differ).
#: Messages that tools print and scripts match: kbroker has Kafka's, word by word. Of `listeners`,
#: which Kafka changes while it runs and kbroker does not, the text is another one.
KAFKAS_WORDS = re.compile(
    r"No Authorizer is configured|Broker ID -?\d+ is not currently reg|Topic '.*' already exists"
    r"|Topic '.*' collides with|Topic name is invalid: (?!'\.+')|Unable to replicate the partition"
    r"|Replication factor must be|Number of partitions was set|The manual partition assignment inc"
    r"|partitions should be a|Null value not supported|This server does not host this topic"
    r"|The topic '.*' does not exist|Error due to duplicate config keys|Can't \w+ to key"
    r"|Cannot update these configs(?!.*\[listeners\])|Each resource must appear"
    r"|Group name must|Client metrics subscr"
    r"|Excessively large number"
    r"|Topic already has \d+|The topic .* currently has|Attempted to add \d+ additional"
    r"|Invalid configuration key|Quota \w+ must be greater|You may not specify both"
    r"|Neither topic name nor id|Leader election not needed|No such "
    r"|Unable to find (?:a topic|partition)|(?:Topic|Group|Cluster|Transactional Id) auth"
    r"|Authorization failed|Unknown resource type|Unexpected broker id|(?:Broker|Node) id must be"
    r"|The consumer group member has a"
    r"|Unexpected node id|Logger .* does not exist|Removing the log level of the root"
    r"|Default \w+ resources are not|Subscription name can't|Attempt to describe a user cred"
    r"|Partition was not added|Transactional records contained|\w+ operation is not allowed for"
    r"|One or more records have been rejected due to invalid|A manual partition assignment was"
    r"|Found multiple manual|Creation of internal topic"
)


def _message(value: Any, naming: Naming) -> Any:
    text = (value or "").replace(naming.prefix, "~")
    return text if KAFKAS_WORDS.match(text) else _presence(value, naming)


RULES: dict[str, tuple[Callable[[Any, Naming], Any], str]] = {
    "throttle_time": (_dropped, "measured by each broker's own quota window"),
    "cluster_id": (_dropped, "each broker has its own"),
    "error_message": (_message, "the wording is ours, but for KAFKAS_WORDS"),
    "batch_index_error_message": (_presence, "the wording is ours"),
    "documentation": (_presence, "the wording is ours"),
    "topic_id": (_topic_id, "random; compared by the topic it belongs to"),
    "producer_id": (_producer_id, "allocated in blocks; compared by order of appearance"),
    "session_id": (_session_id, "random; compared by order of appearance"),
    "member_id": (_member_id, "random; compared by order of appearance"),
    "leader": (_member_id, "a member id"),
    "log_append_time": (_sign, "the broker's clock"),
    "port": (_port, "picked by the kernel"),
    "records": (_records, "compared batch by batch and record by record"),
    "log_dir": (_dropped, "each broker has its own directory"),
    "total_bytes": (_sign, "of the file system at that moment"),
    "usable_bytes": (_sign, "of the file system at that moment"),
    "finalized_features_epoch": (_dropped, "offset in the metadata log"),
}

#: Fields that name an element of a list: lists are compared as sets by these, since Kafka's
#: order comes from its hash maps.
_NAMES = ("resource_type", "resource_name", "name", "group_id", "topic", "topic_name", "topic_id",
          "key", "partition_index", "partition", "index", "partition_id", "api_key", "node_id",
          "broker_id", "member_id")  # fmt: skip


def comparable(value: Any, naming: Naming, name: str = "") -> Any:
    """`value` with all that may differ taken out."""
    if name in RULES:
        return RULES[name][0](value, naming)
    if isinstance(value, dict):
        return {key: comparable(item, naming, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return sorted_by_name([comparable(item, naming) for item in value])
    if isinstance(value, str):
        return value.replace(naming.prefix, "~")
    return value


def sorted_by_name(items: list[Any]) -> list[Any]:
    if not items or not all(isinstance(item, dict) for item in items):
        return items
    return sorted(items, key=lambda item: [str(item[k]) for k in _NAMES if k in item])


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Where two comparable values differ, one line each."""
    if isinstance(left, dict) and isinstance(right, dict):
        lines = []
        for key in [*left, *(key for key in right if key not in left)]:
            lines += differences(left.get(key, "-"), right.get(key, "-"), f"{path}.{key}")
        return lines
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        lines = []
        for index, pair in enumerate(zip(left, right, strict=True)):
            lines += differences(*pair, f"{path}[{index}]")
        return lines
    return [] if left == right else [f"{path}: {_short(left)} | {_short(right)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 300 else text[:300] + "..."


# --- running ----------------------------------------------------------------------------------


_runs = itertools.count(1)


class Differ:
    """The two brokers of a comparison."""

    def __init__(self, reference: BrokerProcess, candidate: BrokerProcess) -> None:
        self.brokers = (reference, candidate)

    @property
    def against_kbroker(self) -> bool:
        """False: Kafka is compared with itself."""
        return self.brokers[1].name == "kbroker"

    def compare(self, run: Callable[[Script], Any], now_ms: int) -> None:
        """Runs a script on both and fails with the list of differences."""
        number = next(_runs)
        scripts = [
            Script(broker, f"d{number}{side}-", now_ms)
            for broker, side in zip(self.brokers, "xy", strict=True)
        ]
        for script in scripts:
            try:
                run(script)
            finally:
                script.close()
        left, right = (
            [
                (label, comparable(value, naming))
                for naming in [Naming(script.broker.port, script.prefix, script.ids)]
                for label, value in script.transcript
            ]
            for script in scripts
        )
        lines = [
            line
            for step, (a, b) in enumerate(itertools.zip_longest(left, right, fillvalue=("-", "-")))
            for line in differences(a[1], b[1], f"step {step}, {a[0]}")
        ]
        names = " | ".join(broker.name for broker in self.brokers)
        assert not lines, f"{names}\n" + "\n".join(lines[:40])


def same(versions: Iterable[int] = (0,)) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a script into a test that runs it on both brokers at each of these versions."""

    def decorate(script: Callable[..., Any]) -> Callable[..., None]:
        @pytest.mark.parametrize("version", list(versions))
        def test(differ: Differ, now_ms: int, version: int) -> None:
            differ.compare(lambda side: script(side, version), now_ms)

        test.__name__ = test.__qualname__ = script.__name__
        test.__doc__ = script.__doc__
        return test

    return decorate
