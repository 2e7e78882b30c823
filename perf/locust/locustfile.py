"""What Locust loads: `kbroker bench locust` does, or `locust -f perf/locust/locustfile.py`, with
LOCUST_SKIP_MONKEY_PATCH=1 and from the top of the tree.

The verdict: the run fails (exit status 1) where a record that was acknowledged is not in the topic
or one that was aborted is, where pipes have copied anything but what the topic begins with, where
more than --fail-ratio of the events failed, or a p99 is above its threshold.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from argparse import ArgumentParser
from typing import Any

from gevent import monkey
from locust import LoadTestShape, events
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from kbroker.client import Admin
from kbroker.client.errors import KafkaError, TopicAlreadyExistsError
from kbroker.locust import users
from kbroker.locust.lanes import SETTINGS, read_all
from kbroker.locust.ledger import Found, Order, audit, stamp_of
from kbroker.locust.shapes import PROFILES, users_at

if not os.environ.get("LOCUST_SKIP_MONKEY_PATCH"):
    raise SystemExit("set LOCUST_SKIP_MONKEY_PATCH=1: the clients need real threads")

# By their names, as Locust looks for them.
globals().update({user.__name__: user for user in users.USERS.values()})

_AUDIT_S = 600.0
_told: dict[str, dict[str, Any]] = {}  # of each worker
_asked = threading.Event()  # to end, by SIGTERM


@events.init_command_line_parser.add_listener
def _options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("kbroker")
    add = group.add_argument
    add("--servers", default="127.0.0.1:9092", help="bootstrap.servers")
    add("--topic", default="locust", help="made when it is not there")
    add("--partitions", type=int, default=6)
    add("--load", choices=list(PROFILES), default="flat", help="the shape")
    add("--most", type=int, default=20, help="users at the peak")
    add("--for-seconds", type=float, default=60.0)
    add("--kinds", default=",".join(users.USERS), help="users, by name")
    add("--sizes", default="lognormal:200,1.0", help="bytes of a record")
    add("--keys", default="zipf:1000,1.1", help="distribution of keys, or none")
    add("--burst", type=int, default=10, help="records that are sent at once")
    add("--bursts", type=float, default=10.0, help="a second and user")
    add("--p99", type=float, default=0.0, help="most ms of produce, 99th percentile; 0: any")
    add("--p99-through", type=float, default=0.0, help="the same from end to end")
    add("--fail-ratio", type=float, default=0.0, help="most failed events, 0 to 1")


@events.init.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    options = environment.parsed_options
    wanted = [users.USERS[kind] for kind in options.kinds.split(",")]
    environment.user_classes = wanted
    if isinstance(environment.runner, WorkerRunner):
        return
    # Not thrown, as Ctrl-C is: Locust's greenlets catch that here and there, and go on. While the
    # shape runs Locust takes no SIGTERM itself.
    signal.signal(signal.SIGTERM, lambda *_: _asked.set())
    if isinstance(environment.runner, MasterRunner):
        monkey.patch_time()  # Locust sleeps until its workers have come, whom that must let in
    with Admin({**SETTINGS, "bootstrap.servers": options.servers}) as admin:
        try:
            admin.create_topic(options.topic, partitions=options.partitions)
            if users.PipeUser in wanted:
                admin.create_topic(options.topic + users.COPIES, partitions=options.partitions)
        except TopicAlreadyExistsError:
            sys.exit(f"topic {options.topic} is there already: choose another, the verdict needs"
                     " one of its own")  # fmt: skip
        except KafkaError as error:
            sys.exit(f"{options.servers}: {error}")


class Profile(LoadTestShape):  # type: ignore[misc]
    """--load over --for-seconds."""

    def tick(self) -> tuple[int, float] | None:
        if _asked.is_set():
            return None
        options = self.runner.environment.parsed_options
        return users_at(options.load, options.most, options.for_seconds, self.get_run_time())


@events.report_to_master.add_listener
def _report(data: dict[str, Any], **_: Any) -> None:
    data["sent"] = users.SENT.told()


@events.worker_report.add_listener
def _take(client_id: str, data: dict[str, Any], **_: Any) -> None:
    _told[client_id] = data.get("sent", {})


@events.quitting.add_listener
def _judge(environment: Environment, **_: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        return
    if not isinstance(environment.runner, MasterRunner):
        _told["here"] = users.SENT.told()
    faults = list(_faults(environment))
    for fault in faults:
        sys.stdout.write(f"FAILED: {fault}\n")
    sys.stdout.flush()
    environment.process_exit_code = 1 if faults else 0


def _pipe_faults(options: Any, source: Order) -> Any:
    copied = Order()
    read_all(options.servers, options.topic + users.COPIES, _AUDIT_S,
             lambda partition, value: copied.note(stamp_of(value), partition))  # fmt: skip
    sys.stdout.write(f"copied {len(copied)} of {len(source)} records\n")
    for partition in copied.strays(source):
        yield f"partition {partition} of {users.COPIES[1:]} is not what the topic begins with"


def _faults(environment: Environment) -> Any:
    """What is wrong with the run, one line each; writes what was found."""
    options, stats = environment.parsed_options, environment.stats
    found, order = Found(), Order()

    def note(partition: int, value: bytes) -> None:
        stamp = stamp_of(value)
        found.note(stamp, partition)
        order.note(stamp, partition)

    read_all(options.servers, options.topic, _AUDIT_S, note)
    result = audit(_told.values(), found)
    total = stats.total
    sys.stdout.write(
        f"acknowledged {result.acknowledged} records, lost {len(result.lost)}, twice"
        f" {result.twice}; {total.num_requests} events, {total.num_failures} failed\n"
    )
    if not result.acknowledged:
        yield "nothing was acknowledged"
    if result.lost:
        yield f"{len(result.lost)} acknowledged records are not there, first {result.lost[0]}"
    if result.twice:
        yield f"{result.twice} records are there twice"
    if found.aborted:
        yield f"{found.aborted} aborted records are there"
    if users.PipeUser in environment.user_classes:
        yield from _pipe_faults(options, order)
    if total.fail_ratio > options.fail_ratio:
        first = next(iter(stats.errors.values()), None)
        yield f"{total.fail_ratio:.2%} of the events failed, as {first and first.error}"
    for (name, client), entry in stats.entries.items():
        p99 = entry.get_response_time_percentile(0.99) or 0.0
        sys.stdout.write(f"p99 of {client} {name}: {p99:g} ms, {entry.num_requests} events\n")
        most = {"produce": options.p99, "end to end": options.p99_through}.get(name, 0.0)
        if most and p99 > most:
            yield f"p99 of {client} {name} is {p99:g} ms, above {most:g}"
