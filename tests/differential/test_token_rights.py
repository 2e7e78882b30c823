"""Who may make, see, renew and end delegation tokens, beside Apache Kafka 4.3.

`bob` asks with one right, or a few; the tokens are alice's and carol's, and some are bob's affair.
What he makes is ended again. Requests about tokens want a login: these are not in the table of
test_acls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.support import guarded as g
from tests.support import sasl
from tests.support.guarded import Row, acl
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS, SecuredKafka
from tests.support.waits import wait_for
from tests.support.wire import WireConnection

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
WHO, OWNER = "bob", "carol"
Answer = dict[str, Any]


class Side(NamedTuple):
    """One broker: bob's connection to it, and its tokens by what they are to him."""

    port: int
    bob: WireConnection
    tokens: dict[str, Answer]


def principal(name: str, kind: str = "User") -> Row:
    return {"principal_type": kind, "principal_name": name}


def wanted(owner: str | None, *renewers: str, kind: str = "User", of: str = "User") -> Row:
    """A token of somebody's, None: of who asks."""
    return {
        "owner_principal_type": None if owner is None else of, "owner_principal_name": owner,
        "renewers": [principal(one, kind) for one in renewers], "max_lifetime": -1,
    }  # fmt: skip


def logged_in(port: int, who: str) -> WireConnection:
    one = WireConnection(port, timeout_s=60)
    assert sasl.plain(one, who, PASSWORDS[who])["error_code"] == 0
    return one


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "authorizer.class.name": g.STANDARD, "super.users": "User:ANONYMOUS;User:alice",
        "delegation.token.secret.key": "a secret of the broker",
    }  # fmt: skip
    with SecuredBroker(tmp_path_factory.mktemp("token-rights"), settings) as one:
        yield one


@pytest.fixture(scope="module")
def sides(ours: SecuredBroker, secured_kafka: SecuredKafka) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        yield (_side(stack, ours), _side(stack, secured_kafka))


def _side(stack: ExitStack, broker: SecuredBroker | SecuredKafka) -> Side:
    """Tokens that bob has nothing to do with, may renew, and has asked for."""
    alice, bob = (
        stack.enter_context(logged_in(broker.sasl_port, who)) for who in ("alice", WHO)
    )  # fmt: skip
    row = mine(g.USER, f"User:{OWNER}", g.CREATE_TOKENS)
    with g.granted(broker.port, row):
        tokens = {
            "alice's": alice.call(CREATE, 3, wanted(None)),
            "alice's, for bob to renew": alice.call(CREATE, 3, wanted(None, WHO)),
            "carol's": alice.call(CREATE, 3, wanted(OWNER)),
            "carol's, asked for by bob": bob.call(CREATE, 3, wanted(OWNER)),
        }
    assert all(one["error_code"] == 0 for one in tokens.values()), tokens
    made = {one["token_id"] for one in tokens.values()}

    def is_told() -> bool:
        told = alice.call(DESCRIBE, 3, {"owners": None})["tokens"]
        return made <= {one["token_id"] for one in told}

    wait_for("the tokens", is_told, 60)
    return Side(broker.port, bob, tokens)


# --- requests ------------------------------------------------------------------------------------


def making(**fields: Any) -> Callable[[Side], Any]:
    """What bob gets; he ends what he may have made."""

    def ask(side: Side) -> Any:
        told = side.bob.call(CREATE, 3, fields)
        if told["hmac"]:
            side.bob.call(EXPIRE, 2, {"hmac": told["hmac"], "expiry_time_period": -1})
        lives_ms = told["max_timestamp"] - told["issue_timestamp"]
        names = {name: value for name, value in told.items() if "principal" in name}
        return told["error_code"], names, lives_ms, bool(told["token_id"]), bool(told["hmac"])

    return ask


def about(api: int, token: str, **fields: Any) -> Callable[[Side], Any]:
    def ask(side: Side) -> Any:
        told = side.bob.call(api, 2, {"hmac": side.tokens[token]["hmac"], **fields})
        return told["error_code"], told["expiry_timestamp"] > 0

    return ask


def seeing(owners: list[Row] | None) -> Callable[[Side], Any]:
    """Which of the tokens are told, each in full or not at all."""

    def ask(side: Side) -> Any:
        told = side.bob.call(DESCRIBE, 3, {"owners": owners})
        names = {one["token_id"]: (name, one) for name, one in side.tokens.items()}
        seen = []
        for one in told["tokens"]:
            if one["token_id"] in names:
                name, made = names[one["token_id"]]
                fields = {key: value for key, value in one.items() if "principal" in key}
                seen.append((name, one["hmac"] == made["hmac"], sorted(fields.items()),
                             one["renewers"]))  # fmt: skip
        return told["error_code"], sorted(seen)

    return ask


