"""What quotas cost: a thousand clients, each with limits of its own that it never reaches.

    python -m perf.quotas

Producers of small batches (1 x 100 B, page cache) over a thousand connections, each with a client
id of its own; without any quota and with 1,000 limits of bytes and 1,000 of time, in turn on one
broker.
At most 5% of the rate; the processor time of a request is told beside it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from functools import partial

from perf.gil import serving
from perf.lifecycle import Measured, raise_descriptor_limit
from perf.native import Figures, is_sound, load
from perf.rows import BY_NAME as ROWS_BY_NAME
from perf.series import say
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess

CLIENTS = 1000
ROUNDS = 5
SECONDS = 3.0
AT_ONCE = 100
ALTER_CLIENT_QUOTAS = 49
TITLE = "kbroker, page-cache"
LIMITS = {"producer_byte_rate": 1e12, "request_percentage": 1e6}


def set_quotas(process: BrokerProcess, limits: Mapping[str, float | None]) -> None:
    """The same for each client."""
    for first in range(0, CLIENTS, AT_ONCE):
        entries = [
            {
                "entity": [{"entity_type": "client-id", "entity_name": f"load-{number}"}],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in limits.items()
                ],
            }
            for number in range(first, first + AT_ONCE)
        ]
        body = {"entries": entries, "validate_only": False}
        answer = wire.call_once(process.port, ALTER_CLIENT_QUOTAS, 1, body)
        if any(entry["error_code"] for entry in answer["entries"]):
            raise RuntimeError(f"quotas were refused: {answer['entries'][0]}")


def run(process: BrokerProcess, topic: str, partitions: int) -> Figures:
    """One small batch in flight on each connection."""
    os.sync()
    arguments = (topic, partitions, CLIENTS, 1, 1, 100, -1, 0)
    figures = load("produce", process.port, process.pid, SECONDS, *arguments)
    if not is_sound(figures):
        raise RuntimeError(f"errors {figures['errors']}, lost {figures['lost']}")
    return figures


def measure() -> list[Measured]:
    """Rate and processor time with quotas, beside those without."""
    row = ROWS_BY_NAME["one100"]
    os.environ["LOAD_OWN_IDS"] = "1"
    raise_descriptor_limit()
    rates: dict[bool, list[float]] = {True: [], False: []}
    costs: dict[bool, list[float]] = {True: [], False: []}
    settings = {"kbroker.durability": "page-cache"}
    with serving(partial(KbrokerProcess, settings=settings), row) as process:
        run(process, row.name, row.partitions)
        for number in range(2 * ROUNDS):
            limited = number % 2 == 0
            set_quotas(process, LIMITS if limited else dict.fromkeys(LIMITS))
            figures = run(process, row.name, row.partitions)
            rates[limited].append(figures["requests_s"])
            costs[limited].append(figures["us_request"])
            say(f"{'with' if limited else 'without'} quotas: {rates[limited][-1]:,.0f} requests/s, "
                f"{costs[limited][-1]:.2f} us of the broker's CPU each")  # fmt: skip
    lost = (1 - statistics.median(rates[True]) / statistics.median(rates[False])) * 100
    dearer = (statistics.median(costs[True]) / statistics.median(costs[False]) - 1) * 100
    return [
        Measured("rate that quotas of 1,000 clients cost", TITLE, lost, "%", 5),
        Measured("processor time of a request that they cost", TITLE, dearer, "%"),
    ]


if __name__ == "__main__":
    for one in measure():
        print(f"{one.what}: {one.text()} ({one.verdict()})")
