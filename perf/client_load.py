"""One client at one work, in a process of its own; run by perf.client, prints one line of JSON.

    python -m perf.client_load CLIENT WORK BOOTSTRAP TOPIC BYTES COUNT

Every client gets the same batching (batch.size, linger.ms), acks=all and idempotence, and every
value is looked at. Time and processor time (user and system, all threads) begin when the client is
connected and warm, and end when all is acknowledged or read.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

PARTITIONS = 6
BATCH_BYTES, LINGER_MS = 131_072, 5
CHUNK = 10_000  # messages of one send_batch(), of one look at the queue
READ_MESSAGES = 10_000  # at most, by one consume(), getmany() or poll()
READ_S = 10.0
FRAME_BYTES_MAX = 64 << 20  # kafka-python: less than one full answer to its own fetch unless told
PARTS = 5


class Job(NamedTuple):
    """What is to be done."""

    bootstrap: str
    topic: str
    size: int
    count: int


class Meter:
    """From begin() to end(): seconds, processor seconds, and resident memory at the beginning, at
    each part() and at the end."""

    def begin(self) -> None:
        self.rss_kb = [resident_kb()]
        self.began, self.cpu_began = time.perf_counter(), cpu_s()

    def end(self, messages: int) -> None:
        found = {
            "messages": messages,
            "seconds": time.perf_counter() - self.began,
            "cpu_s": cpu_s() - self.cpu_began,
            "rss_kb": self.rss_kb,
        }
        print(json.dumps(found), flush=True)

    def part(self) -> None:
        """A fifth of the messages is done."""
        self.rss_kb.append(resident_kb())


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_kb() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def values(job: Job) -> list[bytes]:
    """Some values that differ, of the size that was told."""
    return [number.to_bytes(8, "big") + b"v" * (job.size - 8) for number in range(CHUNK)]


def warmth(job: Job) -> int:
    return max(job.count // 20, 1000)


# ---- kbroker


def kbroker_producer(job: Job) -> Any:
    return import_module("kbroker.client.producer").Producer(
        bootstrap_servers=job.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS, acks="all"
    )


def kbroker_send(job: Job, meter: Meter) -> None:
    some = values(job)
    with kbroker_producer(job) as producer:
        send, topic = producer.send, job.topic
        for number in range(warmth(job)):
            send(topic, some[number % CHUNK])
        producer.flush()
        meter.begin()
        for _ in range(PARTS):
            for number in range(job.count // PARTS):
                send(topic, some[number % CHUNK])
            meter.part()
        producer.flush()
        meter.end(job.count // PARTS * PARTS)


def kbroker_send_batch(job: Job, meter: Meter) -> None:
    some = values(job)
    with kbroker_producer(job) as producer:
        producer.send_batch(job.topic, some).result(READ_S)
        meter.begin()
        chunks = max(job.count // CHUNK // PARTS, 1)
        for _ in range(PARTS):
            for _ in range(chunks):
                producer.send_batch(job.topic, some)
            meter.part()
        producer.flush()
        meter.end(PARTS * chunks * CHUNK)


def kbroker_consumer(job: Job) -> Any:
    make = import_module("kbroker.client.consumer").Consumer
    consumer = make(bootstrap_servers=job.bootstrap, auto_offset_reset="earliest")
    consumer.assign([(job.topic, partition) for partition in range(PARTITIONS)])
    return consumer


def kbroker_iterate(job: Job, meter: Meter) -> None:
    with kbroker_consumer(job) as consumer:
        seen = size = due = 0
        for record in consumer:
            size += len(record.value)
            seen += 1
            if seen > due:
                if seen == 1:
                    meter.begin()
                else:
                    meter.part()
                if seen > job.count:
                    break
                due += max(job.count // PARTS, 1)
        meter.end(seen - 1)


def kbroker_poll_batch(job: Job, meter: Meter) -> None:
    with kbroker_consumer(job) as consumer:
        first = seen = len(consumer.poll_batch(READ_S))
        meter.begin()
        size = 0
        for part in range(1, PARTS + 1):
            while seen < job.count * part // PARTS:
                columns = consumer.poll_batch(READ_S)
                size += columns.values.nbytes + sum(columns.values.lengths[:1])
                seen += len(columns)
            meter.part()
        meter.end(seen - first)


def kbroker_poll_packed(job: Job, meter: Meter) -> None:
    """As Arrow's `binary`, one value behind the other: each is copied once."""
    with kbroker_consumer(job) as consumer:
        first = seen = len(consumer.poll_batch(READ_S))
        meter.begin()
        size = 0
        while seen < job.count:
            columns = consumer.poll_batch(READ_S)
            size += len(columns.values.data) + sum(columns.values.offsets[:1])
            seen += len(columns)
        meter.end(seen - first)