_OF_ALICE = ("alice's", "alice's, for bob to renew")
_OF_CAROL = ("carol's", "carol's, asked for by bob")

CASES: dict[str, Callable[[Side], Any]] = {
    "make": making(**wanted(None, "alice")),
    "make by name": making(**wanted(WHO)),
    "make for carol": making(**wanted(OWNER, WHO)),
    "make for alice": making(**wanted("alice", WHO)),
    "make for a robot": making(**wanted(OWNER, WHO, of="Robot")),
    "make for robots to renew": making(**wanted(OWNER, "x", kind="Robot")),
    **{f"renew {name}": about(RENEW, name, renew_period=-1) for name in (*_OF_ALICE, *_OF_CAROL)},
    **{f"end {name}": about(EXPIRE, name, expiry_time_period=3_600_000)
       for name in (*_OF_ALICE, *_OF_CAROL)},
    "see all": seeing(None),
    "see none": seeing([]),
    **{f"see those of {name}": seeing([principal(name)]) for name in ("alice", WHO, OWNER, "x")},
    "see those of two": seeing([principal("alice"), principal(OWNER)]),
    "see those of a robot": seeing([principal(OWNER, "Robot")]),
}  # fmt: skip


# --- rights --------------------------------------------------------------------------------------


def mine(kind: int, name: str, operation: int, **more: Any) -> Row:
    return acl(kind, name, operation, **{"principal": f"User:{WHO}", "host": "*", **more})


_CAROL = f"User:{OWNER}"
_PREFIX = {"pattern": g.PREFIXED}
_DENY = {"permission": g.DENY}

#: In a name {} stands for the id of "alice's".
RIGHTS: dict[str, list[Row]] = {
    "nothing": [],
    "make carol's": [mine(g.USER, _CAROL, g.CREATE_TOKENS)],
    "make everybody's": [mine(g.USER, "*", g.CREATE_TOKENS)],
    "make by prefix": [mine(g.USER, "User:c", g.CREATE_TOKENS, **_PREFIX)],
    "the name alone": [mine(g.USER, OWNER, g.ALL)],
    "see carol's": [mine(g.USER, _CAROL, g.DESCRIBE_TOKENS)],
    "see everybody's": [mine(g.USER, "*", g.DESCRIBE_TOKENS)],
    "describe carol": [mine(g.USER, _CAROL, g.DESCRIBE)],
    "all of carol": [mine(g.USER, _CAROL, g.ALL)],
    "see one": [mine(g.DELEGATION_TOKEN, "{}", g.DESCRIBE)],
    "see tokens": [mine(g.DELEGATION_TOKEN, "*", g.DESCRIBE)],
    "see tokens by the other right": [mine(g.DELEGATION_TOKEN, "*", g.DESCRIBE_TOKENS)],
    "all of tokens": [mine(g.DELEGATION_TOKEN, "*", g.ALL)],
    "all but one": [mine(g.DELEGATION_TOKEN, "*", g.ALL),
                    mine(g.DELEGATION_TOKEN, "{}", g.DESCRIBE, **_DENY)],
    "all but carol": [mine(g.USER, "*", g.ALL), mine(g.USER, _CAROL, g.ALL, **_DENY)],
    "everything denied": [mine(kind, "*", g.ALL, **how) for kind in (g.USER, g.DELEGATION_TOKEN)
                          for how in ({}, _DENY)],
    "somebody else's": [mine(g.USER, "*", g.ALL, principal="User:x"),
                        mine(g.DELEGATION_TOKEN, "*", g.ALL, principal="User:x")],
    "other things": [mine(g.CLUSTER, "", g.ALL), mine(g.TOPIC, "*", g.ALL)],
    "everything": [mine(g.USER, "*", g.ALL), mine(g.DELEGATION_TOKEN, "*", g.ALL)],
}  # fmt: skip


def answers(side: Side, right: str) -> dict[str, Any]:
    """All that bob gets who has this right."""
    token_id = side.tokens["alice's"]["token_id"]
    rows = [
        {**row, "resource_name": row["resource_name"].format(token_id)} for row in RIGHTS[right]
    ]
    with g.granted(side.port, *rows):
        return {name: ask(side) for name, ask in CASES.items()}


@pytest.mark.parametrize("right", RIGHTS)
def test_every_request_with_a_right(sides: tuple[Side, Side], right: str) -> None:
    ours, kafkas = (answers(side, right) for side in sides)
    differing = {name: (ours[name], kafkas[name]) for name in CASES if ours[name] != kafkas[name]}
    assert not differing, "\n".join(f"{name}: {pair}" for name, pair in differing.items())
