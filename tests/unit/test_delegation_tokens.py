"""Delegation tokens: who may make, renew, end and see them, and that they let their bearer in."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.api.delegation import TokenSweep
from kbroker.protocol import ApiKey
from kbroker.security.principals import Principal
from tests.support.sasl_control import HASHES, Stand


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Stand]:
    one = Stand(tmp_path, delegation_token_secret_key="hush")
    yield one
    one.control.close()


def token_call(
    stand: Stand, key: ApiKey, who: str | None = "alice", *, by_token: bool = False, **fields: Any
) -> dict[str, Any]:
    principal = None if who is None else Principal("User", who)
    version = {ApiKey.CREATE_DELEGATION_TOKEN: 3, ApiKey.DESCRIBE_DELEGATION_TOKEN: 3}.get(key, 2)
    return stand.call(principal, key, version, by_token=by_token, **fields)


def make(stand: Stand, who: str | None = "alice", **fields: Any) -> dict[str, Any]:
    wanted = {"owner_principal_type": None, "owner_principal_name": None, "renewers": [],
              "max_lifetime": -1} | fields  # fmt: skip
    return token_call(stand, ApiKey.CREATE_DELEGATION_TOKEN, who, **wanted)


def test_a_token_lets_its_bearer_in_as_its_owner(tokens: Stand) -> None:
    made = make(tokens)
    assert made["error_code"] == 0
    assert (made["principal_name"], made["token_requester_principal_name"]) == ("alice", "alice")
    assert made["max_timestamp"] - made["issue_timestamp"] == 604_800_000
    assert made["expiry_timestamp"] - made["issue_timestamp"] == 86_400_000
    password = base64.b64encode(made["hmac"]).decode()
    for mechanism in HASHES:
        done = tokens.scram(mechanism, made["token_id"], password, token=True)
        assert tokens.who(done) == Principal("User", "alice")
        assert tokens.control.services.principals.by_token(done.principal)
        assert done.session_ms == 86_400_000
        for refused in (
            tokens.scram(mechanism, made["token_id"], password),  # no user is called so
            tokens.scram(mechanism, made["token_id"], "other", token=True),
            tokens.scram(mechanism, "alice", password, token=True),
        ):
            assert refused.refused_ms == 100
    tokens.control.clock.advance(86_400_001)
    assert tokens.scram("SCRAM-SHA-256", made["token_id"], password, token=True).refused_ms == 100


def test_tokens_make_no_tokens_and_nobody_does(tokens: Stand) -> None:
    for key, fields in (
        (ApiKey.RENEW_DELEGATION_TOKEN, {"hmac": b"x", "renew_period": -1}),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, {"hmac": b"x", "expiry_time_period": -1}),
        (ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": None}),
    ):
        assert token_call(tokens, key, None, **fields)["error_code"] == 64
        assert token_call(tokens, key, by_token=True, **fields)["error_code"] == 64
    assert make(tokens, None)["error_code"] == 64


def test_without_a_secret_there_are_no_tokens(tmp_path: Path) -> None:
    one = Stand(tmp_path)
    assert make(one)["error_code"] == 61
    one.control.close()


def test_tokens_are_renewed_and_ended_by_whom_they_concern(tokens: Stand) -> None:
    renewers = [{"principal_type": "User", "principal_name": "bob"}]
    made = make(tokens, renewers=renewers, max_lifetime=100_000_000)
    proof, issued = made["hmac"], made["issue_timestamp"]

    def renew(who: str, period: int = -1, hmac: bytes = proof) -> dict[str, Any]:
        return token_call(tokens, ApiKey.RENEW_DELEGATION_TOKEN, who, hmac=hmac,
                          renew_period=period)  # fmt: skip

    def expire(who: str, period: int = -1, hmac: bytes = proof) -> dict[str, Any]:
        return token_call(tokens, ApiKey.EXPIRE_DELEGATION_TOKEN, who, hmac=hmac,
                          expiry_time_period=period)  # fmt: skip

    assert renew("mallory")["error_code"] == 63 == expire("mallory")["error_code"]
    assert renew("bob", hmac=b"none")["error_code"] == 62 == expire("bob", hmac=b"")["error_code"]
    tokens.control.clock.advance(1000)
    for who, period, until in (("bob", 5000, 6000), ("alice", -1, 86_401_000)):
        told = renew(who, period)
        assert (told["error_code"], told["expiry_timestamp"] - issued) == (0, until)
    tokens.control.clock.advance(50_000_000)
    assert renew("bob")["expiry_timestamp"] == made["max_timestamp"]
    assert expire("bob", 10)["expiry_timestamp"] - issued == 50_001_010
    tokens.control.clock.advance(20)
    assert renew("bob")["error_code"] == 66 == expire("bob", 10)["error_code"]
    assert expire("bob")["error_code"] == 0
    assert renew("alice")["error_code"] == 62


def test_tokens_are_described(tokens: Stand) -> None:
    bob = {"principal_type": "User", "principal_name": "bob"}
    mine = make(tokens, renewers=[bob])
    his = make(tokens, owner_principal_type="User", owner_principal_name="carol")
    assert (his["principal_name"], his["token_requester_principal_name"]) == ("carol", "alice")

    def told(owners: list[dict[str, str]] | None, who: str = "alice") -> set[str]:
        answer = token_call(tokens, ApiKey.DESCRIBE_DELEGATION_TOKEN, who, owners=owners)
        assert answer["error_code"] == 0
        return {one["token_id"] for one in answer["tokens"]}

    assert told(None) == {mine["token_id"], his["token_id"]}
    assert told([]) == set()
    assert told([bob]) == {mine["token_id"]}
    alice = {"principal_type": "User", "principal_name": "alice"}
    assert told([alice]) == {mine["token_id"], his["token_id"]}, "she has asked for his"
    robot = {"principal_type": "Robot", "principal_name": "x"}
    assert make(tokens, renewers=[robot])["error_code"] == 67


def test_tokens_that_are_over_are_removed(tokens: Stand) -> None:
    sweep = TokenSweep(tokens.control.services)
    kept = make(tokens)
    ended = make(tokens, max_lifetime=1000)
    for _, _ in itertools.product(range(2), range(2)):
        sweep.tick()
    assert len(tokens.control.store.image.tokens) == 2
    tokens.control.clock.advance(3_600_000)
    sweep.tick()
    assert set(tokens.control.store.image.tokens) == {kept["token_id"]}
    assert ended["token_id"] != kept["token_id"]
