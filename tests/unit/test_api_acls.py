"""CreateAcls, DescribeAcls, DeleteAcls: what is refused, kept, told; and the audit."""

from __future__ import annotations

import json
import logging

import pytest

from kbroker.api import data_rights
from kbroker.bounded_log import LINES_BURST, LINES_PER_S
from kbroker.clock import FakeClock
from kbroker.protocol import ApiKey
from kbroker.security import acls as a
from kbroker.security.audit import Audit
from kbroker.server.lines import JsonLine, Logfmt
from tests.support import guarded as g
from tests.support.control import ControlPlane

HERE = ("10.0.0.1", 1)


@pytest.fixture
def guarded(control_with):
    """Without ACLs everybody may do everything; nobody is a super user."""
    return control_with(
        authorizer_class_name="kbroker",
        super_users="User:root; User:other",
        allow_everyone_if_no_acl_found="true",
    )


def create(control, *rows, version=3):
    answer = control.call(ApiKey.CREATE_ACLS, version, creations=list(rows))
    return [one["error_code"] for one in answer["results"]]


def told(control, version=3, **filters):
    answer = control.call(ApiKey.DESCRIBE_ACLS, version, **{**g.EVERYTHING, **filters})
    assert answer["error_code"] == 0
    return sum(len(one["acls"]) for one in answer["resources"])


@pytest.mark.parametrize("version", range(1, 4))
def test_made_told_and_deleted(guarded, version):
    one, two = g.acl(g.TOPIC, "t", g.READ), g.acl(g.TOPIC, "t", g.WRITE, pattern=g.PREFIXED)
    assert create(guarded, one, two, one, version=version) == [0, 0, 0]
    assert told(guarded, version) == len(guarded.store.image.acls) == 2
    assert create(guarded, one, version=version) == [0], "there already"
    assert told(guarded, version) == 2
    assert told(guarded, version, resource_name_filter="tt", pattern_type_filter=a.MATCH) == 1
    before = guarded.data_plane.rights_version
    answer = guarded.call(ApiKey.DELETE_ACLS, version, filters=[g.the_filter(one), g.EVERYTHING])
    assert [len(found["matching_acls"]) for found in answer["filter_results"]] == [1, 2]
    assert (told(guarded, version), len(guarded.store.image.acls)) == (0, 0)
    assert guarded.data_plane.rights_version > before


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_name": ""}, {"resource_type": 99}, {"resource_pattern_type": 9},
        {"operation": 99}, {"operation": -3}, {"permission_type": 9}, {"principal": "alice"},
        {"resource_type": a.CLUSTER, "resource_name": "other"},
    ],
)  # fmt: skip
def test_what_cannot_be_made(guarded, changes):
    good = g.acl(g.TOPIC, "t", g.READ)
    assert create(guarded, {**good, **changes}, good) == [42, 0]
    assert told(guarded) == 1


@pytest.mark.parametrize(
    "changes",
    [{"resource_type": 1}, {"resource_pattern_type": 1}, {"resource_pattern_type": 2},
     {"operation": 1}, {"permission_type": 1}],
)  # fmt: skip
def test_what_only_a_filter_can_say_fails_the_request(guarded, changes):
    good = g.acl(g.TOPIC, "t", g.READ)
    assert create(guarded, good, {**good, **changes}) == [-1, -1]
    assert told(guarded) == 0


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation"])
def test_unknown_closes_the_connection(guarded, field):
    row = {**g.acl(g.TOPIC, "t", g.READ), field: 0}
    assert guarded.send(ApiKey.CREATE_ACLS, 3, creations=[row]).closed
    wanted = {**g.EVERYTHING, "operation": 0}
    assert guarded.send(ApiKey.DELETE_ACLS, 3, filters=[wanted]).closed
    assert guarded.send(ApiKey.DESCRIBE_ACLS, 3, **wanted).closed


def test_a_filter_of_the_future_means_none(guarded):
    create(guarded, g.acl(g.TOPIC, "t", g.READ))
    assert told(guarded, operation=77) == 0
    answer = guarded.call(ApiKey.DELETE_ACLS, 3, filters=[{**g.EVERYTHING, "operation": 77}])
    assert answer["filter_results"][0]["error_code"] == 42 and told(guarded) == 1


