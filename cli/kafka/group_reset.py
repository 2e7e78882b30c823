"""kafka-consumer-groups --reset-offsets: moves the offsets of groups without members."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.cli.kafka.groups import SCENARIOS, named_groups, print_error
from kbroker.cli.kafka.options import Given, UsageError
from kbroker.cli.kafka.tool import say, shown, warn

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = ["parse_partitions", "reset"]

Partition = tuple[str, int]
Plan = dict[str, dict[Partition, int]]

_PLAIN_CHARS = 24  # longer texts stand in quotes


def reset(cluster: Cluster, given: Given) -> None:
    """Plans, moves with --execute, and shows where the offsets go."""
    from kbroker.cli.kafka.group_describe import check_consumes
    from kbroker.client.groups import describe_groups

    names = named_groups(cluster, given)
    found = describe_groups(cluster, names)
    for group in found.values():
        check_consumes(group)
    plan: Plan = {}
    for name in sorted(names):
        state = found[name].state if name in found else "Dead"
        if state not in ("Empty", "Dead"):
            print_error(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current"
                f" state is {state}."
            )
            plan[name] = {}
            continue
        plan[name] = _planned(cluster, given, name)
        if given.has("execute") and plan[name]:
            from kbroker.client.group_offsets import commit_offsets

            commit_offsets(cluster, name, plan[name])
    if given.has("export"):
        say(_exported(plan, with_group=len(given.values("group")) != 1))
    else:
        _show(plan)


def _show(plan: Plan) -> None:
    rows = [
        (shown(name), shown(topic), str(index), str(offset))
        for name, offsets in plan.items()
        for (topic, index), offset in sorted(offsets.items())
    ]
    wide = max([15, *(len(shown(name)) for name in plan)])
    topic_wide = max([15, *(len(row[1]) for row in rows)])
    heading = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plan else []
    for name, topic, index, offset in heading + rows:
        say(f"\n{name:<{wide}} {topic:<{topic_wide}} {index:<10} {offset}", end="")
    say()


def _exported(plan: Plan, *, with_group: bool) -> str:
    """CSV without a heading: [group,]topic,partition,offset."""
    lines = []
    for name, offsets in plan.items():
        for (topic, index), offset in sorted(offsets.items()):
            words = [*([shown(name)] if with_group else ()), shown(topic)]
            lines.append(",".join([*map(_quoted, words), str(index), str(offset)]) + "\n")
    return "".join(lines)


def _quoted(word: str) -> str:
    """In quotes where it is long or has a character up to the comma, as Kafka's tool writes it."""
    if len(word) <= _PLAIN_CHARS and all(char > "," for char in word):
        return word
    doubled = word.replace('"', '""')
    return f'"{doubled}"'


def parse_partitions(told: str) -> list[Partition]:
    """TOPIC:P,P as --topic has it. Raises UsageError."""
    parts = told.split(":")
    if len(parts) != 2 or not parts[1]:
        raise UsageError(f"Invalid topic arg '{told}', expected topic name and partitions")
    for word in parts[1].split(","):
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", word, re.ASCII):
            raise UsageError(f"Invalid partition '{word}' specified in topic arg '{told}''")
    return [(parts[0], int(word)) for word in parts[1].split(",")]


def _scope(cluster: Cluster, given: Given, committed: Iterable[Partition]) -> list[Partition]:
    if given.has("all-topics"):
        return list(committed)
    if not given.has("topic"):
        if given.has("from-file"):
            return []
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    from kbroker.client.errors import BrokerError

    topics = given.values("topic")
    keys = [key for topic in topics if ":" in topic for key in parse_partitions(topic)]
    whole = [topic for topic in dict.fromkeys(topics) if ":" not in topic]
    for topic, info in (cluster.describe(whole) if whole else {}).items():
        if isinstance(info, BrokerError):
            raise info
        keys += [(topic, part.index) for part in info.partitions]
    return list(dict.fromkeys(keys))