# ---- confluent-kafka


def confluent_producer(job: Job) -> Any:
    return import_module("confluent_kafka").Producer({
        "bootstrap.servers": job.bootstrap, "acks": "all", "enable.idempotence": True,
        "linger.ms": LINGER_MS, "batch.size": BATCH_BYTES, "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 20,
    })  # fmt: skip


def confluent_send(job: Job, meter: Meter) -> None:
    some = values(job)
    producer = confluent_producer(job)

    def send(count: int) -> None:
        produce, topic, poll = producer.produce, job.topic, producer.poll
        for number in range(count):
            while True:
                try:
                    produce(topic, some[number % CHUNK])
                    break
                except BufferError:
                    poll(0.01)
            if number % 1000 == 0:
                poll(0)
        producer.flush()

    send(warmth(job))
    meter.begin()
    send(job.count)
    meter.end(job.count)


def confluent_send_batch(job: Job, meter: Meter) -> None:
    some = [{"value": value} for value in values(job)]
    producer = confluent_producer(job)
    producer.produce_batch(job.topic, some)
    producer.flush()
    meter.begin()
    sent = 0
    while sent < job.count:
        taken = producer.produce_batch(job.topic, some)
        sent += taken
        producer.poll(0 if taken == len(some) else 0.01)
    producer.flush()
    meter.end(sent)


def confluent_consume(job: Job, meter: Meter) -> None:
    library = import_module("confluent_kafka")
    consumer = library.Consumer({
        "bootstrap.servers": job.bootstrap, "group.id": "none", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "check.crcs": True,
    })  # fmt: skip
    consumer.assign([library.TopicPartition(job.topic, number, 0) for number in range(PARTITIONS)])
    first = seen = len(consumer.consume(READ_MESSAGES, READ_S))
    meter.begin()
    size = 0
    while seen < job.count:
        for message in consumer.consume(READ_MESSAGES, 0.1):
            size += len(message.value())
            seen += 1
    meter.end(seen - first)
    consumer.close()


# ---- kafka-python


def python_send(job: Job, meter: Meter) -> None:
    some = values(job)
    producer = import_module("kafka").KafkaProducer(
        bootstrap_servers=job.bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    )
    for number in range(warmth(job)):
        producer.send(job.topic, some[number % CHUNK])
    producer.flush()
    meter.begin()
    for number in range(job.count):
        producer.send(job.topic, some[number % CHUNK])
    producer.flush()
    meter.end(job.count)
    producer.close()


def python_consumer(job: Job) -> Any:
    library = import_module("kafka")
    consumer = library.KafkaConsumer(
        bootstrap_servers=job.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False,
        max_poll_records=READ_MESSAGES, receive_message_max_bytes=FRAME_BYTES_MAX,
    )  # fmt: skip
    consumer.assign([library.TopicPartition(job.topic, number) for number in range(PARTITIONS)])
    return consumer


def python_iterate(job: Job, meter: Meter) -> None:
    consumer = python_consumer(job)
    seen = size = 0
    for message in consumer:
        size += len(message.value)
        if seen == 0:
            meter.begin()
        seen += 1
        if seen > job.count:
            break
    meter.end(seen - 1)
    consumer.close()


def python_poll(job: Job, meter: Meter) -> None:
    consumer = python_consumer(job)
    first = seen = sum(map(len, consumer.poll(READ_S * 1000).values()))
    meter.begin()
    size = 0
    while seen < job.count:
        for messages in consumer.poll(READ_S * 1000).values():
            for message in messages:
                size += len(message.value)
            seen += len(messages)
    meter.end(seen - first)
    consumer.close()


# ---- aiokafka


