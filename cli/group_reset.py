"""`kbroker group reset` (also `seek`): moves the committed offsets of groups without members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.group_plan import Plan, clamp, read_plan, write_plan
from kbroker.cli.group_scope import Partition, active, consumer_groups, expand, parse_topics
from kbroker.cli.options import bootstrap_option, open_cluster, output_option
from kbroker.cli.render import Column, print_rows, say
from kbroker.cli.when import TIME_FORMS, parse_time_ms

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

_COLUMNS = [
    Column("group", "GROUP"),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("committed", "COMMITTED", number=True),
    Column("offset", "NEW", number=True),
]
_MODES = (
    "to_earliest", "to_latest", "to_current", "to_datetime", "by_duration", "shift_by",
    "to_offset", "from_file",
)  # fmt: skip


@click.command()
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@bootstrap_option
@output_option
@click.option("--all-groups", "-a", "every", is_flag=True, help="All groups.")
@click.option("--topic", "-t", "topics", multiple=True, metavar="T[:P,...]", help="These alone.")
@click.option("--all-topics", is_flag=True, help="Every partition with a committed offset.")
@click.option("--to-earliest", is_flag=True, help="To the first record there is.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To what is committed; where nothing is, the end.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help=f"To the first record at or after TIME: {TIME_FORMS}.",
)
@click.option("--by-duration", metavar="SPAN", help="To where time was SPAN ago: 2h, P1DT12H.")
@click.option("--shift-by", type=int, metavar="N", help="N records on, or with a minus back.")
@click.option("--to-offset", type=int, metavar="N", help="To this offset.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="To the offsets of a file: lines of [group,]topic,partition,offset.",
)
@click.option(
    "--to-file",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the new offsets to such a file; alone: what is committed now.",
)
@click.option("--execute", "-x", is_flag=True, help="Do it. Without, only show what would be.")
@click.option("--dry-run", is_flag=True, help="What is done without --execute.")
def reset(
    names: tuple[str, ...], bootstrap: str | None, output: str, every: bool,
    topics: tuple[str, ...], all_topics: bool, to_file: Path | None, execute: bool, dry_run: bool,
    **modes: Any,
) -> int:  # fmt: skip
    """Move committed offsets: a dry run unless --execute is given.

    Offsets that the log does not hold are moved to its nearest end. Groups with members are
    refused: stop their consumers first.
    """
    mode, value = _mode(modes, to_file)
    if to_file is not None and mode == "to_current" and not topics:
        all_topics = True
    _check_usage(names, every, topics, all_topics, mode, execute and dry_run)
    scope = parse_topics(topics)
    value = _parsed(mode, value)
    failed = 0
    with open_cluster(bootstrap) as cluster:
        plan: Plan = read_plan(value, names) if mode == "from_file" else {}
        wanted = list(names) or list(plan) or consumer_groups(cluster)
        usable, committed = _usable(cluster, wanted)
        failed = len(usable) < len(wanted)
        for group in usable:
            before = committed[group]
            if mode == "from_file":
                for key in plan[group]:
                    expand(cluster, [(key[0], (key[1],))])
            else:
                keys = list(before) if all_topics else expand(cluster, scope)
                plan[group] = _targets(cluster, mode, value, keys, before)
            plan[group] = _inside(cluster, plan[group])
        plan = {group: plan[group] for group in usable}
        if to_file is not None:
            write_plan(to_file, plan, with_group=len(names) != 1)
        if execute:
            from kbroker.client.group_offsets import commit_offsets

            for group, offsets in plan.items():
                if offsets:
                    commit_offsets(cluster, group, offsets)
    if usable and str(to_file) != "-":
        _show(plan, committed, output, execute)
    return int(failed)


def _mode(modes: Mapping[str, Any], to_file: Path | None) -> tuple[str, Any]:
    """The one mode that was given, with its value; --to-file alone is --to-current."""
    given = [name for name in _MODES if modes[name] is not None and modes[name] is not False]
    if not given and to_file is not None:
        return "to_current", True
    if len(given) != 1:
        every = ", ".join(f"--{name.replace('_', '-')}" for name in _MODES)
        raise click.UsageError(f"give {'only ' if given else ''}one of {every}")
    return given[0], modes[given[0]]


def _check_usage(
    names: tuple[str, ...], every: bool, topics: tuple[str, ...], all_topics: bool, mode: str,
    both: bool,
) -> None:  # fmt: skip
    if names and every:
        raise click.UsageError("give either GROUP or --all-groups")
    if both:
        raise click.UsageError("give only one of --execute and --dry-run")
    if mode == "from_file":
        if topics or all_topics:
            raise click.UsageError("the file says which partitions: no --topic, no --all-topics")
        return
    if not names and not every:
        raise click.UsageError("give either GROUP or --all-groups")
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")


def _parsed(mode: str, value: Any) -> Any:
    """The value of a mode; points in time as milliseconds."""
    if mode == "to_datetime":
        return parse_time_ms(value, "--to-datetime")
    if mode == "by_duration":
        return parse_time_ms(f"{value} ago", "--by-duration")
    return value


def _usable(cluster: Cluster, names: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The groups without members, the others told on stderr; and what each has committed."""
    from kbroker.client.group_offsets import committed_offsets
    from kbroker.client.groups import describe_groups

    found = describe_groups(cluster, names)
    usable = []
    for name in dict.fromkeys(names):
        refusal = active(found.get(name))
        if refusal is None:
            usable.append(name)
        else:
            say(f"kbroker: {refusal}", err=True)
    told = committed_offsets(cluster, usable)
    return usable, {
        name: {key: at.offset for key, at in offsets.items()} for name, offsets in told.items()
    }


