"""`kbroker bench locust`: Locust's users on a broker, in a shape, with a verdict.

The users are `kbroker.locust`, perf/locust in the source tree; this runs Locust on them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

import click

from kbroker.cli.options import Real, address_option, client_settings, open_cluster
from kbroker.errors import OperatorError

_PROFILES = ("flat", "step", "spike", "soak")
_KINDS = (
    "producer", "confluent-producer", "transactional", "confluent-transactional", "pipe",
    "consumer", "confluent-consumer", "slow", "vanishing", "churn",
)  # fmt: skip
"""The names of `kbroker.locust.users`, which only Locust's process imports."""
_COME_S = 120
"""Until all processes are there."""
_END_S = 60.0
"""Until they have ended when all is told."""
_UNITS = {"s": 1, "m": 60, "h": 3600}
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _PassedOn:
    """Within it a signal that would end this command is passed on to the processes in `to`: by the
    first one Locust ends and tells its verdict, the second one ends it where it is.

    asked: the last one, 0 for none.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.to: Sequence[subprocess.Popen[bytes]] = ()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _ENDS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                self._before[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        for process in self.to:
            process.send_signal(signal.SIGKILL if self.asked else signal.SIGTERM)
        self.asked = number

    def run(self, command: Sequence[str], environment: dict[str, str]) -> int:
        """Locust's exit status; that of a signal that came before there was a Locust."""
        if not self.asked:
            process = _started(command, environment)
            self.to = [process]
            if not self.asked:
                return _status(process.wait())
            process.terminate()
            process.wait()
        return 128 + self.asked