def _planned(cluster: Cluster, given: Given, group: str) -> dict[Partition, int]:
    """Where a group's offsets shall be."""
    from kbroker.client.group_offsets import committed_offsets

    told = committed_offsets(cluster, [group])[group]
    committed = {key: at.offset for key, at in told.items()}
    keys = _scope(cluster, given, committed)
    _check_there(cluster, keys)
    ways: dict[str, Callable[[], dict[Partition, int]]] = {
        "to-offset": lambda: _within(cluster, dict.fromkeys(keys, given.integer("to-offset") or 0)),
        "to-earliest": lambda: _listed(cluster, keys, -2),
        "to-latest": lambda: _listed(cluster, keys, -1),
        "shift-by": lambda: _within(cluster, _shifted(given, keys, committed)),
        "to-datetime": lambda: _at(cluster, keys, _time_ms(given)),
        "by-duration": lambda: _at(cluster, keys, _time_ms(given)),
        "from-file": lambda: _from_file(cluster, given, group),
        "to-current": lambda: _current(cluster, keys, committed),
    }
    scenario = next((name for name in ways if given.has(name)), None)
    if scenario is None:
        known = ", ".join(f"[{name}]" for name in SCENARIOS)
        raise UsageError(
            f"Option '[reset-offsets]' requires one of the following scenarios: [{known}]"
        )
    return ways[scenario]()


def _check_there(cluster: Cluster, keys: list[Partition]) -> None:
    from kbroker.cli.kafka.group_describe import leader_problem

    problems = leader_problem(cluster, keys)
    for problem in ("do not exist", "have no leader"):
        wrong = [f"{topic}-{index}" for topic, index in keys if problems[topic, index] == problem]
        if wrong:
            raise ValueError(f'The partitions "{",".join(wrong)}" {problem}')


def _listed(cluster: Cluster, keys: Iterable[Partition], at: int) -> dict[Partition, int]:
    from kbroker.client.offsets import list_offsets

    return {key: told.offset for key, told in
            list_offsets(cluster, dict.fromkeys(keys, at)).items()}  # fmt: skip


def _within(cluster: Cluster, wanted: dict[Partition, int]) -> dict[Partition, int]:
    """Fitted to what the logs hold; what had to be moved is told on standard error."""
    from kbroker.cli.group_plan import clamp

    first, end = _listed(cluster, wanted, -2), _listed(cluster, wanted, -1)
    offsets, moved = clamp(wanted, {key: (first[key], end[key]) for key in wanted})
    for line in moved:
        warn(f"WARN {line}")
    return offsets


def _shifted(
    given: Given, keys: list[Partition], committed: dict[Partition, int]
) -> dict[Partition, int]:
    by = given.integer("shift-by") or 0
    for topic, index in keys:
        if (topic, index) not in committed:
            raise UsageError(
                f"Cannot shift offset for partition {topic}-{index} since there is no current"
                " committed offset"
            )
    return {key: committed[key] + by for key in keys}


def _time_ms(given: Given) -> int:
    from kbroker.cli.kafka.java import duration_ms, instant_ms

    if given.has("by-duration"):
        return int(time.time() * 1000) - duration_ms(given.needed("by-duration"))
    try:
        return instant_ms(given.values("to-datetime")[0])
    except ValueError as error:
        raise ValueError(f"java.text.ParseException: {error}") from None


def _at(cluster: Cluster, keys: list[Partition], at_ms: int) -> dict[Partition, int]:
    found = _listed(cluster, keys, at_ms)
    later = [key for key, offset in found.items() if offset < 0]
    for topic, index in later:
        say(f"\nWarn: Partition {index} from topic {topic} is empty. Falling back to latest known"
            " offset.")  # fmt: skip
    return found | _listed(cluster, later, -1)


def _current(
    cluster: Cluster, keys: list[Partition], committed: dict[Partition, int]
) -> dict[Partition, int]:
    known = {key: committed[key] for key in keys if key in committed}
    return known | _listed(cluster, [key for key in keys if key not in committed], -1)


def _from_file(cluster: Cluster, given: Given, group: str) -> dict[Partition, int]:
    """The offsets that a file of --export has for a group."""
    path = given.values("from-file")[0]
    try:
        lines = [line for line in csv.reader(io.StringIO(Path(path).read_text())) if line]
    except OSError:
        raise ValueError(f"java.io.IOException: Unable to read file {path}") from None
    short = len(given.values("group")) == 1 and bool(lines) and len(lines[0]) == 3
    plan: Plan = {}
    for line in lines:
        if len(line) != (3 if short else 4) or not all(map(_is_number, line[-2:])):
            raise ValueError(
                f"{path}: {','.join(line)!r} is not [group,]topic,partition,offset"
            )
        owner = group if short else line[0]
        plan.setdefault(owner, {})[line[-3], int(line[-2])] = int(line[-1])
    if group not in plan:
        print_error(f"No reset plan for group {group} found")
        return {}
    return _within(cluster, plan[group])


def _is_number(word: str) -> bool:
    return re.fullmatch(r"\s*-?[0-9]{1,18}\s*", word, re.ASCII) is not None
