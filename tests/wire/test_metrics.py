"""What a running broker tells over HTTP: metrics, health, status; and that it is true."""

from __future__ import annotations

import http.client
import json
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from kbroker import runfile
from kbroker.cli.scrape import Scrape, scrape
from kbroker.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kbroker.metrics.alerts import rules_file
from kbroker.metrics.exposition import OPENMETRICS, PROMETHEUS
from kbroker.metrics.families import FAMILIES
from kbroker.metrics.family import UNTYPED
from kbroker.server.observe_requests import PHASES as PHASE_NAMES
from tests.support import messages, wire
from tests.support.kbroker import KbrokerProcess
from tests.support.needs import need_command
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

RECORDS = 100
PHASES = [phase for phase, _ in PHASE_NAMES]
Get = Callable[..., tuple[int, str, str]]


def address(broker: BrokerProcess) -> str:
    info = runfile.running(broker.data_dir)
    assert info is not None
    return info.http[0].removeprefix("http://")


@pytest.fixture
def get(kbroker: KbrokerProcess) -> Get:
    """(status, content type, text) of a page of the session's broker."""

    def get(path: str, accept: str = "*/*") -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(address(kbroker), timeout=60)
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.headers["Content-Type"], text

    return get


@pytest.fixture
def busy(kbroker: KbrokerProcess, topic: str) -> str:
    """A topic of two partitions with records, half of them read and committed by a group."""
    wire.create_topic(kbroker.port, topic, 2)
    with Producer({"bootstrap.servers": kbroker.bootstrap}) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"x" * 100, partition=number % 2)
        producer.flush()
    settings = {"bootstrap.servers": kbroker.bootstrap, "group.id": f"group-of-{topic}"}
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(RECORDS // 2),
                         TopicPartition(topic, 1): OffsetAndMetadata(0)})  # fmt: skip
    return topic


def test_both_forms(get: Get, busy: str) -> None:
    for accept, content_type, read in (
        ("text/plain", PROMETHEUS, prometheus),
        ("application/openmetrics-text; version=1.0.0", OPENMETRICS, openmetrics),
    ):
        get("/metrics", accept)  # what is measured between two scrapes
        status, told, text = get("/metrics", accept)
        assert (status, told) == (200, content_type)
        found = {family.name: family for family in read(text)}
        for family in FAMILIES:
            there = found.get(family.name.removesuffix("_total"))
            assert (there is not None) or family.rarely, f"{family.name} is not told"
            if there is not None:
                assert there.type == {UNTYPED: "unknown"}.get(family.kind, family.kind)
                assert there.documentation == family.help
                for sample in there.samples:
                    labels = sample.labels.keys() - {"le", "quantile"}
                    # What Apache Kafka counts by topic it also counts for all topics.
                    of_all = not labels and "brokertopicmetrics" in family.name
                    assert of_all or labels == {*family.labels}
        assert len(found) <= len(FAMILIES)


def test_the_journal_takes_what_its_files_are(tmp_path: Path) -> None:
    """The first is smaller than the ones that follow."""
    broker = KbrokerProcess(tmp_path, {})
    broker.start()
    try:
        there = sum(path.stat().st_size for path in broker.data_dir.rglob("*") if path.is_file())
        journal = broker.data_dir.glob(".kbroker-journal.*")
        assert sum(path.stat().st_size for path in journal) > there // 2
        told = scrape(address(broker)).value("kbroker_disk_used_bytes")
        assert told is not None and abs(told - there) < 1 << 20
    finally:
        broker.stop()


