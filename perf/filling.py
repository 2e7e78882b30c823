"""Logs of a coordinator's topic, filled from outside while the broker is stopped, and loaded."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable

from kbroker.ext.log import Log
from perf import admin
from tests.support.logs import CONFIG
from tests.support.processes import BrokerProcess

SEGMENT_BYTES = 100 << 20
PAUSE_S = 0.005


class Filling:
    """The partitions of a topic in a broker's directory, which are clean when this is closed."""

    def __init__(self, process: BrokerProcess, topic: str) -> None:
        self._process = process
        self._topic = topic
        self._logs: dict[int, Log] = {}

    def append(self, partition: int, batch: bytes) -> None:
        """To the end of a partition."""
        if partition not in self._logs:
            folder = str(self._process.partition_dir(self._topic, partition))
            config = {**CONFIG, "segment_bytes": SEGMENT_BYTES}
            self._logs[partition] = Log(
                folder, self._topic, bytes(16), partition, config, clean=True, durable=False
            )
        self._logs[partition].append(batch, leader_epoch=0)

    def close(self) -> None:
        """The recovery points are the ends of the logs."""
        path = self._process.data_dir / "recovery-point-offset-checkpoint"
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines[2:], 2):
            name, index, _ = line.split()
            if name == self._topic and int(index) in self._logs:
                lines[at] = f"{name} {index} {self._logs[int(index)].log_end_offset}"
        path.write_text("\n".join(lines) + "\n")
        for log in self._logs.values():
            log.close()


def loaded_after(
    process: BrokerProcess,
    names: Iterable[str],
    is_loading: Callable[[socket.socket, str], bool],
    timeout_s: float,
) -> float:
    """Seconds until the broker, which has just begun to answer, answers for each of these."""
    begun = time.perf_counter()
    with admin.connect(process.port) as sock:
        for name in names:
            while is_loading(sock, name):
                if time.perf_counter() - begun > timeout_s:
                    raise TimeoutError(f"not loaded after {timeout_s:g} s")
                time.sleep(PAUSE_S)
    return time.perf_counter() - begun