def _targets(
    cluster: Cluster, mode: str, value: Any, keys: list[Partition], before: dict[Partition, int]
) -> dict[Partition, int]:
    """Where each partition shall go, before it is fitted to what the log holds."""
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

    def listed(at: int, wanted: list[Partition]) -> dict[Partition, int]:
        found = list_offsets(cluster, dict.fromkeys(wanted, at))
        return {key: found[key].offset for key in wanted}

    def at_time() -> dict[Partition, int]:
        found = listed(value, keys)
        later = [key for key, offset in found.items() if offset < 0]
        for topic, index in later:
            say(f"{topic}-{index}: no record that late, its end taken", err=True)
        return found | listed(LATEST, later)

    def shifted() -> dict[Partition, int]:
        for topic, index in keys:
            if (topic, index) not in before:
                raise click.ClickException(f"{topic}-{index} has no committed offset to shift")
        return {key: before[key] + value for key in keys}

    ways: dict[str, Callable[[], dict[Partition, int]]] = {
        "to_earliest": lambda: listed(EARLIEST, keys),
        "to_latest": lambda: listed(LATEST, keys),
        "to_current": lambda: (
            {key: before[key] for key in keys if key in before}
            | listed(LATEST, [key for key in keys if key not in before])
        ),
        "to_datetime": at_time,
        "by_duration": at_time,
        "shift_by": shifted,
        "to_offset": lambda: dict.fromkeys(keys, value),
    }
    return dict(sorted(ways[mode]().items()))


def _inside(cluster: Cluster, wanted: dict[Partition, int]) -> dict[Partition, int]:
    """The offsets fitted to what the logs hold; what had to be moved is told on stderr."""
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

    first = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    following = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    bounds = {key: (first[key].offset, following[key].offset) for key in wanted}
    offsets, moved = clamp(wanted, bounds)
    for line in moved:
        say(line, err=True)
    return offsets


def _show(
    plan: Plan, committed: Mapping[str, Mapping[Partition, int]], output: str, executed: bool
) -> None:
    rows = [
        {
            "group": group,
            "topic": topic,
            "partition": index,
            "committed": committed[group].get((topic, index)),
            "offset": offset,
        }
        for group, offsets in plan.items()
        for (topic, index), offset in sorted(offsets.items())
    ]
    if rows or output == "json":
        print_rows(_COLUMNS, rows, output)
    if output != "json" and not executed and rows:
        click.echo("Dry run: nothing was changed; --execute does it.", err=True)
    if output != "json" and not rows:
        click.echo("No offset to move.", err=True)
