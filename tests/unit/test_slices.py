"""How much the control thread does in one slice of a large request.

What is counted are lines that are run, which no busy machine changes: a loop over the elements of a
request has at least one for each. Decoding, encoding and disk work are other threads'.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema

from kbroker import operations
from kbroker.api import answer, dispatch, registry
from kbroker.offload import Offload
from kbroker.operations import Operation
from kbroker.protocol import ApiKey
from kbroker.security import acls
from kbroker.storage.disk_worker import DiskWorker
from tests.support.control import ControlPlane, FakeRequest
from tests.support.largest import LARGEST, largest_body
from tests.support.messages import encode

ELEMENTS = 2_000
LINES_MAX = 1_500
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "delegation.token.secret.key": "secret",
}
#: Requests whose work is all in slices.
SLICED = (
    "OffsetCommit", "OffsetCommit, one partition", "CreateTopics", "CreateTopics, settings",
    "DescribeGroups", "DeleteGroups", "OffsetFetch", "ConsumerGroupDescribe", "Metadata",
)  # fmt: skip
#: A client that may do everything, and one whose rights are looked up by name.
RIGHTS = ("super user", "by name")


class Lines:
    """Counts lines of Python from `begin` to `end`, but for those within `uncounted`."""

    def __init__(self) -> None:
        self.most = 0
        self._count = 0

    def _trace(self, frame: Any, event: str, arg: Any) -> Callable[..., Any]:
        self._count += 1
        return self._trace

    @contextmanager
    def slice(self) -> Iterator[None]:
        before, outer = sys.gettrace(), self._count
        self._count = 0
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            self.most = max(self.most, self._count)
            self._count = outer

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        count, before = self._count, sys.gettrace()
        sys.settrace(None)
        try:
            yield
        finally:
            sys.settrace(before)
            self._count = count


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Slices end at the first point where they may."""
    found = Lines()
    run, offload, disk = Operation.run, Offload.run, DiskWorker._timed

    def run_counted(*args: Any, **fields: Any) -> bool:
        with found.slice():
            return run(*args, **fields)

    def offload_uncounted(*args: Any, **fields: Any) -> Any:
        with found.uncounted():
            return offload(*args, **fields)

    def disk_uncounted(*args: Any) -> Any:
        with found.uncounted():
            return disk(*args)

    monkeypatch.setattr(dispatch, "SMALL_BYTES", 0)
    monkeypatch.setattr(answer, "SMALL_BYTES", 0)
    monkeypatch.setattr(operations, "FIRST_SLICE_NS", 0)
    monkeypatch.setattr(operations, "SLICE_NS", 0)
    monkeypatch.setattr(Operation, "run", run_counted)
    monkeypatch.setattr(Offload, "run", offload_uncounted)
    monkeypatch.setattr(DiskWorker, "_timed", disk_uncounted)
    return found


def allow_by_name(control: ControlPlane) -> None:
    """Take the rights on the cluster, give those on topics and groups."""
    authorizer = control.services.authorizer
    assert authorizer is not None
    authorizer.super_users = frozenset()
    for kind in (acls.TOPIC, acls.GROUP, acls.TRANSACTIONAL_ID):
        authorizer.add(
            acls.Acl(kind, "*", acls.LITERAL, "User:ANONYMOUS", "*", acls.ALL, acls.ALLOW)
        )


@pytest.mark.parametrize("rights", RIGHTS)
@pytest.mark.parametrize("name", SLICED)
def test_no_slice_grows_with_the_request(
    tmp_path: Path, lines: Lines, name: str, rights: str
) -> None:
    control = ControlPlane(tmp_path, {**AUTHORIZER, "super.users": "User:ANONYMOUS"})
    control.create("ordinary")
    control.create("__consumer_offsets")
    control.run_posted()
    key, version, _, arrays = LARGEST[name]
    control.dispatcher._table = dict(registry.table())
    if rights == "by name":
        allow_by_name(control)
    for elements in (10, ELEMENTS):  # the first loads modules
        lines.most = 0
        body = largest_body(name, elements * arrays)
        with lines.slice():
            control.dispatcher.serve(FakeRequest(key, version, body))
        control.run_operations()
        control.run_posted()
    assert 0 < lines.most < LINES_MAX
    control.close()


def test_settings_of_a_broker_reach_its_logs_in_slices(tmp_path: Path, lines: Lines) -> None:
    partitions = 3_000
    control = ControlPlane(tmp_path)
    control.create("many", partitions)
    control.create("last", retention_ms="7")
    setting = {"name": "log.retention.ms", "config_operation": 0, "value": "123456"}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [setting]}
    lines.most = 0
    answered = control.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert answered["responses"][0]["error_code"] == 0
    found = {control.log("many", index).config["retention_ms"] for index in range(partitions)}
    assert found == {123456} and control.log("last").config["retention_ms"] == 7
    assert lines.most < 10 * partitions  # of some 80 for each, as the disk worker has no thread
    control.close()


@pytest.mark.parametrize(
    "topic",
    [
        {"num_partitions": 1, "replication_factor": 1},
        {"num_partitions": -1, "replication_factor": -1,
         "assignments": [{"partition_index": 0, "broker_ids": [1] * ELEMENTS}]},
    ],
    ids=["given twice", "brokers"],
)  # fmt: skip
def test_a_topic_to_create_is_looked_at_in_slices(
    tmp_path: Path, lines: Lines, topic: dict[str, Any]
) -> None:
    control = ControlPlane(tmp_path)
    control.create("other")
    topics = [{"name": "t", **topic}] * (1 if "assignments" in topic else ELEMENTS)
    fields = {"topics": topics, "timeout": 30_000}
    body = encode(load_request_schema(ApiKey.CREATE_TOPICS, 7), fields)
    control.dispatcher._table = dict(registry.table())
    lines.most = 0
    request = control.serve(FakeRequest(ApiKey.CREATE_TOPICS, 7, body))
    (result,) = control.decoded(request)["topics"]
    assert result["error_code"] == (39 if "assignments" in topic else 42)
    assert lines.most < LINES_MAX
    control.close()
