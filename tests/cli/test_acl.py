"""`kbroker acl`: made, listed, deleted where there is an authorizer, and refused where not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support import guarded as g
from tests.support.kbroker import KbrokerProcess


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    settings = {**g.SETTINGS, "super.users": g.NOBODY}
    broker = KbrokerProcess(tmp_path_factory.mktemp("guarded"), settings)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def acl(guarded: KbrokerProcess, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `kbroker acl` on a broker without ACLs."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", guarded.bootstrap)
    run("acl", "delete", "--all")
    return lambda *words, **more: run("acl", *words, **more)


def rows(acl: Run, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(acl("list", *words, "-o", "json").out))


def test_made_listed_deleted(acl: Run) -> None:
    said = acl("create", "alice", "--topic", "t", "--topic", "u", "--operation", "read")
    assert said.out.decode().count("User:alice READ TOPIC") == 2
    acl("create", "*", "--topic", "p-", "--prefix", "--operation", "all", "--deny",
        "--host", "::1")  # fmt: skip
    found = rows(acl)
    assert [(one["name"], one["principal"], one["permission"]) for one in found] == [
        ("p-", "User:*", "DENY"), ("t", "User:alice", "ALLOW"), ("u", "User:alice", "ALLOW")
    ]  # fmt: skip
    assert (found[0]["pattern"], found[0]["host"]) == ("PREFIXED", "0:0:0:0:0:0:0:1")
    assert len(rows(acl, "alice")) == 2 and len(rows(acl, "alice", "--topic", "t")) == 1
    assert [one["name"] for one in rows(acl, "--topic", "p-1", "--matching")] == ["p-"]
    assert rows(acl, "--topic", "p-1") == []
    assert "would be deleted" in acl("delete", "alice", "--topic", "t", "--dry-run").out.decode()
    assert len(rows(acl)) == 3
    acl("delete", "alice", "--topic", "t")
    assert [one["name"] for one in rows(acl)] == ["p-", "u"]
    acl("delete", "alice")
    assert [one["name"] for one in rows(acl)] == ["p-"]


def test_what_is_not_there_is_not_deleted(acl: Run) -> None:
    acl("create", "alice", "--topic", "t", "--operation", "read")
    for words in (["bob"], ["alice", "--topic", "u"], ["bob", "--dry-run"]):
        assert acl("delete", *words, status=1) == (b"", "kbroker: there are no such ACLs\n")
    assert acl("delete", "bob", "--if-exists") == (b"there are no such ACLs\n", "")
    assert len(rows(acl)) == 1
    acl("delete", "--all")
    assert acl("delete", "--all").out == b"there are no such ACLs\n"


def test_what_is_not_usual_is_told(acl: Run) -> None:
    said = acl("create", "a", "--topic", "p-", "--prefix", "--host", "10.0.0.1", "--operation",
               "read").out  # fmt: skip
    assert said == b"ACL ALLOW User:a READ TOPIC PREFIXED 'p-' from 10.0.0.1 created\n"
    assert acl("create", "a", "--topic", "t", "--operation", "read").out == (
        b"ACL ALLOW User:a READ TOPIC 't' created\n"
    )
    assert b"TOPIC PREFIXED 'p-' from 10.0.0.1 deleted" in acl("delete", "a").out


def test_what_clients_need(acl: Run) -> None:
    acl("create", "p", "--topic", "t", "--transactional-id", "x", "--producer")
    acl("create", "c", "--topic", "t", "--group", "g", "--consumer")
    acl("create", "a", "--cluster", "--operation", "describe-configs", "--operation", "ALL")
    acl("create", "a", "--user", "b", "--operation", "create-tokens")
    told = {(one["principal"], one["resource"], one["operation"]) for one in rows(acl)}
    assert told == {
        ("User:p", "TOPIC", "WRITE"), ("User:p", "TOPIC", "DESCRIBE"),
        ("User:p", "TOPIC", "CREATE"), ("User:p", "TRANSACTIONAL_ID", "WRITE"),
        ("User:p", "TRANSACTIONAL_ID", "DESCRIBE"), ("User:c", "TOPIC", "READ"),
        ("User:c", "TOPIC", "DESCRIBE"), ("User:c", "GROUP", "READ"),
        ("User:a", "CLUSTER", "DESCRIBE_CONFIGS"), ("User:a", "CLUSTER", "ALL"),
        ("User:a", "USER", "CREATE_TOKENS"),
    }  # fmt: skip


def test_what_makes_no_sense(acl: Run) -> None:
    for words in (
        ("create", "alice"), ("create", "alice", "--topic", "t"), ("delete",),
        ("delete", "alice", "--all"), ("list", "--prefix", "--matching"),
    ):  # fmt: skip
        assert acl(*words, status=2).err
    for kind, operation in (("--cluster", "write"), ("--group=g", "create"), ("--token=t", "read")):
        said = acl("create", "alice", kind, "--topic", "t", "--operation", operation, status=2).err
        assert f"{operation} means nothing of a " in said
    assert rows(acl) == []
    assert acl("create", "alice", "--topic", "", "--operation", "read", status=1).err


def test_without_an_authorizer(run: Run) -> None:
    assert "No Authorizer is configured" in run("acl", "list", status=1).err
