"""`kbroker bench`: produce, consume, e2e. Each in a topic of its own, which is deleted after."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kbroker.cli.options import (
    SECONDS,
    Real,
    bootstrap_option,
    client_settings,
    open_cluster,
    output_option,
    settings_option,
)

if TYPE_CHECKING:
    from kbroker.cli.bench_figures import Live, Meter
    from kbroker.cli.bench_load import Load
    from kbroker.client.cluster import Cluster

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_RECORDS = 1_000_000
_ALL = 1 << 62
_E2E_RATE, _E2E_S = 1000.0, 10.0
_STAMP_BYTES = 16  # bench_through.STAMP_BYTES, which --help does not load
_SIZE_MAX = 100 << 20  # of what a broker takes as a request, unless told otherwise
_STOPPED = 130
_DELETE_S = 5.0
_SENDING = {
    "acks": "acks",
    "compression": "compression.type",
    "batch_size": "batch.size",
    "linger": "linger.ms",
}


class Place(NamedTuple):
    """Where is measured. own: the topic was made for it."""

    cluster: Cluster
    topic: str
    partitions: int
    own: bool


def _options(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_common = _options(
    bootstrap_option,
    click.option("--topic", "-t", metavar="TOPIC",
                 help="A topic that is there, and stays. Default: one of its own, deleted after."),
    click.option("--partitions", "-p", type=click.IntRange(1), default=6, show_default=True,
                 help="Of its own topic."),
    click.option("--replicas", "-r", type=click.IntRange(1), help="Of its own topic."),
    click.option("--records", "-n", type=click.IntRange(1), help="End after so many."),
    click.option("--duration", "-d", type=SECONDS, metavar="SECONDS",
                 help="End after so long."),
    settings_option,
    output_option,
)  # fmt: skip
_sending = _options(
    click.option("--rate", type=Real(0, min_open=True), metavar="RECORDS/S",
                 help="Send no faster than this."),
    click.option("--acks", type=click.Choice(["0", "1", "all"]), help="Default: all."),
    click.option("--compression", "-z", type=click.Choice(["none", "gzip", "snappy", "lz4",
                 "zstd"]), help="Default: none."),
    click.option("--batch-size", type=click.IntRange(0), metavar="BYTES", help="batch.size."),
    click.option("--linger", type=click.IntRange(0), metavar="MS", help="linger.ms."),
)  # fmt: skip
_one_by_one = click.option(
    "--one-by-one", is_flag=True, help="By send() or poll() instead of send_batch(), poll_batch()."
)


def _size(least: int) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--record-size", "-s", "size", type=click.IntRange(least, _SIZE_MAX), default=100,
        show_default=True, metavar="BYTES", help="Of a record's value.",
    )  # fmt: skip


@click.command()
@_common
@_size(0)
@_sending
@click.option("--keys", type=click.IntRange(0), default=0, help="With so many different keys.")
@_one_by_one
def produce(output: str, bootstrap: str | None, size: int, **given: Any) -> int:
    """Measure how fast records are sent and acknowledged.

    Latency is from send to acknowledgement, with --rate from when a record was due. Without
    --records and --duration: a million records.
    """
    from kbroker.cli.bench_work import produce as work
    from kbroker.client.producer import Producer

    settings = client_settings(bootstrap, kind="producer") | _chosen(given)
    with _place(bootstrap, given) as place:
        load = _load(place, size, given)
        with Producer(settings) as producer:
            with _measuring() as (meter, live):
                work(load, producer, meter, live)
            if meter.stopped:
                producer.purge()
    what = {"acks": settings.get("acks", "all"), **_codec(settings), "rate": load.rate}
    return _report("produce", load, place, meter, output, what)


@click.command()
@_common
@_size(0)
@click.option("--group", is_flag=True, help="As the member of a group, with commits.")
@_one_by_one
def consume(output: str, bootstrap: str | None, size: int, group: bool, **given: Any) -> int:
    """Measure how fast records are read.

    Latency is that of a look for more records (poll). Its own topic is filled with --records
    records first, a million unless told; of a topic that is there, all are read.
    """
    from kbroker.cli.bench_work import consume as work
    from kbroker.cli.bench_work import fill
    from kbroker.client.consumer import Consumer

    settings = client_settings(bootstrap, kind="consumer") | {"auto.offset.reset": "earliest"}
    if group:
        settings["group.id"] = _made_up()
    with _place(bootstrap, given) as place:
        if not place.own and given["records"] is None:
            given["records"] = _ALL
        load = _load(place, size, given, fills=place.own)
        if place.own:
            fill(load, client_settings(bootstrap, kind="producer"))
        with Consumer(settings) as consumer, _measuring() as (meter, live):
            where = [(place.topic, index) for index in range(place.partitions)]
            if group:
                consumer.subscribe([place.topic])
            else:
                consumer.assign(where)
            work(load, consumer, where, meter, live)
        if group:
            _forget(place.cluster, settings["group.id"])
    return _report("consume", load, place, meter, output, {"group": group})


@click.command()
@_common
@_size(_STAMP_BYTES)
@_sending
def e2e(output: str, bootstrap: str | None, size: int, **given: Any) -> int:
    """Measure how long records take from send() until poll() gives them, at a rate.

    Without --rate: 1000 a second; without --records and --duration: for 10 seconds; without
    --linger: linger.ms=0.
    """
    from kbroker.cli.bench_through import pass_through
    from kbroker.client.consumer import Consumer
    from kbroker.client.producer import Producer

    given["rate"] = given["rate"] or _E2E_RATE
    if given["records"] is None and given["duration"] is None:
        given["duration"] = _E2E_S
    sending = {"linger.ms": "0"} | client_settings(bootstrap, kind="producer") | _chosen(given)
    reading = client_settings(bootstrap, kind="consumer")
    reading.pop("group.id", None)
    with _place(bootstrap, given) as place:
        load = _load(place, size, given)
        with Consumer(reading) as consumer, Producer(sending) as producer:
            with _measuring() as (meter, live):
                pass_through(load, producer, consumer, place.partitions, meter, live)
            if meter.stopped:
                producer.purge()
    what = {"acks": sending.get("acks", "all"), **_codec(sending), "rate": load.rate}
    return _report("e2e", load, place, meter, output, what)


def _chosen(given: Mapping[str, Any]) -> dict[str, str]:
    """The producer's settings that options name."""
    return {
        name: str(given[option]) for option, name in _SENDING.items() if given[option] is not None
    }


