"""kafka-topics: list, describe, create, alter and delete topics (TopicCommand)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.cli.kafka.options import (
    Given,
    OptionError,
    UsageError,
    check_invalid,
    check_required,
    flag,
    number,
    text,
)
from kbroker.cli.kafka.tool import Tool, open_cluster, say, start, warn

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

_ACTIONS = ("list", "describe", "create", "alter", "delete")
_REPORTS = (
    "under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions",
    "unavailable-partitions",
)  # fmt: skip
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_BY_CONFIGS = " (To alter topic configurations, the kafka-configs tool can be used.)"
_FACTOR_MAX = 32767

_OPTIONS = (
    text("bootstrap-server", "HOST:PORT", "Required. Brokers to talk to."),
    text("command-config", "FILE", "Settings of the admin client, as properties."),
    flag("list", "List topics."),
    flag("describe", "Show topics with their partitions and settings."),
    flag("create", "Create a topic."),
    flag("alter", "Give topics more partitions." + _BY_CONFIGS),
    flag("delete", "Delete topics with all their records."),
    text("topic", "TOPIC", "The topic; for all but --create an expression for several."),
    text("topic-id", "ID", "The topic to describe by its id."),
    text("config", "KEY=VALUE", "A setting of the new topic; may be given again." + _BY_CONFIGS),
    text("delete-config", "KEY", "Gone since Kafka 4.0; see kafka-configs."),
    number("partitions", "N", "How many partitions the topic shall have; the broker's default"
           " with --create. Where keys choose partitions, more of them choose others."),
    number("replication-factor", "N", "How many replicas; the broker's default if not given."),
    text("replica-assignment", "ID:ID,ID:ID", "The brokers of each partition."),
    flag("under-replicated-partitions", "Describe only partitions that lack replicas in sync."),
    flag("under-min-isr-partitions", "Describe only those below min.insync.replicas."),
    flag("at-min-isr-partitions", "Describe only those at min.insync.replicas."),
    flag("unavailable-partitions", "Describe only those whose leader is not there."),
    flag("topics-with-overrides", "Describe only topics with settings of their own."),
    flag("if-exists", "No error where the topic does not exist."),
    flag("if-not-exists", "No error where the topic exists."),
    flag("exclude-internal", "Leave the brokers' own topics out."),
    number("partition-size-limit-per-response", "N", "How many partitions a broker may tell of"
           " in one answer to --describe."),
)  # fmt: skip


def main() -> int:
    """The entry point."""
    return start(TOOL)


def _work(given: Given) -> int:
    _check(given)
    cluster = open_cluster(given.needed("bootstrap-server"), given.value("command-config"))
    with cluster:
        try:
            if given.has("create"):
                _create(cluster, given)
            elif given.has("alter"):
                _alter(cluster, given)
            elif given.has("list"):
                say("\n".join(_names(cluster, given)))
            elif given.has("describe"):
                from kbroker.cli.kafka.topic_describe import describe

                describe(cluster, given, lambda: _found(cluster, given))
            else:
                _delete(cluster, given)
        except Exception as error:
            return _failed_at_work(given, error)
    return 0


def _failed_at_work(given: Given, error: Exception) -> int:
    from kbroker.cli.kafka.java import error_text
    from kbroker.cli.kafka.tool import is_failure
    from kbroker.client.errors import KafkaError

    del given
    if not is_failure(error):
        raise error
    told = error_text(error) if isinstance(error, KafkaError) else str(error)
    say(f"Error while executing topic command : {told}")
    return 1


def _failed(given: Given, error: Exception) -> int:
    del given
    warn(str(error))
    return 1


def _check(given: Given) -> None:
    if sum(map(given.has, _ACTIONS)) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or"
            " --delete"
        )
    if given.has("delete-config"):
        warn("delete-config option is no longer supported and deprecated since version 4.0;"
             " kafka-configs deletes settings.")  # fmt: skip
    if not given.has("bootstrap-server"):
        raise OptionError("--bootstrap-server must be specified")
    if given.has("describe") and given.has("if-exists"):
        if not given.has("topic") and not given.has("topic-id"):
            raise UsageError("--topic or --topic-id is required to describe a topic")
        if given.has("topic") and given.has("topic-id"):
            say("Only topic id will be used when both --topic and --topic-id are specified and"
                " topicId is not Uuid.ZERO_UUID")  # fmt: skip
    if not given.has("list") and not given.has("describe"):
        check_required(given, "topic")
    if given.has("alter"):
        if given.has("config"):
            raise UsageError(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option'
                f' "[alter]"{_BY_CONFIGS}'
            )
        check_required(given, "partitions")
    _check_together(given)


def _check_together(given: Given) -> None:
    """What stands beside an action that it has no meaning for."""

    def only(option: str, *actions: str) -> None:
        check_invalid(given, option, [action for action in _ACTIONS if action not in actions])

    only("config", "alter", "create")
    only("partitions", "alter", "create")
    only("replication-factor", "create")
    only("replica-assignment", "alter", "create")
    if given.has("create"):
        check_invalid(given, "replica-assignment", ("partitions", "replication-factor"))
    for report in _REPORTS:
        only(report, "describe")
        check_invalid(given, report, ["topics-with-overrides"])
    only("topics-with-overrides", "describe")
    check_invalid(given, "topics-with-overrides", _REPORTS)
    only("if-exists", "alter", "delete", "describe")
    only("if-not-exists", "create")
    only("exclude-internal", "list", "describe")


def _names(cluster: Cluster, given: Given) -> list[str]:
    """Topics whose whole names match --topic, or all."""
    from kbroker.cli.kafka.java import topic_pattern

    told = given.value("topic")
    pattern = None if told is None else topic_pattern(told)
    hidden = _INTERNAL if given.has("exclude-internal") else frozenset()
    return [
        topic.name
        for topic in cluster.topics()
        if topic.name not in hidden and (pattern is None or pattern.fullmatch(topic.name))
    ]


def _found(cluster: Cluster, given: Given) -> list[str]:
    """The same; an error where there is none, unless --if-exists allows that."""
    names = _names(cluster, given)
    if not names and given.value("topic") and not given.has("if-exists"):
        raise ValueError(f"Topic '{given.value('topic')}' does not exist as expected")
    return names


def _create(cluster: Cluster, given: Given) -> None:
    from kbroker.client.admin import NewTopic, create_topics
    from kbroker.client.errors import BrokerError
    from kbroker.errors import ErrorCode

    name = given.needed("topic")
    partitions, factor = given.integer("partitions"), given.integer("replication-factor")
    assigned = _assignment(given)
    configs = _configs(given.values("config"))
    if "." in name or "_" in name:
        say("WARNING: Due to limitations in metric names, topics with a period ('.') or underscore"
            " ('_') could collide. To avoid issues it is best to use either, but not"
            " both.")  # fmt: skip
    if factor is not None and not 1 <= factor <= _FACTOR_MAX:
        raise ValueError(f"The replication factor must be between 1 and {_FACTOR_MAX} inclusive")
    if partitions is not None and partitions < 1:
        raise ValueError("The partitions must be greater than 0")
    topic = NewTopic(
        name,
        -1 if partitions is None else partitions,
        -1 if factor is None else factor,
        configs,
        dict(enumerate(assigned)) or None,
    )
    try:
        create_topics(cluster, [topic]).checked()
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not given.has("if-not-exists"):
            raise
    else:
        say(f"Created topic {name}.")


def _configs(pairs: Iterable[str]) -> dict[str, str]:
    from kbroker.cli.kafka.java import split

    parts = [split(r"\s*=\s*", pair) for pair in pairs]
    if any(len(part) != 2 for part in parts):
        raise ValueError(
            "requirement failed: Invalid topic config: all configs to be added must be in the"
            ' format "key=val".'
        )
    return {key.strip(): value.strip() for key, value in parts}


def _assignment(given: Given) -> list[list[int]]:
    """--replica-assignment: the brokers of each partition."""
    told = given.value("replica-assignment")
    found: list[list[int]] = []
    for index, part in enumerate(told.split(",") if told else ()):
        brokers = [_broker(word.strip()) for word in part.split(":")]
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise ValueError(
                "Partition replica lists may not contain duplicate entries: "
                + ",".join(map(str, twice))
            )
        found.append(brokers)
        if len(brokers) != len(found[0]):
            raise ValueError(f"Partition {index} has different replication factor: {brokers}")
    return found


def _broker(word: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", word, re.ASCII):
        raise ValueError(f'For input string: "{word}"')
    return int(word)


def _alter(cluster: Cluster, given: Given) -> None:
    from kbroker.client.admin import create_partitions

    total = given.integer("partitions")
    assert total is not None
    assigned = _assignment(given)
    names = _found(cluster, given)
    new: dict[str, Sequence[Sequence[int]]] = {}
    for name in names if assigned else ():
        new[name] = assigned[len(cluster.topic(name).partitions) :]
    create_partitions(cluster, dict.fromkeys(names, total), assignments=new).checked()


def _delete(cluster: Cluster, given: Given) -> None:
    from kbroker.client.admin import delete_topics

    delete_topics(cluster, _found(cluster, given)).checked()


TOOL = Tool("Create, delete, describe, or change a topic.", _OPTIONS, _work, _failed)
