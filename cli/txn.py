"""`kbroker txn`: list, describe, find-hanging, abort."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.options import bootstrap_option, one_of, open_cluster, output_option
from kbroker.cli.render import Column, print_rows, say

if TYPE_CHECKING:
    from kbroker.client.admin_transactions import ProducerState, TransactionDescription
    from kbroker.client.cluster import Cluster
    from kbroker.client.partitions import TopicPartition

_MS_PER_S = 1000
_MS_PER_MINUTE = 60_000
_INT64_MAX = 2**63 - 1
# The longest timeout that a broker grants unless told otherwise, and the broker's own grace.
_HANGING_AFTER_MINUTES = 15

_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""A transaction that has ended keeps the time of its beginning until the next one."""

_LISTING = [
    Column("transactional_id", "TRANSACTIONAL ID"),
    Column("coordinator", "COORDINATOR", number=True, wide=True),
    Column("producer_id", "PRODUCER", number=True),
    Column("state", "STATE"),
]
_DESCRIPTION = [
    Column("transactional_id", "TRANSACTIONAL ID"),
    Column("coordinator", "COORDINATOR", number=True, wide=True),
    Column("producer_id", "PRODUCER", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("state", "STATE"),
    Column("timeout_ms", "TIMEOUT MS", number=True),
    Column("open_ms", "OPEN MS", number=True),
    Column("partitions", "PARTITIONS"),
]
_HANGING = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("producer_id", "PRODUCER", number=True),
    Column("producer_epoch", "EPOCH", number=True),
    Column("coordinator_epoch", "COORDINATOR EPOCH", number=True),
    Column("start_offset", "FROM OFFSET", number=True),
    Column("quiet_s", "QUIET S", number=True),
]


@click.command()
@click.argument("pattern", required=False)
@bootstrap_option
@output_option
@click.option("--state", "-s", "states", metavar="STATE", multiple=True, callback=one_of(_STATES),
              help="Only those in it, as Ongoing, CompleteCommit.")  # fmt: skip
@click.option("--producer", "producers", type=click.IntRange(0, _INT64_MAX), metavar="ID",
              multiple=True, help="Of this producer id alone.")
@click.option("--longer-than", "longer_ms", type=click.IntRange(0, _INT64_MAX), metavar="MS",
              help="Open for longer than this alone.")  # fmt: skip
def list_all(
    pattern: str | None,
    bootstrap: str | None,
    output: str,
    states: tuple[str, ...],
    producers: tuple[int, ...],
    longer_ms: int | None,
) -> None:
    """List transactional ids; PATTERN, a regular expression, names them as a whole."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_transactions import list_transactions

        found = list_transactions(
            cluster,
            states=states or (() if longer_ms is None else _OPEN),
            producer_ids=producers,
            longer_than_ms=-1 if longer_ms is None else longer_ms,
            pattern=pattern,
        )
    print_rows(_LISTING, [_fields(one, _LISTING) for one in found], output)


def _fields(value: Any, columns: Iterable[Column]) -> dict[str, Any]:
    return {column.key: getattr(value, column.key) for column in columns}


@click.command()
@click.argument("names", metavar="TRANSACTIONAL_ID...", nargs=-1, required=True)
@bootstrap_option
@output_option
def describe(names: tuple[str, ...], bootstrap: str | None, output: str) -> int:
    """Show producer, state and partitions of transactional ids."""
    failed = 0
    rows = []
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_transactions import describe_transactions
        from kbroker.client.errors import BrokerError

        found = describe_transactions(cluster, list(dict.fromkeys(names)))
        for name in found:
            try:
                rows.append(_described(found[name]))
            except BrokerError as error:
                say(f"kbroker: {error}", err=True)
                failed = 1
    print_rows(_DESCRIPTION, rows, output)
    return failed


def _described(found: TransactionDescription) -> dict[str, Any]:
    now_ms = int(time.time() * _MS_PER_S)
    own = ("open_ms", "partitions")
    is_open = found.state in _OPEN and found.start_ms is not None
    return {
        **_fields(found, [column for column in _DESCRIPTION if column.key not in own]),
        "open_ms": now_ms - (found.start_ms or 0) if is_open else None,
        "partitions": [f"{one.topic}-{one.partition}" for one in found.partitions],
    }


@click.command("find-hanging")
@click.argument("topic", metavar="[TOPIC]", required=False)
@bootstrap_option
@output_option
@click.option("--partition", "-p", type=click.IntRange(0), help="This partition of TOPIC alone.")
@click.option("--quiet-for", "quiet_minutes", type=click.IntRange(0), metavar="MINUTES",
              default=_HANGING_AFTER_MINUTES, show_default=True,
              help="Transactions without a record for so long.")  # fmt: skip
def find_hanging(
    topic: str | None, bootstrap: str | None, output: str, partition: int | None, quiet_minutes: int
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition wants a TOPIC")
    now_ms = int(time.time() * _MS_PER_S)
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_transactions import hanging_transactions

        wanted = _partitions(cluster, topic, partition)
        found = hanging_transactions(cluster, wanted, now_ms - quiet_minutes * _MS_PER_MINUTE)
    rows = [_hanging(where, state, now_ms) for where, state in found]
    print_rows(_HANGING, rows, output)


def _partitions(
    cluster: Cluster, topic: str | None, partition: int | None
) -> list[tuple[str, int]]:
    if topic is not None and partition is not None:
        return [(topic, partition)]
    names = [topic] if topic is not None else [one.name for one in cluster.topics()]
    return [(name, index) for name in names for index in _indexes(cluster, name)]


def _indexes(cluster: Cluster, name: str) -> Iterator[int]:
    yield from range(len(cluster.topic(name).partitions))


def _hanging(where: TopicPartition, state: ProducerState, now_ms: int) -> dict[str, Any]:
    return {
        "topic": where.topic,
        "partition": where.partition,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch,
        "start_offset": state.transaction_start_offset,
        "quiet_s": (now_ms - state.last_timestamp_ms) // _MS_PER_S,
    }


@click.command()
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(0))
@bootstrap_option
@click.option("--start-offset", type=click.IntRange(0), help="The transaction that begins here.")
@click.option("--producer", type=click.IntRange(0), help="The transaction of this producer id.")
@click.option("--dry-run", is_flag=True, help="Only say what would be aborted.")
def abort(
    topic: str,
    partition: int,
    bootstrap: str | None,
    start_offset: int | None,
    producer: int | None,
    dry_run: bool,
) -> None:
    """End a transaction in a partition by an abort marker, past its coordinator."""
    if (start_offset is None) == (producer is None):
        raise click.UsageError("give either --start-offset or --producer")
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_transactions import abort_transaction, describe_producers

        where = (topic, partition)
        (states,) = describe_producers(cluster, [where]).checked().values()
        for state in states:
            if state.transaction_start_offset is None:
                continue
            if start_offset in (None, state.transaction_start_offset) and producer in (
                None,
                state.producer_id,
            ):
                if not dry_run:
                    abort_transaction(cluster, where, state)
                say(
                    f"transaction of producer {state.producer_id} from offset "
                    f"{state.transaction_start_offset} on {'would be ' if dry_run else ''}aborted"
                    f" in {topic}-{partition}"
                )
                return
    raise click.ClickException(f"no such transaction is open in {topic}-{partition}")
