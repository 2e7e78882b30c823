"""F28: every request with no right, the wrong ones, the right ones, by prefix, and all denied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema

from kbroker.api import registry
from kbroker.protocol import ApiKey
from tests.differential import test_acls as table
from tests.differential.harness import Script
from tests.support import guarded as g
from tests.support import messages, sasl, wire
from tests.support.guarded import Row, acl
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS
from tests.support.tally import Tally
from tests.support.wire import WireConnection

WHO = "bob"
REFUSED = frozenset({29, 30, 31, 53, 65})
#: What leaves out what may not be seen, or is wrong before rights are looked at.
SILENT = frozenset({
    "metadata of all", "metadata v1 of all", "metadata of the cluster", "metadata by id",
    "list groups", "list transactions", "cluster", "sync without a protocol", "see tokens",
})  # fmt: skip
#: What asks for no right: who one is, what there is to ask, one's own metrics; of tokens, whether
#: one owns or renews them (test_tokens_of_others).
FREE = frozenset({
    ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY,
})  # fmt: skip
#: Whoever may write to some topic may have a producer id.
ANYWHERE = "init a producer"
KINDS = (g.TOPIC, g.GROUP, g.TRANSACTIONAL_ID, g.DELEGATION_TOKEN, g.USER)
SECRET = table.TOPIC.encode()
#: Beside Apache Kafka these are in tests/differential/test_token_rights.py: they want a login.
CASES = table.CASES | {
    "make a token": (38, 3, lambda _: a_token("carol"), None),
    "see tokens": (41, 3, lambda _: {"owners": None}, None),
}
#: With what the names of the table's requests begin.
_BEGINNINGS = {g.TOPIC: "tm2nwb", g.GROUP: "gh", g.TRANSACTIONAL_ID: "xyn", g.USER: "U"}


def mine(kind: int, name: str, **more: Any) -> Row:
    """Everything to a resource, of the one who tries."""
    return acl(kind, name, **{"operation": g.ALL, "principal": f"User:{WHO}", "host": "*", **more})


def all_of(name: str, **more: Any) -> list[Row]:
    return [mine(kind, name, **more) for kind in KINDS]


#: Rights, and whether every request gets through with them.
RIGHTS: dict[str, tuple[list[Row], bool]] = {
    "none": ([], False),
    "wrong": ([
        *all_of("elsewhere"), mine(g.TOPIC, "*", principal="User:alice"),
        mine(g.TOPIC, "*", host="10.9.8.7"), mine(g.TOPIC, "there-", pattern=g.PREFIXED),
    ], False),
    "right": ([*all_of("*"), mine(g.CLUSTER, "")], True),
    "prefix": ([
        mine(g.CLUSTER, ""),
        *(mine(kind, letter, pattern=g.PREFIXED)
          for kind, letters in _BEGINNINGS.items() for letter in letters),
    ], True),
    "deny": ([*all_of("*"), *all_of("*", permission=g.DENY), mine(g.CLUSTER, ""),
              mine(g.CLUSTER, "", permission=g.DENY)], False),
}  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Over the open listener everybody may do everything; `bob` logs in."""
    settings = {"authorizer.class.name": "kbroker", "super.users": g.NOBODY,
                "delegation.token.secret.key": "s"}  # fmt: skip
    with SecuredBroker(tmp_path_factory.mktemp("matrix"), settings) as one:
        wire.create_topic(one.port, table.TOPIC)
        table._ids[one.port] = wire.topic_id(one.port, table.TOPIC)
        for kind in (0, 1):
            find = {"key_type": kind, "coordinator_keys": [table.GROUP]}
            wire.call_once(one.port, wire.FIND_COORDINATOR, 4, find)
        rows = [mine(g.USER, "*", principal="User:alice")]
        with g.granted(one.port, *rows), WireConnection(one.sasl_port) as alice:
            assert sasl.plain(alice, "alice", PASSWORDS["alice"])["error_code"] == 0
            assert alice.call(38, 3, a_token(table.TOPIC))["error_code"] == 0
        yield one


