"""The one judgement of what a broker kept: what clients were told, held against what it serves.

The model. A partition is a list of records, each at an offset of its own. A client's history says
of each numbered record where it was sent, and then that it was acknowledged at an offset, that it
failed, or nothing: then it may be stored or not, now or later. Afterwards there must be

- no record lost: what was acknowledged stands at the offset that was told;
- none repeated and none reordered, where the producer is idempotent;
- none foreign: what is stored was sent, by whom it says, to this partition;
- none torn: a batch is whole and its checksum right;
- no commit lost or invented: what a group has stored lies between the last offset that was
  answered and the last that was sent, and never goes back.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.reference.crafted_batches import parse_batches
from tests.support import wire

#: Kinds of producers (tests.support.load) whose records may come twice, or in another order.
REPEATING = ("acks-1", "acks-0", "not-idempotent")
#: In place of an offset that a producer with acks=0 is never told.
ANYWHERE = -1


@dataclass
class History:
    """What one producer knows: the partition of each number sent, and where acks say it is."""

    name: str
    exact: bool = True
    sent: dict[int, int] = field(default_factory=dict)
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


def read_history(path: Path) -> History:
    """A producer's file; its form is tests.support.load's."""
    history = History(path.name)
    for line in path.read_text().splitlines():
        match line.split(" "):
            case ["kind", kind]:
                history.exact = kind not in REPEATING
            case ["sent", number, partition]:
                history.sent[int(number)] = int(partition)
            case ["acked", number, partition, offset]:
                history.acked[int(number)] = (int(partition), int(offset))
            case ["failed", number, error]:
                history.failed[int(number)] = error
    return history


@dataclass
class Verdict:
    """What is wrong, each as a list of readable lines."""

    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, list[str]]:
        """Kind of fault -> its first lines; empty where all is well."""
        return {kind: lines[:5] for kind, lines in vars(self).items() if lines}

    def count(self) -> int:
        """How many records something is wrong with."""
        return sum(map(len, vars(self).values()))


def log_start(port: int, topic: str, partition: int) -> int:
    """The first offset that a partition has."""
    part = {"partition_index": partition, "timestamp": -2}
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
    answer = wire.call_once(port, wire.LIST_OFFSETS, 6, body)
    return int(answer["topics"][0]["partitions"][0]["offset"])


#: Partition -> offset -> value.
Stored = dict[int, dict[int, bytes]]


def stored_values(port: int, topic: str, partition: int, verdict: Verdict) -> dict[int, bytes]:
    """Offset -> value of all that a partition serves, batches checked on the way."""
    values: dict[int, bytes] = {}
    offset = log_start(port, topic, partition)
    with wire.WireConnection(port, timeout_s=60) as connection:
        while True:
            part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
            answer = connection.call(wire.FETCH, 11, body)["responses"][0]["partitions"][0]
            assert answer["error_code"] == 0, answer
            if not answer["records"]:
                assert offset == answer["high_watermark"], f"{offset} of {answer}"
                return values
            for batch in parse_batches(answer["records"]):
                if "records" not in batch:
                    break
                if not batch["crc_is_right"] or batch["base_offset"] > offset:
                    verdict.torn.append(f"{topic}-{partition} at {offset}: {batch}")
                for record in batch["records"]:
                    values[batch["base_offset"] + record["offset_delta"]] = record["value"]
                offset = batch["base_offset"] + batch["last_offset_delta"] + 1


def judge(port: int, topic: str, partitions: int, histories: list[History]) -> Verdict:
    """Reads everything back and holds it against the histories."""
    verdict = Verdict()
    stored = {p: stored_values(port, topic, p, verdict) for p in range(partitions)}
    return judge_stored(stored, histories, verdict)


def judge_stored(
    stored: Stored, histories: list[History], verdict: Verdict | None = None
) -> Verdict:
    """Adds to `verdict` what is wrong with these records."""
    verdict = verdict or Verdict()
    by_name = {history.name: history for history in histories}
    places: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for partition, values in stored.items():
        newest: dict[str, int] = {}
        for offset, value in sorted(values.items()):
            name, number_text, _ = value.decode(errors="replace").split(" ", 2)
            number = int(number_text)
            places[name, number].append((partition, offset))
            history = by_name.get(name)
            if history is None or history.sent.get(number) != partition:
                verdict.foreign.append(f"{name} {number} at {partition}:{offset}")
            elif history.exact and number < newest.get(name, -1):
                verdict.reordered.append(f"{name} {number} at {offset} after {newest[name]}")
            newest[name] = max(number, newest.get(name, -1))
    for (name, number), where in places.items():
        if len(where) > 1 and name in by_name and by_name[name].exact:
            verdict.repeated.append(f"{name} {number} at {where}")
    for history in histories:
        for number, place in history.acked.items():
            found = places.get((history.name, number), [])
            if place not in found and not (place[1] == ANYWHERE and found):
                verdict.lost.append(f"{history.name} {number} acked at {place}")
    return verdict


@dataclass
class CommitHistory:
    """What a client knows of an offset that it commits, ever higher: the last sent, the last
    answered, and the last that was seen."""

    group: str
    sent: int = 0
    answered: int = 0
    seen: int = -1


def judge_commit(history: CommitHistory, stored: int) -> list[str]:
    """What is wrong with the offset that the broker has now; it counts as seen from here on."""
    told = f"{history.group}: answered {history.answered}, sent {history.sent}, stored {stored}"
    wrong = [] if history.answered <= stored <= history.sent else [told]
    if stored < history.seen:
        wrong.append(f"{history.group}: {history.seen} was seen, {stored} is stored")
    history.seen = max(history.seen, stored)
    return wrong
