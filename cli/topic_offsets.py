"""`kbroker topic trim` and `kbroker topic offsets`."""

from __future__ import annotations

import click

from kbroker.cli.options import bootstrap_option, open_cluster, output_option
from kbroker.cli.render import Column, print_rows, say
from kbroker.cli.when import TIME_FORMS, parse_time_ms

_COLUMNS = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("log_start_offset", "FIRST", number=True),
    Column("log_end_offset", "NEXT", number=True),
    Column("records", "RECORDS", number=True),
]
_OFFSET_DIGITS_MAX = 19  # of an int64
_AT_TIME = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("offset", "OFFSET", number=True),
    Column("timestamp", "TIMESTAMP", number=True),
]


@click.command()
@click.argument("names", metavar="[TOPIC...]", nargs=-1)
@bootstrap_option
@output_option
@click.option("--partition", "-p", type=click.IntRange(0), help="This partition alone.")
@click.option("--at", metavar="TIME", help=f"First offset at or after TIME: {TIME_FORMS}.")
def offsets(
    names: tuple[str, ...],
    bootstrap: str | None,
    output: str,
    partition: int | None,
    at: str | None,
) -> None:
    """Show first and next offsets, or those at a time."""
    at_ms = None if at is None else parse_time_ms(at, "--at")
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

        topics = [cluster.topic(name) for name in names] or cluster.topics(internal=False)
        wanted = [
            (topic.name, part.index)
            for topic in topics
            for part in topic.partitions
            if partition is None or part.index == partition
        ]
        if partition is not None and not wanted:
            raise click.UsageError(f"no topic here has a partition {partition}")
        if at_ms is not None:
            found = list_offsets(cluster, dict.fromkeys(wanted, at_ms))
            rows = [
                {
                    "topic": topic,
                    "partition": index,
                    "offset": None
                    if found[topic, index].offset < 0
                    else found[topic, index].offset,
                    "timestamp": None
                    if found[topic, index].timestamp_ms < 0
                    else found[topic, index].timestamp_ms,
                }
                for topic, index in wanted
            ]
            print_rows(_AT_TIME, rows, output)
            return
        first = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
        following = list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    print_rows(
        _COLUMNS,
        [
            {
                "topic": topic,
                "partition": index,
                "log_start_offset": first[topic, index].offset,
                "log_end_offset": following[topic, index].offset,
                "records": following[topic, index].offset - first[topic, index].offset,
            }
            for topic, index in wanted
        ],
        output,
    )


@click.command()
@click.argument("name", metavar="TOPIC")
@bootstrap_option
@click.option(
    "--offset",
    "-o",
    required=True,
    metavar="N|end|@TIME",
    help="First offset to keep: a number, `end` (keep nothing), or the first at or after TIME:"
    f" {TIME_FORMS}.",
)
@click.option(
    "--partition", "-p", "partitions", type=click.IntRange(0), multiple=True, help="These alone."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def trim(
    name: str, bootstrap: str | None, offset: str, partitions: tuple[int, ...], dry_run: bool
) -> None:
    """Delete the oldest records of a topic, in all its partitions or those given."""
    at_ms = parse_time_ms(offset[1:], "--offset") if offset.startswith("@") else None
    number = offset.isascii() and offset.isdigit() and len(offset) <= _OFFSET_DIGITS_MAX
    if at_ms is None and offset != "end" and not number:
        raise click.BadParameter(
            f"{offset!r}: write a number, end, or @TIME", param_hint="--offset"
        )
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin import delete_records
        from kbroker.client.offsets import EARLIEST, LATEST, leader_of, list_offsets

        indexes = list(partitions) or [part.index for part in cluster.topic(name).partitions]
        every = [(name, index) for index in indexes]
        for _, index in every:
            leader_of(cluster, name, index)  # tells of a partition that is none
        first = list_offsets(cluster, dict.fromkeys(every, EARLIEST))
        following = list_offsets(cluster, dict.fromkeys(every, LATEST))
        if at_ms is not None:
            at = list_offsets(cluster, dict.fromkeys(every, at_ms))
            before = {
                key: found.offset if found.offset >= 0 else following[key].offset
                for key, found in at.items()
            }
        elif offset == "end":
            before = {key: following[key].offset for key in every}
        else:
            before = dict.fromkeys(every, int(offset))
        for (_, index), upto in before.items():
            if upto > following[name, index].offset:
                raise click.ClickException(
                    f"offset {upto} is beyond the end of {name}-{index},"
                    f" which goes on at {following[name, index].offset}"
                )
        before = {key: upto for key, upto in before.items() if upto > first[key].offset}
        if not dry_run and before:
            before = dict(delete_records(cluster, before))
    would = "would start" if dry_run else "starts"
    for key in every:
        upto = before.get(key, first[key].offset)
        gone = max(0, upto - first[key].offset)
        say(f"{name}-{key[1]} {would} at {upto}, {gone} records fewer")
