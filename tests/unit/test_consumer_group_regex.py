"""Subscriptions by regular expression."""

from __future__ import annotations

import time

import pytest

from kbroker.errors import ErrorCode
from kbroker.group.consumer.regex import Resolution, check_regex
from tests.support.group_shard import CLIENT, GroupShard, code_of
from tests.support.topics import FakeTopics


@pytest.fixture
def shard():
    topics = FakeTopics()
    topics.add("red-1", 1)
    topics.add("red-2", 1)
    topics.add("blue", 2)
    return GroupShard(topics, group_consumer_assignment_interval_ms=0)


def names(shard, assignment):
    return sorted(shard.topics.by_id(topic_id).name for topic_id in assignment)


def resolve_regexes(patterns, topics):
    resolution = Resolution(patterns, topics)
    while not resolution.go_on():
        pass
    return resolution.found


def test_syntax():
    assert resolve_regexes(["a.", "a", "(?i)AB"], ["ab", "abc", "xab"]) == {
        "a.": {"ab"}, "a": set(), "(?i)AB": {"ab"},
    }  # fmt: skip
    for wrong in ("(", "a{2000}", "(?<=a)b", r"(a)\1", "[[:nope:]]", "a**"):
        assert code_of(check_regex, wrong) == ErrorCode.INVALID_REGULAR_EXPRESSION, wrong
    assert resolve_regexes(["("], ["a"]) == {"(": set()}


def test_any_byte_is_no_syntax():
    """re2j, which Apache Kafka uses, knows no bytes; what only looks so is taken."""
    for wrong in (r"\C", r"\C*", r"\\\C", r"\QC\E\C", r"[\C]", r"(a|\C+)"):
        assert code_of(check_regex, wrong) == ErrorCode.INVALID_REGULAR_EXPRESSION, wrong
    quoted = {r"\\C": {"\\C"}, r"\Q\C\E": {"\\C"}, r"\Q\C": {"\\C"}, r"\Q\\EC": {"\\C"}}
    assert resolve_regexes(quoted, ["\\C", "C"]) == quoted


def test_parentheses_cost_no_more_than_what_is_in_them():
    """2,000 long names: 50 ms; where RE2 keeps what each of them matched, 7 s."""
    names = ["a" * 240 + str(number) for number in range(2000)]
    began = time.process_time()
    assert resolve_regexes(["(.*a.*){50}"], names) == {"(.*a.*){50}": set(names)}
    assert time.process_time() - began < 2


def test_topics_that_match(shard):
    # As in Kafka the expression is resolved after the join, which is told of it by the next answer.
    assert shard.join("m1", topic_regex="red.*") == {
        "member_id": "m1", "member_epoch": 1, "heartbeat_interval": 5000, "assignment": {},
    }  # fmt: skip
    answer = shard.beat("m1", 1)
    assert answer["member_epoch"] == 2 and names(shard, answer["assignment"]) == ["red-1", "red-2"]
    assert shard.group().subscribed_to("red-1") and not shard.group().subscribed_to("blue")


def test_invalid_expression(shard):
    code = code_of(shard.join, "m1", topic_regex="(red")
    assert code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not shard.log


def test_new_topics_are_found(shard):
    shard.join("m1", topic_regex="red.*")
    shard.beat("m1", 1)
    shard.topics.add("red-3", 1)
    # Not more often than every ten seconds.
    assert "assignment" not in shard.beat("m1", 2)
    shard.advance(10_001)
    shard.beat("m1", 2)
    assert names(shard, shard.beat("m1", 2)["assignment"]) == ["red-1", "red-2", "red-3"]
    shard.topics.remove("red-1")
    assert names(shard, shard.beat("m1", 3)["assignment"]) == ["red-2", "red-3"]


