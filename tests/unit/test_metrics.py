"""The list of metrics, its two text forms, and what is generated from it."""

from __future__ import annotations

import json
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from kbroker.cli.scrape import parse
from kbroker.metrics.alerts import ALERTS, rules_file
from kbroker.metrics.dashboards import DASHBOARDS, grafana
from kbroker.metrics.exposition import OPENMETRICS, PROMETHEUS, expose, negotiated
from kbroker.metrics.families import FAMILIES
from kbroker.metrics.family import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    UNTYPED,
    Family,
    Samples,
    labels_text,
)
from kbroker.metrics.histogram import Counted, add_histogram
from kbroker.metrics.queries import metric
from kbroker.server.observe import Totals

AWKWARD = 'a "quoted" \\ name,{}\nand a second line = 1'
SAMPLE_FAMILIES = (
    Family("a_total", COUNTER, "Counts \\ in\ntwo lines.", ("topic",)),
    Family("b_bytes", GAUGE, "A size."),
    Family("c_seconds", HISTOGRAM, "Times.", ("request",)),
    Family("d_sum", UNTYPED, "A sum of its own."),
    Family("e", SUMMARY, "Quantiles."),
    Family("f", GAUGE, "Without a sample."),
)


def example() -> Samples:
    samples = Samples(SAMPLE_FAMILIES)
    samples.add("a_total", 3, labels_text(topic=AWKWARD))
    samples.add("b_bytes", 1 << 60)
    for bound, count in (("0.5", 1), ("1.0", 2), ("+Inf", 3)):
        samples.add_part("c_seconds", "_bucket", count, labels_text(request="Produce", le=bound))
    samples.add_part("c_seconds", "_sum", 2.25, labels_text(request="Produce"))
    samples.add_part("c_seconds", "_count", 3, labels_text(request="Produce"))
    samples.add("d_sum", -1.5)
    samples.add_part("e", "", 0.25, labels_text(quantile="0.5"))
    samples.add_part("e", "_count", 9)
    return samples


def test_both_forms_are_read_by_their_own_parsers() -> None:
    found = {}
    for content_type, read in ((PROMETHEUS, prometheus), (OPENMETRICS, openmetrics)):
        text = expose(SAMPLE_FAMILIES, example(), content_type).decode()
        families = list(read(text))
        found[content_type] = [
            (sample.name, sample.labels, sample.value)
            for family in families
            for sample in family.samples
        ]
        assert [family.type for family in families] == [
            "counter", "gauge", "histogram", "unknown", "summary",
        ]  # fmt: skip
        assert ("a_total", {"topic": AWKWARD}, 3.0) in found[content_type]
    assert found[PROMETHEUS] == found[OPENMETRICS]
    # What `kbroker top` reads it with says the same.
    own = parse(expose(SAMPLE_FAMILIES, example(), PROMETHEUS).decode())
    assert own["a_total"] == {(("topic", AWKWARD),): 3.0}
    assert sum(map(len, own.values())) == len(found[PROMETHEUS])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_are_as_prometheus_has_them(family: Family) -> None:
    for name in (family.name, *family.labels):
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)


def test_a_sample_that_is_not_in_the_list_cannot_be_made() -> None:
    with pytest.raises(KeyError):
        Samples(FAMILIES).add("kbroker_surprise_total", 1)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", PROMETHEUS),
        ("*/*", PROMETHEUS),
        ("text/html", PROMETHEUS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0, text/plain;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5",
         PROMETHEUS),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", PROMETHEUS),
        ("application/openmetrics-text;q=nonsense", PROMETHEUS),
        # As Prometheus 2.42 asks.
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
         "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
    ],
)  # fmt: skip
def test_the_form_is_negotiated(accept: str, content_type: str) -> None:
    assert negotiated(accept) == content_type


def test_quantiles_of_what_was_counted() -> None:
    buckets = [0] * 28
    assert Counted(0, buckets).quantile(0.99) == 0
    buckets[0], buckets[3], buckets[27] = 50, 49, 1
    told = Counted(10**9, buckets)
    assert told.total == 100
    assert told.quantile(0.25) == 512  # half of the first bucket, which ends at 1024
    assert 4096 < told.quantile(0.75) < 8192 and told.quantile(0.99) == 8192
    samples = Samples(SAMPLE_FAMILIES)
    add_histogram(samples, "c_seconds", told, 1e9, labels_text(request="Produce"))
    lines = samples.lines["c_seconds"]
    assert lines[0] == 'c_seconds_bucket{request="Produce",le="1.024e-06"} 50\n'
    assert lines[-3:] == [
        'c_seconds_bucket{request="Produce",le="+Inf"} 100\n',
        'c_seconds_sum{request="Produce"} 1.0\n',
        'c_seconds_count{request="Produce"} 100\n',
    ]


def test_totals_do_not_fall() -> None:
    totals = Totals()
    some = (5, 50, 0, 1, 0, 0, 0)
    more = (7, 70, 0, 2, 0, 0, 0)
    assert totals.add({("a", 0): some, ("b", 0): some})[:2] == [10, 100]
    assert totals.add({("a", 0): more})[:2] == [12, 120]  # b was deleted
    assert totals.add({("a", 0): some})[:2] == [17, 170]  # a was made anew


def test_names_follow_prometheus() -> None:
    for family in FAMILIES:
        assert (family.kind == COUNTER) == family.name.endswith("_total"), family.name
        reserved = family.name.endswith(("_count", "_sum", "_bucket"))
        assert family.kind == UNTYPED or not reserved, family.name
        assert family.help.endswith("."), family.name
        assert "le" not in family.labels and "quantile" not in family.labels, family.name


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_whole(name: str) -> None:
    board = json.loads(json.dumps(grafana(DASHBOARDS[name])))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["targets"] and all(target["expr"] for target in panel["targets"])


def test_a_query_over_what_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError):
        metric("kbroker_surprise_total")
    with pytest.raises(ValueError, match="no label"):
        metric("kafka_log_log_size", 'group="a"')
    with pytest.raises(ValueError, match="_bucket"):
        metric("kafka_log_log_size", part="_bucket")


def test_alerts_are_named_once() -> None:
    names = [alert.name for alert in ALERTS]
    assert len(set(names)) == len(names)
    told = re.findall(r"- alert: (\w+)", rules_file("kbroker"))
    assert told == ["KbrokerDown", "KbrokerNotScraped", *names]