def a_token(owner: str | None) -> Row:
    """A token of somebody's, None: of who asks."""
    return {
        "owner_principal_type": owner and "User", "owner_principal_name": owner, "renewers": [],
        "max_lifetime": -1,
    }  # fmt: skip


def ask(one: WireConnection, api: int, version: int, body: dict[str, Any]) -> tuple[bytes, Any]:
    """The bytes of the answer, and what they say."""
    data = messages.encode(load_request_schema(api, version), body)
    one.send_bytes(messages.request_frame(api, version, data, 1))
    _, answer = messages.response_body(api, version, one.receive_frame())
    return answer, messages.decode(load_response_schema(api, version), answer)


def test_the_table_has_every_api() -> None:
    """Whoever adds one has to say here that it asks for no right."""
    tried = {api for api, *_ in CASES.values()}
    assert {int(key) for key in registry.table()} - tried == {int(key) for key in FREE}


@pytest.mark.parametrize("right", RIGHTS)
def test_every_request(broker: SecuredBroker, right: str, tally: Tally) -> None:
    """Who may not is told so and nothing else; a name that the request does not say never comes
    back. Who may is the control: else the table would prove nothing."""
    granted, may = RIGHTS[right]
    script = Script(broker, "", 0)
    wrong, through = [], 0
    with g.granted(broker.port, *granted), WireConnection(broker.sasl_port) as one:
        assert sasl.plain(one, WHO, PASSWORDS[WHO])["error_code"] == 0
        for name, (api, version, body, _) in CASES.items():
            asked = body(script)
            said = messages.encode(load_request_schema(api, version), asked)
            told, answer = ask(one, api, version, asked)
            refused = bool(REFUSED & set(messages.error_codes(answer)))
            leaks = SECRET in told and SECRET not in said
            if may:
                through += not refused
                wrong += [(name, answer)] if refused else []
            elif leaks or not (refused or name in SILENT or (right, name) == ("wrong", ANYWHERE)):
                wrong.append((name, answer))
    script.close()
    tally("F28", tried=len(CASES), lost=len(wrong), control=through)
    assert not wrong
    with WireConnection(broker.port) as root:
        there = root.call(wire.METADATA, 9, {"topics": None})["topics"]
    assert {one["name"] for one in there if one["name"][:1] != "_"} == {table.TOPIC}
    assert g.told(broker.port) == 0


def test_tokens_of_others(broker: SecuredBroker) -> None:
    """One's own tokens are one's own affair; another's are neither made nor seen nor touched."""

    def told(one: WireConnection) -> set[str]:
        answer = one.call(41, 3, {"owners": None})
        return {token["token_id"] for token in answer["tokens"]}

    with (
        WireConnection(broker.sasl_port) as alice, WireConnection(broker.sasl_port) as bob
    ):  # fmt: skip
        for one, name in ((alice, "alice"), (bob, WHO)):
            assert sasl.plain(one, name, PASSWORDS[name])["error_code"] == 0
        hers = alice.call(38, 3, a_token(None))
        assert hers["error_code"] == 0
        assert bob.call(38, 3, a_token("alice"))["error_code"] == 65
        assert bob.call(39, 2, {"hmac": hers["hmac"], "renew_period": -1})["error_code"] == 63
        assert bob.call(40, 2, {"hmac": hers["hmac"], "expiry_time_period": -1})["error_code"] == 63
        number = hers["token_id"]
        assert number not in told(bob) and number in told(alice)
        for kind, name, operation in (
            (g.DELEGATION_TOKEN, number, g.DESCRIBE), (g.USER, "User:alice", g.DESCRIBE_TOKENS)
        ):  # fmt: skip
            with g.granted(broker.port, mine(kind, name, operation=operation)):
                assert number in told(bob)
        with g.granted(broker.port, mine(g.USER, "User:alice", operation=g.CREATE_TOKENS)):
            assert bob.call(38, 3, a_token("alice"))["error_code"] == 0
            assert number not in told(bob)