def test_what_it_tells_is_true(kbroker: KbrokerProcess, busy: str) -> None:
    now = scrape(address(kbroker))
    group = f"group-of-{busy}"
    for partition, committed in (("0", RECORDS // 2), ("1", 0)):
        at = {"topic": busy, "partition": partition}
        assert now.value("kafka_topic_partition_current_offset", **at) == RECORDS // 2
        assert now.value("kafka_topic_partition_oldest_offset", **at) == 0
        assert now.value("kafka_log_log_logendoffset", **at) == RECORDS // 2
        size = now.value("kafka_log_log_size", **at)
        assert size is not None and 100 * RECORDS // 2 < size < 200 * RECORDS
        at = {"consumergroup": group, **at}
        assert now.value("kafka_consumergroup_current_offset", **at) == committed
        assert now.value("kafka_consumergroup_lag", **at) == RECORDS // 2 - committed
    assert now.value("kafka_topic_partitions", topic=busy) == 2
    assert now.value("kafka_consumergroup_lag_sum", consumergroup=group, topic=busy) == 50
    assert now.value("kafka_consumergroup_members", consumergroup=group) == 0
    assert now.total("kafka_broker_info", id="1") == 1
    assert now.total("kbroker_scrape_complete") == 1
    memory = now.value("process_resident_memory_bytes")
    assert memory is not None and 1e7 < memory < 1e9
    stated = Path(f"/proc/{kbroker.pid}/task").iterdir()
    assert abs(now.total("kbroker_process_threads") - len(list(stated))) <= 2


def test_counters_grow_by_what_was_done(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    before = scrape(address(kbroker))
    with Producer({"bootstrap.servers": kbroker.bootstrap, "acks": "all"}) as producer:
        for _ in range(RECORDS):
            producer.send(topic, b"x" * 1000).result()

    def grown(name: str, now: Scrape, **labels: str) -> float:
        return now.total(name, **labels) - before.total(name, **labels)

    def counted() -> Scrape | None:
        """Threads count for themselves; what they did last is seen a moment later."""
        now = scrape(address(kbroker))
        return now if grown("kbroker_requests_total", now) >= RECORDS else None

    now = wait_for("the requests to be counted", counted, 60)
    assert grown("kbroker_network_received_bytes_total", now) > RECORDS * 1000
    assert grown("kbroker_journal_written_bytes_total", now) > RECORDS * 1000
    assert grown("kbroker_journal_groups_total", now) >= 1
    assert grown("kbroker_journal_flush_seconds_total", now) > 0
    assert grown("kbroker_requests_parked_total", now) >= RECORDS
    assert grown("kafka_topic_partition_current_offset", now, topic=topic) == RECORDS


def test_each_phase_of_a_request_is_timed(kbroker: KbrokerProcess, topic: str) -> None:
    """Produce waits for the disk, a fetch for records; what is answered by Python has its time in
    the handler. All phases together are the whole."""
    wire.create_topic(kbroker.port, topic, 1)
    before = scrape(address(kbroker))
    settings = {"bootstrap.servers": kbroker.bootstrap}
    with Producer({**settings, "acks": "all"}) as producer, Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_end()
        consumer.position((topic, 0), timeout_s=60)  # known before the first record comes
        for number in range(20):
            assert not consumer.poll(0.05)  # a fetch waits for what comes
            producer.send(topic, b"%d" % number).result()
            wait_for("the record", lambda: consumer.poll(1.0), 60)
    name = "kbroker_request_phase_seconds"

    def grown(part: str, request: str, phase: str) -> float:
        at = {"request": request, "phase": phase}
        return now.total(f"{name}_{part}", **at) - before.total(f"{name}_{part}", **at)

    now = wait_for(
        "all answers to be counted",
        lambda: found if (found := scrape(address(kbroker))).total(
            f"{name}_count", request="Produce", phase="total"
        ) >= 20 + before.total(f"{name}_count", request="Produce", phase="total") else None,
        60,
    )  # fmt: skip
    for request in ("Produce", "Fetch", "ListOffsets", "ApiVersions", "Metadata"):
        counts = {phase: grown("count", request, phase) for phase in PHASES}
        assert min(counts.values()) == max(counts.values()) > 0, (request, counts)
        sums = {phase: grown("sum", request, phase) for phase in PHASES}
        assert abs(sum(sums.values()) - 2 * sums["total"]) < 1e-3, (request, sums)
        assert sums["local"] > 0
    assert grown("sum", "Produce", "remote") > 0
    assert grown("sum", "Fetch", "remote") > 20 * 0.02
    assert grown("count", "Produce", "total") >= 20
    versions = now.total("kafka_network_requestmetrics_requests_total", request="Produce")
    assert versions >= 20
    sizes = "kafka_network_requestmetrics_requestbytes"
    assert now.total(f"{sizes}_count", request="Produce") == versions
    assert now.total(f"{sizes}_sum", request="Produce") == now.total(
        "kbroker_request_bytes_total", request="Produce"
    )
    assert now.value("kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 20
    for moved in ("bytesin", "bytesout"):
        size = now.value(f"kafka_server_brokertopicmetrics_{moved}_total", topic=topic)
        assert size is not None and 20 * 60 < size < 20 * 200
    assert now.total("kbroker_gil_wait_seconds_count") > 0


def test_requests_of_one_read_are_timed_by_samples(kbroker: KbrokerProcess) -> None:
    """One in eight or more is timed and counts for those that were not, so that none is missed."""
    api, count = wire.API_VERSIONS, 100
    frame = messages.request_frame(api, 0, b"", 1)
    whole = {"request": "ApiVersions", "phase": "total"}

    def counted(now: Scrape) -> tuple[float, float]:
        return (now.total("kafka_network_requestmetrics_requests_total", request="ApiVersions"),
                now.total("kbroker_request_phase_seconds_count", **whole))  # fmt: skip

    requests, timed = counted(scrape(address(kbroker)))
    with wire.WireConnection(kbroker.port) as connection:
        connection.send_bytes(frame * count)
        for _ in range(count):
            connection.receive_frame()
        connection.call(api, 0)  # alone in its read: is timed for all before it

    def all_are() -> bool:
        more_requests, more_timed = counted(scrape(address(kbroker)))
        return more_requests >= requests + count + 1 and more_timed >= timed + count

    wait_for("all to be counted", all_are, 60)


def errors_of(now: Scrape) -> dict[tuple[str, str], float]:
    found = {}
    for at, count in now.samples["kafka_network_requestmetrics_errors_total"].items():
        names = dict(at)
        found[names["request"], names["error"]] = count
    return found


def test_error_codes_are_counted_by_api(kbroker: KbrokerProcess, topic: str) -> None:
    """As Apache Kafka counts them: each code of an answer, NONE too, whoever gave the answer."""
    wire.create_topic(kbroker.port, topic, 1)
    before = errors_of(scrape(address(kbroker)))
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    with wire.WireConnection(kbroker.port) as connection:
        connection.send_bytes(struct.pack(">ihhihb", 11, wire.API_VERSIONS, 99, 1, -1, 0))
        connection.receive_frame()
    settings = {"bootstrap.servers": kbroker.bootstrap, "allow.auto.create.topics": False}
    with Producer({"bootstrap.servers": kbroker.bootstrap, "acks": "all"}) as producer:
        producer.send(topic, b"one").result()
        far = producer.send(topic, b"far", partition=0, timestamp_ms=4_000_000_000_000_000)
        assert far.exception(60) is not None
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        wait_for("the record", lambda: consumer.poll(1.0), 60)
    with Admin({"bootstrap.servers": kbroker.bootstrap}) as admin:
        assert admin.delete_topics([f"no-{topic}"], partial=True).errors
    asked = {"name": topic, "partitions": [{"partition_index": 7, "timestamp": 0}]}
    wire.call_once(kbroker.port, wire.LIST_OFFSETS, 6, {"replica_id": -1, "topics": [asked]})
    told = errors_of(scrape(address(kbroker)))
    grown = {at: count - before.get(at, 0) for at, count in told.items()}
    assert grown["ApiVersions", "UNSUPPORTED_VERSION"] == 1
    assert grown["DeleteTopics", unknown] == grown["ListOffsets", unknown] == 1
    assert grown["Produce", "INVALID_TIMESTAMP"] == 1
    assert grown["Produce", "NONE"] == 1
    for request in ("ApiVersions", "Fetch", "Metadata", "ListOffsets"):
        assert grown[request, "NONE"] >= 1, grown


def test_transactions_and_producer_ids_are_told(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 2)
    settings = {"bootstrap.servers": kbroker.bootstrap, "transactional.id": topic}
    before = scrape(address(kbroker))

    def grown(now: Scrape, name: str, **labels: str) -> float:
        return now.total(name, **labels) - before.total(name, **labels)

    with Producer(settings) as producer:
        producer.init_transactions()
        with producer.transaction():
            for partition in (0, 1):
                producer.send(topic, b"x", partition=partition)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"y", partition=0).result()
            now = scrape(address(kbroker))
            assert now.total("kbroker_transactional_ids", state="Ongoing") >= 1
            assert now.total("kbroker_transaction_oldest_seconds") > 0
            raise ZeroDivisionError
        now = wait_for(
            "both to have ended",
            lambda: found if grown(
                found := scrape(address(kbroker)), "kbroker_transactions_ended_total"
            ) >= 2 else None,
            60,
        )  # fmt: skip
    assert grown(now, "kbroker_transactions_ended_total", outcome="commit") == 1
    assert grown(now, "kbroker_transactions_ended_total", outcome="abort") == 1
    assert grown(now, "kafka_server_replicamanager_produceridcount") >= 2
    assert grown(now, "kbroker_transactional_ids", state="CompleteAbort") == 1
    assert now.total("kbroker_transaction_markers_waiting") == 0


def test_what_is_refused_is_counted(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1, {"cleanup.policy": "compact"})
    before = scrape(address(kbroker))
    with Producer({"bootstrap.servers": kbroker.bootstrap}) as producer:
        assert producer.send(topic, b"without a key").exception(60) is not None
    now = scrape(address(kbroker))
    for name in ("kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total",
                 "kbroker_batches_refused_total"):  # fmt: skip
        assert now.total(name) > before.total(name)


def test_what_is_slow_is_told_with_its_phases(tmp_path: Path) -> None:
    broker = KbrokerProcess(tmp_path, {"kbroker.slow.request.ms": "1"})
    broker.start()
    try:
        wire.create_topic(broker.port, "wide", 200)  # makes 200 folders

        def told() -> list[dict[str, object]]:
            lines = (json.loads(line) for line in broker.log_text().splitlines()
                     if line.startswith("{"))  # fmt: skip
            return [line for line in lines if line.get("api") == "CreateTopics"]

        (line,) = wait_for("the log tells", told, 60)
        assert (line["msg"], line["logger"]) == ("slow request", "kbroker.slow")
        phases = {phase: line[f"{phase}_ms"] for phase in PHASES}
        assert all(isinstance(took, float) for took in phases.values())
        assert str(line["client"]).startswith("127.0.0.1:")
    finally:
        broker.kill()


def test_health_and_status(kbroker: KbrokerProcess, get: Get) -> None:
    assert get("/livez")[::2] == (200, "ok\n")
    assert get("/readyz")[::2] == (200, "ok\n")
    assert get("/")[0] == 200
    assert get("/nonsense")[0] == 404
    status, content_type, text = get("/status")
    told = json.loads(text)
    assert (status, content_type) == (200, "application/json")
    assert told["pid"] == kbroker.pid
    assert told["ready"] is True and told["unready"] == []
    assert told["data_dir"] == str(kbroker.data_dir)
    assert told["listeners"] == [f"PLAINTEXT://127.0.0.1:{kbroker.port}"]


def test_scrapes_at_once(get: Get) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: get("/metrics")[0], range(16)))
    assert answers == [200] * 16


@pytest.mark.long
def test_promtool_finds_no_fault(get: Get, busy: str, tmp_path: Path) -> None:
    promtool = need_command("promtool", "prometheus")
    text = get("/metrics", "text/plain")[2]
    checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                             capture_output=True, check=False)  # fmt: skip
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    rules = tmp_path / "rules.yml"
    rules.write_text(rules_file(".*kbroker.*"))
    subprocess.run([promtool, "check", "rules", str(rules)], check=True)


