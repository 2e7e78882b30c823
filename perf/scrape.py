"""How long a scrape takes: `python -m perf.scrape [TOPICS [PARTITIONS]]`.

A broker of its own, so many topics with a record each, a group that has committed offsets in all
of them. Time of /metrics from request to last byte, on loopback; and processor time of the broker.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from kbroker import runfile
from kbroker.cli.scrape import scrape
from kbroker.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kbroker.testing import Broker

SCRAPES = 15


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(broker: Broker, topics: int, partitions: int) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    names = [f"topic-{number:05d}" for number in range(topics)]
    with Admin(settings) as admin, Producer(settings) as producer:
        for name in names:
            admin.create_topic(name, partitions=partitions)
            producer.send(name, b"x", partition=0)
        producer.flush()
    with Consumer({**settings, "group.id": "readers"}) as consumer:
        consumer.commit({
            TopicPartition(name, index): OffsetAndMetadata(0)
            for name in names for index in range(partitions)
        })  # fmt: skip


def main() -> None:
    told = [int(word) for word in sys.argv[1:3]]
    topics, partitions = told + [1000, 1][len(told) :]
    with Broker({"kbroker.http.listeners": "HTTP://127.0.0.1:0"}) as broker:
        fill(broker, topics, partitions)
        info = runfile.running(broker.data_dir)
        assert info is not None
        taken = []
        scrape(info.http[0])
        before = cpu_s(broker.pid)
        for _ in range(SCRAPES):
            began = time.perf_counter()
            with urlopen(f"{info.http[0]}/metrics") as answer:
                text = answer.read()
            taken.append(time.perf_counter() - began)
        spent = (cpu_s(broker.pid) - before) / SCRAPES
        collected = scrape(info.http[0]).total("kbroker_scrape_seconds")
    sys.stdout.write(
        f"{topics} topics of {partitions}: {len(text.splitlines())} lines,"
        f" {statistics.median(taken) * 1e3:.0f} ms (most {max(taken) * 1e3:.0f}), collected in"
        f" {collected * 1e3:.0f} ms, {spent * 1e3:.0f} ms of processor time\n"
    )


if __name__ == "__main__":
    main()