def test_what_a_member_sees_by_now_is_found_by_the_periodic_refresh():
    """No version of the topics tells that somebody was given the right to see one."""
    topics = FakeTopics()
    topics.add("red-1", 1)
    topics.add("red-2", 1)
    shard = GroupShard(
        topics, group_consumer_assignment_interval_ms=0,
        group_consumer_regex_refresh_interval_ms=30_000,
    )  # fmt: skip
    seen = {"red-1"}
    client = CLIENT._replace(sees=seen.__contains__)
    shard.join("m1", topic_regex="red.*", client=client)
    shard.beat("m1", 1, client=client)
    seen.add("red-2")
    shard.advance(30_000)
    shard.beat("m1", 2, client=client)
    assert "assignment" not in shard.beat("m1", 2, client=client)
    shard.advance(1)
    shard.beat("m1", 2, client=client)
    answer = shard.beat("m1", 2, client=client)
    assert names(shard, answer["assignment"]) == ["red-1", "red-2"]


def test_what_could_not_be_written_is_resolved_again(shard):
    shard.join("m1", topic_regex="red.*")
    shard.beat("m1", 1)
    shard.topics.add("red-3", 1)
    shard.advance(10_001)
    shard.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE  # what the next heartbeat finds out
    shard.beat("m1", 2)
    assert shard.refuse is None
    shard.refuse = ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.beat("m1", 2)
    assert shard.refuse is not None, "it tries again with every heartbeat"
    shard.refuse = None
    shard.advance(10_001)
    shard.beat("m1", 2)
    assert len(shard.beat("m1", 2)["assignment"]) == 3


def test_many_topics_are_looked_through_bit_by_bit():
    """Between the slices others get their turn; a group that is gone is let go."""
    topics = FakeTopics()
    for number in range(2_000):
        topics.add(f"red-{number}", 1)
    shard = GroupShard(topics, group_consumer_assignment_interval_ms=0)
    for group in ("g", "gone"):
        shard.join("m1", topic_regex="red-.*7", group_id=group)
        assert not shard.group(group).regexes
    shard.beat("m1", -1, group_id="gone")
    topics.add("red-new7", 1)  # its turn has not come yet, but that is for the next time
    slices = 0
    while not shard.group().regexes:
        shard.advance(1)
        slices += 1
    assert slices > 2
    assert len(shard.group().regexes["red-.*7"].topics) == 200
    assert len(names(shard, shard.beat("m1", 1)["assignment"])) == 200


def test_names_and_expression_together(shard):
    shard.join("m1", topic_names=["blue"], topic_regex="red-1")
    answer = shard.beat("m1", 2)
    assert names(shard, answer["assignment"]) == ["blue", "red-1"]


def test_members_share_an_expression(shard):
    shard.join("m1", topic_regex="red.*")
    shard.beat("m1", 1)
    # Known already: the second member is assigned to with its join.
    assert shard.join("m2", topic_regex="red.*")["member_epoch"] == 3
    assert shard.group().subscriptions.is_homogeneous(2)
    assert len(shard.group().regexes) == 1
    shard.beat("m1", -1)
    assert set(shard.group().regexes) == {"red.*"}
    shard.beat("m2", -1)
    assert not shard.group().regexes and not shard.group().subscribed_to("red-1")


def test_another_expression(shard):
    shard.join("m1", topic_regex="red.*")
    red = shard.beat("m1", 1)["assignment"]
    shard.advance(10_001)
    # It has to give up at once what it does not subscribe to any more.
    assert shard.beat("m1", 2, red, topic_regex="blue")["assignment"] == {}
    assert set(shard.group().regexes) == {"blue"}
    assert names(shard, shard.beat("m1", 2, {})["assignment"]) == ["blue"]
    # And from an expression to names.
    shard.beat("m1", 3, topic_regex="", topic_names=["red-2"])
    assert not shard.group().regexes
    assert names(shard, shard.beat("m1", 3, {})["assignment"]) == ["red-2"]


def test_after_a_restart_it_is_resolved_again(shard):
    shard.join("m1", topic_regex="red.*")
    shard.beat("m1", 1)
    version = shard.topics.version
    shard.topics.add("red-3", 1)
    shard.topics.version = version  # counted anew by another run of the broker
    shard.restart()
    shard.advance(10_001)
    shard.beat("m1", 2)
    assert len(shard.beat("m1", 2)["assignment"]) == 3
