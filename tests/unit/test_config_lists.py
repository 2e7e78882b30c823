"""Settings that are lists."""

from __future__ import annotations

import pytest

from kbroker.config import BrokerConfig


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("log.cleanup.policy", "delete, delete,compact", ["delete", "compact"]),
        ("sasl.enabled.mechanisms", "PLAIN,PLAIN", ["PLAIN"]),
        ("ssl.enabled.protocols", "TLSv1.3,TLSv1.2,TLSv1.3", ["TLSv1.3", "TLSv1.2"]),
        ("group.consumer.assignors", "range,uniform,range", ["range", "uniform"]),
        ("log.dirs", "/a,/b,/a", ["/a", "/b"]),
        ("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:1", ["PLAINTEXT://h:1"]),
    ],
)
def test_an_element_of_a_list_that_is_named_twice_counts_once(
    name: str, text: str, words: list[str]
) -> None:
    assert BrokerConfig({name: text}).words(name) == words