def test_acls_are_there_after_a_start_and_in_a_snapshot(guarded, tmp_path):
    rows = [g.acl(g.TOPIC, f"t{number}", g.READ) for number in range(5)]
    create(guarded, *rows)
    guarded.call(ApiKey.DELETE_ACLS, 3, filters=[g.the_filter(rows[0])])
    guarded.store.snapshot()
    create(guarded, g.acl(g.GROUP, "g", g.READ))
    guarded.close()
    again = ControlPlane(tmp_path, dict(guarded.config.static))
    assert told(again) == 5
    again.close()


def test_who_may_not_is_told_nothing_and_the_audit_is(guarded, caplog):
    create(guarded, g.acl(g.CLUSTER, "", g.ALL, host="127.0.0.1"))
    guarded.peer = HERE
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        answer = guarded.call(ApiKey.DESCRIBE_ACLS, 3, **g.EVERYTHING)
    assert (answer["error_code"], answer["resources"]) == (31, [])
    assert create(guarded, g.acl(g.TOPIC, "t", g.READ)) == [31]
    (record,) = caplog.records
    line = json.loads(JsonLine().format(record))
    assert line["msg"] == "denied" and line["logger"] == "kbroker.audit"
    assert {line[name] for name in ("principal", "host", "api", "operation", "resource")} == {
        "User:ANONYMOUS", "10.0.0.1", "DESCRIBE_ACLS", "DESCRIBE", "CLUSTER"
    }  # fmt: skip


def test_changes_are_told_with_what_changed_and_no_values(guarded, caplog):
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        guarded.create("t", retention_ms="77777")
        create(guarded, g.acl(g.TOPIC, "t", g.ALL, host="*"))
        settings = [{"name": "retention.ms", "value": "88888", "config_operation": 0}]
        guarded.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, validate_only=False, resources=[
            {"resource_type": 2, "resource_name": "t", "configs": settings}])  # fmt: skip
    told = [(record.getMessage(), record.fields) for record in caplog.records]
    assert [message for message, _ in told] == [
        "topic created", "ACL created", "settings changed"
    ]  # fmt: skip
    assert told[2][1]["settings"] == "retention.ms" and "88888" not in str(told)


def test_odd_characters_make_no_lines_and_no_colours(guarded, caplog):
    odd = "User:a\n\x1b[31m\x9b\u202e\u2028\" x=y"
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        assert create(guarded, g.acl(g.TOPIC, "t", g.READ, principal=odd)) == [0]
    for form in (JsonLine(), Logfmt()):
        assert form.format(caplog.records[0]).isprintable()
    answer = guarded.call(ApiKey.DESCRIBE_ACLS, 3, **g.EVERYTHING)
    assert answer["resources"][0]["acls"][0]["principal"] == odd


def test_the_audit_is_bounded(caplog):
    clock = FakeClock()
    audit = Audit(clock)
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        for number in range(LINES_BURST + 100):
            audit.refused("denied", number=number)
        audit.changed("topic created", topic="x" * 5000)
        assert len(caplog.records) == LINES_BURST + 1, "changes have lines of their own"
        assert len(caplog.records[-1].fields["topic"]) < 400
        audit.tell_dropped()
        audit.tell_dropped()
        last = caplog.records[-1]
        assert (last.msg, last.fields) == ("denied, more", {"left_out": "100"})
        assert len(caplog.records) == LINES_BURST + 2
        clock.advance(1000)
        for _ in range(1000):
            audit.refused("denied")
    assert len(caplog.records) == LINES_BURST + 2 + LINES_PER_S


def test_a_super_user_is_named_rightly(control_with):
    with pytest.raises(Exception, match=r"super\.users"):
        control_with(authorizer_class_name="kbroker", super_users="alice")


def test_what_was_denied_is_asked_again_after_a_while(guarded):
    """While nothing is denied, nothing is."""
    denials, plane = data_rights.Denials(guarded.services), guarded.data_plane
    for denied, renewed in ((0, 0), (1, 1), (1, 0), (7, 1)):
        plane.denied, before = denied, guarded.services.authorizer.version
        denials.tick()
        assert guarded.services.authorizer.version == before, "not yet"
        guarded.clock.advance(data_rights.TOLD_AGAIN_MS)
        denials.tick()
        assert guarded.services.authorizer.version == before + renewed
    assert plane.rights_version == guarded.services.authorizer.version + 1