def _codec(settings: Mapping[str, str]) -> dict[str, str]:
    return {"compression": settings.get("compression.type", "none")}


def _load(place: Place, size: int, given: Mapping[str, Any], *, fills: bool = False) -> Load:
    """fills: so many records are put into the topic before, whatever ends the measurement."""
    from kbroker.cli.bench_load import Load

    records, duration = given["records"], given["duration"]
    if records is None and (fills or duration is None):
        records = _RECORDS
    return Load(
        place.topic, size, records, duration, given.get("rate"), given.get("keys", 0),
        given.get("one_by_one", False),
    )  # fmt: skip


def _made_up() -> str:
    return f"kbroker-bench-{os.urandom(6).hex()}"


@contextlib.contextmanager
def _place(bootstrap: str | None, given: Mapping[str, Any]) -> Iterator[Place]:
    """The topic that was named, or a new one that is deleted at the end, whatever happened."""
    from kbroker.client.admin import create_topic, delete_topics
    from kbroker.client.errors import KafkaError

    with open_cluster(bootstrap) as cluster, _terminable():
        if given["topic"] is not None:
            there = cluster.topic(given["topic"])
            yield Place(cluster, there.name, len(there.partitions), False)
            return
        name, partitions = _made_up(), given["partitions"]
        create_topic(
            cluster, name, partitions=partitions, replication_factor=given["replicas"] or -1
        )
        try:
            yield Place(cluster, name, partitions, True)
        finally:
            try:
                with open_cluster(bootstrap, timeout_s=_DELETE_S) as fresh:
                    delete_topics(fresh, [name]).checked()
            except KafkaError as error:
                click.echo(f"kbroker: topic {name} is left behind: {error}", err=True)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does, so that nothing is left behind."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _measuring() -> Iterator[tuple[Meter, Live]]:
    """A measurement; Ctrl-C ends it, and what was counted until then stands."""
    from kbroker.cli.bench_figures import Live, Meter

    meter = Meter()
    live = Live(meter)
    try:
        yield meter, live
    except KeyboardInterrupt:
        meter.stopped = True
    finally:
        meter.end()
        live.clear()


def _forget(cluster: Cluster, group: str) -> None:
    from kbroker.client.errors import KafkaError
    from kbroker.client.groups import delete_groups

    with contextlib.suppress(KafkaError):
        delete_groups(cluster, [group])


def _report(
    work: str, load: Load, place: Place, meter: Meter, output: str, what: Mapping[str, Any]
) -> int:
    from kbroker.cli.bench_figures import report

    told = {
        "bench": work,
        "topic": place.topic,
        "partitions": place.partitions,
        "record_size": load.size if place.own or work != "consume" else None,
        "one_by_one": load.one_by_one if work != "e2e" else None,
        **what,
    }
    report(told, meter, "poll" if work == "consume" else "latency", output)
    if meter.stopped:
        return _STOPPED
    return 1 if meter.errors else 0
