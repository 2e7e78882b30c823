"""Broker: a kbroker process for tests, with its data in a folder that goes with it.

Thread-safe but for start, stop, kill, restart and close, which belong to one thread at a time.
"""

from __future__ import annotations

import atexit
import itertools
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self

from kbroker.environment import PREFIX
from kbroker.errors import KbrokerError
from kbroker.ext.client_clock import monotonic
from kbroker.testing.home import close_home, home

if TYPE_CHECKING:
    from kbroker.client import Admin, Consumer, Producer, Record, RecordMetadata

__all__ = ["DEFAULTS", "Broker", "BrokerFailedError", "close_all", "live"]

#: Settings of a test's broker that are not the broker's own defaults. Nothing is synced to disk: a
#: power cut ends the tests as well, and kill() loses nothing that the kernel holds. Groups do not
#: wait for members that may follow, and tell them at once. Records with times of a test's own, of
#: 1970 say, stay: retention would look at them for the first time half a minute after the start.
DEFAULTS: Final[Mapping[str, str]] = {
    "kbroker.durability": "page-cache",
    "kbroker.http.listeners": "",
    "kbroker.log.format": "logfmt",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}

Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str | bytes, bytes | str | None]] | None

_OWN: Final = frozenset({"listeners", "log.dir", "log.dirs"})
_START_S: Final = 30.0
_STOP_S: Final = 30.0
_END_S: Final = 5.0  # between the end of what it says and its own
_TAIL_LINES: Final = 100
_POLL_S: Final = 0.01
_HELPER_MS: Final = 10_000  # how long produce() and its like go on trying


class BrokerFailedError(KbrokerError):
    """The broker did not start, or ended by itself; the text has the end of its log."""