OF_TWO = """
rule_files: [rules.yml]
tests:
  - interval: 1m
    input_series:
      - series: 'up{job="our kbroker", instance="a:9308"}'
        values: "1x9"
      - series: 'up{job="our kbroker", instance="b:9308"}'
        values: "1x2 0x6"
    alert_rule_test:
      - {alertname: KbrokerDown, eval_time: 2m, exp_alerts: []}
      - alertname: KbrokerDown
        eval_time: 6m
        exp_alerts:
          - exp_labels: {severity: critical, job: our kbroker, instance: "b:9308"}
            exp_annotations: DOWN
      - {alertname: KbrokerNotScraped, eval_time: 6m, exp_alerts: []}
  - interval: 1m
    input_series:
      - series: 'up{job="node", instance="a:9100"}'
        values: "1x9"
    alert_rule_test:
      - {alertname: KbrokerDown, eval_time: 6m, exp_alerts: []}
      - alertname: KbrokerNotScraped
        eval_time: 6m
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations: NONE
"""


@pytest.mark.parametrize("job", [".*kbroker.*", r"our \w+"])
def test_a_broker_that_is_down_is_told_of_beside_one_that_is_not(job: str, tmp_path: Path) -> None:
    """By the rules in Prometheus' own hands; and a job of another name is told of as such."""
    promtool = need_command("promtool", "prometheus")
    (tmp_path / "rules.yml").write_text(rules_file(job))
    down, none, *_ = (
        [text.split(": ", 1)[1] for text in rule.splitlines() if text.strip().startswith(
            ("summary: ", "description: "))]
        for rule in rules_file(job).split("- alert: ")[1:]
    )  # fmt: skip
    text = OF_TWO
    for name, (summary, description) in (("DOWN", down), ("NONE", none)):
        told = summary.replace("{{ $labels.instance }}", "b:9308")
        text = text.replace(name, f"{{summary: {told}, description: {description}}}")
    (tmp_path / "test.yml").write_text(text)
    done = subprocess.run([promtool, "test", "rules", str(tmp_path / "test.yml")], text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


SCRAPES_S = 6


def counters(broker: KbrokerProcess) -> dict[tuple[str, str], float]:
    """Every counter, bucket, count and sum, by name and labels."""
    connection = http.client.HTTPConnection(address(broker), timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return {
        (sample.name, str(sorted(sample.labels.items()))): sample.value
        for family in prometheus(text)
        if family.type in ("counter", "histogram", "summary")
        for sample in family.samples
        if "quantile" not in sample.labels
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seconds", [SCRAPES_S, pytest.param(180, marks=pytest.mark.long)])
def test_no_counter_ever_falls(kbroker: KbrokerProcess, busy: str, seconds: int) -> None:
    """While threads, connections and topics come and go; each topic has a name of its own."""
    falls: list[str] = []
    before = counters(kbroker)
    names = {name for name, _ in before}
    assert "kbroker_thread_busy_seconds_total" in names and len(names) > 40
    until = time.monotonic() + seconds
    round_ = 0
    while time.monotonic() < until:
        round_ += 1
        name = f"{busy}-{round_}"
        wire.create_topic(kbroker.port, name, configs={"cleanup.policy": "compact"})
        with Producer({"bootstrap.servers": kbroker.bootstrap}) as producer:
            producer.send(name, b"x" * 100, key=b"k")
        asked = {"topics": [{"name": name, "topic_id": None}], "timeout": 30_000}
        wire.call_once(kbroker.port, wire.DELETE_TOPICS, 6, asked)
        now = counters(kbroker)
        falls += [
            f"{key}: {value} after {before[key]}"
            for key, value in now.items()
            if value < before.get(key, 0)
        ]
        falls += [
            f"{key} is gone"
            for key in before.keys() - now.keys()
            if "topic" not in key[1]
        ]
        before = now
    assert not falls and round_ > 2
