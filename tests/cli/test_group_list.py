"""`kbroker group list`: only groups in some states and of some types."""

from __future__ import annotations

import json

import pytest

from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import commit_offsets
from tests.cli.conftest import Run
from tests.support import wire
from tests.support.kbroker import KbrokerProcess


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-s", "eMPTY"], True),
        (["-t", "CLASSIC"], True),
        (["-s", "Stable", "-s", "empty", "-t", "Classic", "-t", "consumer"], True),
        (["-s", "stable"], False),
        (["-t", "Consumer"], False),
    ],
)
def test_states_and_types_in_any_case(
    kbroker: KbrokerProcess, run: Run, topic: str, words: list[str], found: bool
) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with Cluster(kbroker.bootstrap) as cluster:
        commit_offsets(cluster, topic, {(topic, 0): 0})
    listed = json.loads(run("group", "list", *words, "-o", "json").out)
    assert (topic in {group["group"] for group in listed}) == found


def test_lag_of_all_groups_beside_one_with_the_empty_id(
    kbroker: KbrokerProcess, run: Run, topic: str
) -> None:
    """Simple consumers of old have it; no consumer group of the new protocol can."""
    wire.create_topic(kbroker.port, topic, 1)
    with Cluster(kbroker.bootstrap) as cluster:
        for group in (topic, ""):
            commit_offsets(cluster, group, {(topic, 0): 0})
    for words in ([], ["", topic]):
        rows = json.loads(run("group", "lag", *words, "-o", "json").out)
        assert {row["group"] for row in rows if row["topic"] == topic} == {"", topic}