class Broker:
    """A broker on a port of 127.0.0.1 that the kernel picks; `with` starts and ends it.

    settings: Kafka's names, in a mapping with dots or as keyword arguments with underscores;
    they win over DEFAULTS.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **more: object) -> None:
        self.settings: dict[str, str] = {**DEFAULTS, **told_settings(settings or {}, more)}
        self.folder = home().new_folder()
        self.data_dir = self.folder / "data"
        self.port = 0
        self._log = self.folder / "broker.log"
        self._log_mark = 0
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._clients_lock = threading.Lock()
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._numbers = itertools.count(1)
        live.append(self)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the process

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT; it stays over restart() and kill()."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the broker process."""
        return self._running().pid

    def is_running(self) -> bool:
        """False after stop() and kill(), and where it has ended by itself."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when the broker serves: on a port of the kernel's first, then on the same."""
        if self.is_running():
            raise BrokerFailedError("the broker runs already; restart() stops it first")
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                cwd=self.folder, process_group=home().group(), env=_environment(),
            )  # fmt: skip
        try:
            line = _first_line(process)
            if not line:
                raise BrokerFailedError(self._why_ended(process))
        except BaseException:
            self.kill()
            raise
        self.port = int(line.rpartition(b":")[2])

    def _command(self) -> list[str]:
        told = {
            **self.settings,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir),
        }
        options = [word for name, value in told.items() for word in ("--set", f"{name}={value}")]
        # -P: a folder `kbroker` where the tests run is not the broker.
        return [sys.executable, "-P", "-X", "faulthandler", "-m", "kbroker.server", *options]

    def stop(self) -> None:
        """Ends it in order: what is in flight is answered, all is written."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            if _status(process, _STOP_S) is None:
                text = f"the broker did not stop within {_STOP_S:g} s:\n{self.log()}"
                raise BrokerFailedError(text)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, as a crash; start() or restart() takes the data up again on the same port."""
        process, self._process = self._process, None
        if process is not None and os.getpid() == self._pid:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def restart(self) -> None:
        """Stops it where it runs, and starts it again with the same data on the same port."""
        if self.is_running():
            self.stop()
        self.start()

    def check(self) -> None:
        """Raises BrokerFailedError where it has ended though nobody told it to."""
        if self._process is not None and self._process.poll() is not None:
            raise BrokerFailedError(self._why_ended(self._process))

    def close(self) -> None:
        """Kills it and removes its folder. A second time does nothing."""
        if self in live:
            live.remove(self)
        if os.getpid() != self._pid:
            return
        with self._clients_lock:
            if self._producer is not None:
                self._producer.close(0)
            if self._admin is not None:
                self._admin.close()
            self._producer = self._admin = None
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _running(self) -> subprocess.Popen[bytes]:
        self.check()
        if self._process is None:
            raise BrokerFailedError("the broker does not run now; start() or restart() it")
        return self._process

    def _why_ended(self, process: subprocess.Popen[bytes]) -> str:
        status = _status(process, _END_S)
        if status is None:
            return f"the broker does not serve after {_START_S:g} s:\n{self.log()}"
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        return f"the broker ended with {how}:\n{self.log() or '(it said nothing)'}"

    # ---- its log

    def log(self, lines: int = _TAIL_LINES) -> str:
        """The last lines that the broker wrote, over all its starts."""
        return _tail(self._log_from(0), lines)

    def mark_log(self) -> None:
        """log_since_mark() gives what comes from now on."""
        if self._log.exists():
            self._log_mark = self._log.stat().st_size

    def log_since_mark(self) -> str:
        """The last lines since mark_log(), or since the beginning."""
        return _tail(self._log_from(self._log_mark), _TAIL_LINES)

    def _log_from(self, position: int) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(position)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    # ---- topics and records

    def topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Creates a topic, and gives its name: one of its own unless told."""
        self._running()
        made = name or f"topic-{next(self._numbers)}"
        self._admin_client().create_topic(made, partitions=partitions, configs=configs)
        return made

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        partition: int | None = None,
        headers: Headers = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Writes one record and returns when it is acknowledged. A str is encoded as UTF-8; a topic
        that does not exist is created, as brokers do."""
        self._running()
        delivery = self._producer_client().send(
            topic, _bytes(value), _bytes(key),
            partition=partition, headers=headers, timestamp_ms=timestamp_ms,
        )  # fmt: skip
        return delivery.result()

    def records(
        self, topic: str, count: int | None = None, *, timeout_s: float = 10.0
    ) -> list[Record]:
        """What a topic holds, by partition and offset. With `count` it waits until there are so
        many, for a topic that is still to be created, too; TimeoutError tells how many there are.
        """
        self._running()
        deadline = monotonic() + timeout_s
        ends = self._ends(topic, None if count is None else deadline)
        from kbroker.client import Consumer

        found: list[Record] = []
        with Consumer(
            bootstrap_servers=self.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(ends)
            while not _is_enough(consumer, found, ends, count):
                left_s = deadline - monotonic()
                if left_s <= 0:
                    wanted = "all of them" if count is None else str(count)
                    raise TimeoutError(
                        f"topic {topic!r}: {len(found)} records after {timeout_s:g} s, not {wanted}"
                    )
                found += consumer.poll(min(left_s, 0.1))
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def produce_async(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        partition: int | None = None,
        headers: Headers = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """produce() without holding up the event loop."""
        import asyncio

        return await asyncio.to_thread(
            self.produce, topic, value, key,
            partition=partition, headers=headers, timestamp_ms=timestamp_ms,
        )  # fmt: skip

    async def records_async(
        self, topic: str, count: int | None = None, *, timeout_s: float = 10.0
    ) -> list[Record]:
        """records() without holding up the event loop, on which the records may have to be made."""
        import asyncio

        return await asyncio.to_thread(self.records, topic, count, timeout_s=timeout_s)

    def _ends(self, topic: str, deadline: float | None) -> dict[tuple[str, int], int]:
        """The end of each partition; waits for the topic where there is a deadline."""
        from kbroker.client.errors import UnknownTopicOrPartitionError
        from kbroker.client.offsets import LATEST

        admin = self._admin_client()
        while True:
            try:
                info = admin.describe_topics([topic])[topic]
                break
            except UnknownTopicOrPartitionError:
                if deadline is None or monotonic() > deadline:
                    raise
                time.sleep(0.05)
        wanted = {(topic, part.index): LATEST for part in info.partitions}
        return {where: found.offset for where, found in admin.list_offsets(wanted).items()}

    def _admin_client(self) -> Admin:
        from kbroker.client import Admin

        with self._clients_lock:
            if self._admin is None:
                self._admin = Admin(
                    bootstrap_servers=self.bootstrap_servers, default_api_timeout_ms=_HELPER_MS
                )
            return self._admin

    def _producer_client(self) -> Producer:
        from kbroker.client import Producer

        with self._clients_lock:
            if self._producer is None:
                self._producer = Producer(
                    bootstrap_servers=self.bootstrap_servers, linger_ms=0,
                    max_block_ms=_HELPER_MS, delivery_timeout_ms=_HELPER_MS,
                    request_timeout_ms=_HELPER_MS // 2,
                )  # fmt: skip
            return self._producer


#: Brokers of this process that are not closed.
live: list[Broker] = []


@atexit.register
def close_all() -> None:
    """Ends every broker of this process; none of it, where this is a fork."""
    for broker in list(live):
        broker.close()
    close_home()


def told_settings(settings: Mapping[str, object], more: Mapping[str, object]) -> dict[str, str]:
    """Settings as the broker reads them. Raises ValueError for those that are not free."""
    told = {**settings, **{name.replace("_", "."): value for name, value in more.items()}}
    own = sorted(_OWN & told.keys())
    if own:
        raise ValueError(f"{', '.join(own)}: a test's broker has its own port and folder")
    return {name: _text(value) for name, value in told.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _tail(text: str, lines: int) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _status(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Return the exit status, or None after timeout_s, whatever a test has done to Python's
    clocks."""
    deadline = monotonic() + timeout_s
    while process.poll() is None and monotonic() < deadline:
        time.sleep(_POLL_S)
    return process.returncode


def _environment() -> dict[str, str]:
    """Variables of the broker: those of a shell that are settings are none of the fixture's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def _first_line(process: subprocess.Popen[bytes]) -> bytes:
    """`listening on PLAINTEXT://HOST:PORT`, which comes when it serves; empty where it ended, or
    said nothing in time."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    waiting = select.poll()  # select() knows no descriptors beyond 1,023
    waiting.register(descriptor, select.POLLIN)
    deadline = monotonic() + _START_S
    said = b""
    while b"\n" not in said:
        left_s = deadline - monotonic()
        if left_s <= 0 or not waiting.poll(left_s * 1000):
            return b""
        part = os.read(descriptor, 4096)
        if not part:
            return b""
        said += part
    return said.partition(b"\n")[0]


def _is_enough(
    consumer: Consumer,
    found: list[Record],
    ends: Mapping[tuple[str, int], int],
    count: int | None,
) -> bool:
    if count is not None:
        return len(found) >= count
    return all(end == 0 or consumer.position(where) >= end for where, end in ends.items())