def _started(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process of Locust's in a group of its own: Ctrl-C on a terminal is passed on to it, and
    would reach it twice in this one. So it reads no keys, for which it would be stopped."""
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)


def _status(ended: int) -> int:
    """As a shell tells it: 128 and its number where a signal ended the process."""
    return ended if ended >= 0 else 128 - ended


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if found is None or not float(found[1]):
        raise click.BadParameter(f"{value!r}: write 60s, 5m or 1h")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _kinds(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    for kind in value.split(",") if value is not None else ():
        if kind not in _KINDS:
            raise click.BadParameter(f"{kind!r} is none of {', '.join(_KINDS)}")
    return value


def _distribution(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from kbroker.locust.draws import draw  # type: ignore[import-not-found]  # perf is not checked

    if value is not None and (param.name, value) != ("keys", "none"):
        try:
            draw(value, random.Random(0))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return value


@click.command()
@address_option
@click.option("--profile", type=click.Choice(_PROFILES), default="flat", show_default=True,
              help="Shape of the load: all users at once, in five steps, with a peak in the middle,"
              " or brought in slowly and kept.")
@click.option("--for", "seconds", default="60s", show_default=True, callback=_seconds,
              metavar="TIME", help="How long: 60s, 5m, 1h.")
@click.option("--users", "-u", type=click.IntRange(1), default=20, show_default=True,
              help="At the peak.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True,
              help="Of Locust; with more than one, one more that counts.")
@click.option("--kinds", metavar="KIND[,...]", callback=_kinds,
              help=f"Of users: {', '.join(_KINDS)}. Default: all.")
@click.option("--sizes", metavar="DISTRIBUTION", callback=_distribution,
              help="Bytes of a record: fixed:N, uniform:A-B, lognormal:MEDIAN,SIGMA."
              " Default: lognormal:200,1.0.")
@click.option("--keys", metavar="DISTRIBUTION", callback=_distribution,
              help="zipf:COUNT,EXPONENT, uniform:A-B, fixed:N or none. Default: zipf:1000,1.1.")
@click.option("--bursts", type=Real(0, min_open=True), metavar="RATE",
              help="A second and producer. Default: 10.")
@click.option("--burst", type=click.IntRange(1), metavar="RECORDS",
              help="Sent at once. Default: 10.")
@click.option("--p99", type=Real(0), metavar="MS",
              help="Fail above this 99th percentile of produce.")
@click.option("--p99-through", type=Real(0), metavar="MS",
              help="The same from send to poll.")
@click.option("--fail-ratio", type=Real(0, 1), metavar="SHARE",
              help="Fail above this share of failed events. Default: 0.")
@click.option("--csv", metavar="PREFIX", help="Write Locust's tables there.")
@click.option("--web", type=click.IntRange(1, 65535), metavar="PORT",
              help="Show Locust's page on this port of 127.0.0.1, and go on until Ctrl-C.")
def locust(
    bootstrap: str | None,
    profile: str,
    seconds: float,
    users: int,
    processes: int,
    csv: str | None,
    web: int | None,
    **given: Any,
) -> int:
    """Load a broker with Locust: producers and consumers of two clients, with and without
    transactions, slow and vanishing ones.

    Exit status 1: an acknowledged record was lost, an aborted one seen, or a threshold was passed.
    The topic is one of its own, and is deleted after a run that passed.
    """
    settings = client_settings(bootstrap)
    topic = f"kbroker-locust-{os.urandom(6).hex()}"
    told = {
        "servers": settings.pop("bootstrap.servers"), "topic": topic, "load": profile,
        "for-seconds": seconds, "most": users, **given,
    }  # fmt: skip
    command = [sys.executable, "-m", "locust", "-f", str(_locustfile())]
    for name, value in told.items():
        if value is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    page = ["--web-host", "127.0.0.1", "--web-port", str(web)] if web else ["--headless"]
    page += ["--csv", csv] if csv else []
    environment = dict(os.environ, LOCUST_SKIP_MONKEY_PATCH="1")
    environment["KBROKER_LOCUST_SETTINGS"] = json.dumps(settings)
    with _PassedOn() as signals:
        if processes == 1:
            status = signals.run([*command, *page], environment)
        else:
            status = _distributed(signals, command, page, processes, environment)
    if status == 0:
        _forget(bootstrap, topic)
    return status


def _locustfile() -> Path:
    """The users. Raises OperatorError where what they need is missing."""
    for name in ("locust", "confluent_kafka"):
        if importlib.util.find_spec(name) is None:
            raise OperatorError(f"{name} is missing: pip install 'kbroker[locust]'")
    users = importlib.util.find_spec("kbroker.locust.locustfile")
    assert users is not None and users.origin is not None
    return Path(users.origin)


def _distributed(
    signals: _PassedOn,
    command: list[str],
    page: list[str],
    workers: int,
    environment: dict[str, str],
) -> int:
    """Processes that load, and one more that counts. Not by Locust's own --processes: its forks
    need gevent in place of the standard library, and it does not wait until they have ended."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = str(one.getsockname()[1])
    master = [*command, *page, "--master", "--master-bind-host", "127.0.0.1",
              "--master-bind-port", port, "--expect-workers", str(workers),
              "--expect-workers-max-wait", str(_COME_S)]  # fmt: skip
    worker = [*command, "--worker", "--master-host", "127.0.0.1", "--master-port", port]
    # A signal is the master's, which has them report before they end; theirs when it is gone.
    loading = [_started(worker, environment) for _ in range(workers)]
    status = 1
    try:
        status = signals.run(master, environment)
    finally:
        signals.to = loading
        for process in loading:
            try:
                process.wait(_END_S if status == 0 else _END_S / 6)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return status


def _forget(bootstrap: str | None, topic: str) -> None:
    """The topic, those that churn left, and the groups."""
    from kbroker.client.admin import delete_topics
    from kbroker.client.errors import KafkaError
    from kbroker.client.groups import delete_groups, list_groups

    try:
        with open_cluster(bootstrap) as cluster:
            names = [one.name for one in cluster.topics() if one.name.startswith(topic)]
            delete_topics(cluster, names).checked()
            groups = [listing.group_id for listing in list_groups(cluster)]
            delete_groups(cluster, [name for name in groups if name.startswith(topic)])
    except KafkaError as error:
        click.echo(f"kbroker: something of {topic} is left behind: {error}", err=True)