async def aiokafka_producer(job: Job) -> Any:
    producer = import_module("aiokafka").AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, acks="all", enable_idempotence=True,
        linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES,
    )  # fmt: skip
    await producer.start()
    return producer


def aiokafka_send(job: Job, meter: Meter) -> None:
    async def run() -> None:
        some = values(job)
        producer = await aiokafka_producer(job)
        for number in range(warmth(job)):
            await producer.send(job.topic, some[number % CHUNK])
        await producer.flush()
        meter.begin()
        for number in range(job.count):
            await producer.send(job.topic, some[number % CHUNK])
        await producer.flush()
        meter.end(job.count)
        await producer.stop()

    asyncio.run(run())


def aiokafka_send_batch(job: Job, meter: Meter) -> None:
    async def run() -> None:
        some = values(job)
        producer = await aiokafka_producer(job)

        async def send(count: int) -> None:
            batch, batches = producer.create_batch(), 0
            for number in range(count):
                value = some[number % CHUNK]
                if batch.append(key=None, value=value, timestamp=None) is None:
                    await producer.send_batch(batch, job.topic, partition=batches % PARTITIONS)
                    batch, batches = producer.create_batch(), batches + 1
                    batch.append(key=None, value=value, timestamp=None)
            await producer.send_batch(batch, job.topic, partition=batches % PARTITIONS)
            await producer.flush()

        await send(warmth(job))
        meter.begin()
        await send(job.count)
        meter.end(job.count)
        await producer.stop()

    asyncio.run(run())


def aiokafka_read(job: Job, meter: Meter, *, many: bool) -> None:
    library = import_module("aiokafka")

    async def run() -> None:
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap, auto_offset_reset="earliest",
            enable_auto_commit=False,
        )  # fmt: skip
        await consumer.start()
        partitions = [library.TopicPartition(job.topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        size = len((await consumer.getone()).value)
        meter.begin()
        seen = 0
        while seen < job.count:
            if not many:
                size += len((await consumer.getone()).value)
                seen += 1
                continue
            found = await consumer.getmany(timeout_ms=1000, max_records=READ_MESSAGES)
            for messages in found.values():
                for message in messages:
                    size += len(message.value)
                seen += len(messages)
        meter.end(seen)
        await consumer.stop()

    asyncio.run(run())


def aiokafka_iterate(job: Job, meter: Meter) -> None:
    aiokafka_read(job, meter, many=False)


def aiokafka_poll(job: Job, meter: Meter) -> None:
    aiokafka_read(job, meter, many=True)


# ---- no client


def socket_produce(job: Job, meter: Meter) -> None:
    import_module("perf.client_floor").produce(job, meter)


def socket_fetch(job: Job, meter: Meter) -> None:
    import_module("perf.client_floor").fetch(job, meter)


Work = Callable[[Job, Meter], None]

#: (client, work). Works: send, send_batch, iterate, poll_batch.
WORKS: dict[tuple[str, str], Work] = {
    ("socket", "send_batch"): socket_produce,
    ("socket", "poll_batch"): socket_fetch,
    ("kbroker", "send"): kbroker_send,
    ("kbroker", "send_batch"): kbroker_send_batch,
    ("kbroker", "iterate"): kbroker_iterate,
    ("kbroker", "poll_batch"): kbroker_poll_batch,
    ("kbroker", "poll_packed"): kbroker_poll_packed,
    ("confluent-kafka", "send"): confluent_send,
    ("confluent-kafka", "send_batch"): confluent_send_batch,
    ("confluent-kafka", "iterate"): confluent_consume,
    ("aiokafka", "send"): aiokafka_send,
    ("aiokafka", "send_batch"): aiokafka_send_batch,
    ("aiokafka", "iterate"): aiokafka_iterate,
    ("aiokafka", "poll_batch"): aiokafka_poll,
    ("kafka-python", "send"): python_send,
    ("kafka-python", "iterate"): python_iterate,
    ("kafka-python", "poll_batch"): python_poll,
}


def main() -> None:
    client, work, bootstrap, topic, size, count = sys.argv[1:]
    WORKS[client, work](Job(bootstrap, topic, int(size), int(count)), Meter())


if __name__ == "__main__":
    main()
