"""What the driver asks brokers: which partitions there are, and offsets of them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from kbroker.client.admin_client import Admin
from kbroker.client.errors import ConnectError, KafkaError, RequestTimeoutError
from kbroker.client.offsets import EARLIEST, LATEST, FoundOffset
from kbroker.client.partitions import TopicPartition
from kbroker.client.results import Results
from kbroker.errors import ErrorCode
from pyspark_kbroker.errors import DataLossError, MissingTopicError, OptionError, nearest
from pyspark_kbroker.offsets import ASSIGN, SUBSCRIBE, Bound, Offsets
from pyspark_kbroker.options import ReadOptions, client_settings

__all__ = ["Brokers", "report_loss"]

T = TypeVar("T")
_log = logging.getLogger("pyspark_kbroker")


def report_loss(fail: bool, what: str) -> None:
    """Raises DataLossError, or with failOnDataLoss=false leaves a line in the log."""
    if fail:
        raise DataLossError(f"{what}; failOnDataLoss=false goes on without it")
    _log.warning("%s", what)


class Brokers:
    """The cluster of a read. Connections are made when they are needed; a copy that is pickled has
    none. Raises MissingTopicError, OptionError and the client's errors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._answered = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_admin": None, "_answered": False}

    def close(self) -> None:
        """Connections end; the next question makes new ones."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _ask(self, question: Callable[[Admin], T]) -> T:
        """The answer, tried fetchOffset.numRetries times more than once. Brokers that have never
        answered are not: the client has tried them for default.api.timeout.ms."""
        if self._admin is None:
            self._admin = Admin(client_settings(self._options.kafka, "admin"))
        left = self._options.tries
        while True:
            left -= 1
            try:
                found = question(self._admin)
                self._answered = True
                return found
            except KafkaError as error:
                silent = isinstance(error, ConnectError | RequestTimeoutError)
                if left <= 0 or not error.retriable or (silent and not self._answered):
                    raise
                _log.warning("asked again: %s", error)
                time.sleep(self._options.retry_pause_s)

    # ---- partitions

    def partitions(self, known: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """All that are read now, in order. What is `known` may be gone by now."""
        subscription = self._options.subscription
        if subscription.by not in (SUBSCRIBE, ASSIGN):
            within = re.compile(subscription.pattern).search  # as the official connector
            every_topic = self._ask(lambda admin: admin.list_topics())
            found = [topic for topic in every_topic if within(topic.name)]
            return [TopicPartition(t.name, part.index) for t in found for part in t.partitions]
        wanted = subscription.topics or tuple({where.topic for where in subscription.partitions})
        every = self._of_topics(wanted, {where.topic for where in known})
        if subscription.by == SUBSCRIBE:
            return sorted(every)
        for where in subscription.partitions:
            if where not in every and where not in known:
                count = sum(one.topic == where.topic for one in every)
                raise MissingTopicError(
                    f"assign: topic {where.topic!r} has no partition {where.partition}; it has"
                    f" {count}, from 0 on"
                )
        return sorted(every.intersection(subscription.partitions))

    def _of_topics(self, names: Collection[str], known: Collection[str]) -> set[TopicPartition]:
        told = self._ask(lambda admin: admin.describe_topics(names))
        found: set[TopicPartition] = set()
        for name in names:
            error = told.errors.get(name)
            if error is not None:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise error
                if name not in known:
                    raise self._missing(name)
                continue
            found.update(TopicPartition(name, part.index) for part in told[name].partitions)
        return found

    def _missing(self, name: str) -> MissingTopicError:
        every = self._ask(lambda admin: admin.list_topics())
        near = nearest(name, [info.name for info in every])
        return MissingTopicError(f"there is no topic {name!r}{near}")

    # ---- offsets

    def _list(self, wanted: Mapping[TopicPartition, int]) -> Results[TopicPartition, FoundOffset]:
        def ask(admin: Admin) -> Results[TopicPartition, FoundOffset]:
            return admin.list_offsets(
                dict(wanted.items()), read_committed=self._options.read_committed
            )

        return self._ask(ask) if wanted else Results({})

    def edges(self, partitions: Iterable[TopicPartition], edge: int) -> Offsets:
        """EARLIEST or LATEST of each; without those that are gone."""
        told = self._list(dict.fromkeys(partitions, edge))
        for error in told.errors.values():
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise error
        return {where: found.offset for where, found in told.succeeded.items()}

    def latest(self, known: Mapping[TopicPartition, int]) -> Offsets:
        """The ends of all partitions there are now. An end before what is known is asked for again
        a few times: a broker that has just come to lead may not know its end yet."""
        left = self._options.tries
        while True:
            left -= 1
            found = self.edges(self.partitions(known), LATEST)
            behind = [where for where, end in found.items() if end < known.get(where, 0)]
            if not behind or left <= 0:
                return found
            time.sleep(self._options.retry_pause_s)

    def resolve(self, bound: Bound, partitions: list[TopicPartition]) -> Offsets:
        """Offsets of all these partitions. Raises OptionError where the bound does not tell of
        each, or a time has no record behind it and that is an error."""
        if bound.edge is not None:
            return self.edges(partitions, bound.edge)
        if bound.offsets is not None:
            _all_told(bound, bound.offsets, partitions)
            edges = {
                edge: self.edges([w for w in partitions if bound.offsets[w] == edge], edge)
                for edge in (EARLIEST, LATEST)
            }
            return {
                where: found[where]
                for where in partitions
                if where in (found := edges.get(bound.offsets[where], bound.offsets))
            }
        times = bound.times_of(partitions)
        assert times is not None
        _all_told(bound, times, partitions)
        return self.at_times({where: times[where] for where in partitions}, bound)

    def at_times(self, times_ms: Offsets, bound: Bound | None = None) -> Offsets:
        """The first record at or after its time of each. None so late: the end, or for a bound at
        the start OptionError unless startingOffsetsByTimestampStrategy=latest."""
        told = self._list(times_ms).checked()
        late = [where for where, found in told.items() if found.offset < 0]
        strict = bound is not None and bound.option.startswith("starting")
        if late and strict and not self._options.time_or_latest:
            where = min(late)
            assert bound is not None
            raise OptionError(
                f"{bound.option}: {where} has no record at or after {times_ms[where]} ms;"
                " startingOffsetsByTimestampStrategy=latest begins at its end"
            )
        found = {where: told[where].offset for where in times_ms}
        return found | (self.edges(late, LATEST) if late else {})


def _all_told(bound: Bound, told: Offsets, partitions: Collection[TopicPartition]) -> None:
    missing = sorted(set(partitions) - told.keys())
    if missing:
        raise OptionError(
            f"{bound.option}: nothing is said of {', '.join(map(str, missing[:5]))}; it must tell"
            " of every partition that is read"
        )
    beyond = sorted(told.keys() - set(partitions))
    if beyond:
        raise OptionError(
            f"{bound.option}: {', '.join(map(str, beyond[:5]))} is not among the partitions read"
        )
