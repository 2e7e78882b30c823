"""Tokens with signatures: checked beside the control thread, and so often for an address."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.protocol import ApiKey
from kbroker.security import oauth
from kbroker.security.attempts import FAILURES_BURST
from kbroker.security.principals import NOBODY, Principal
from tests.support.control import FakeRequest
from tests.support.sasl_control import Stand
from tests.support.signed import Signer
from tests.support.waits import wait_for

REFUSED = 58
BARE_TOKEN = -1


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("keys"), "ES512")


@pytest.fixture
def stand(tmp_path: Path, signer: Signer) -> Iterator[Stand]:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [signer.jwk()]}))
    url = "listener__name__sasl__oauthbearer__sasl__oauthbearer__jwks__endpoint__url"
    settings = {url.replace("__", "."): keys.as_uri(), "sasl.enabled.mechanisms": "OAUTHBEARER"}
    one = Stand(tmp_path / "data", **settings)
    yield one
    one.control.services.close()
    one.control.close()


def message(stand: Stand, signer: Signer, *, good: bool = True) -> bytes:
    now_s = stand.control.clock.wall_ms() // 1000
    token = signer.token({"sub": "alice", "iat": now_s - 10, "exp": now_s + 60})
    if not good:
        token = token[:-8] + "AAAAAAAA"
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def ask(stand: Stand, data: bytes, version: int = 2) -> FakeRequest:
    """A token of a new connection, not answered yet where it is checked beside."""
    state = stand.handshake("OAUTHBEARER").state
    if version == BARE_TOKEN:
        request = FakeRequest(
            ApiKey.SASL_AUTHENTICATE, version, data, listener="SASL", open=False, state=state
        )
        return stand.control.serve(request)
    return stand.step(state, data, version)


def answered(stand: Stand, request: FakeRequest) -> FakeRequest:
    def done() -> bool:
        stand.control.run_posted()
        stand.control.run_operations()
        return request.answer is not None or request.refused_ms is not None

    wait_for("the answer", done, 60)
    return request


@pytest.mark.parametrize("version", [0, 2, BARE_TOKEN])
def test_a_signature_is_checked_beside_the_control_thread(
    stand: Stand, signer: Signer, version: int
) -> None:
    stand.control.services.authentication.verify_beside(stand.control.posted.append)
    request = ask(stand, message(stand, signer), version)
    assert request.answer is None and stand.who(request) == NOBODY
    answered(stand, request)
    assert stand.who(request) == Principal("User", "alice")
    counts = stand.control.services.logins()["SASL"]
    assert (counts.begun, counts.failed_begun) == (1, 0)


@pytest.mark.parametrize("version", [2, BARE_TOKEN])
def test_a_signature_of_somebody_else_is_refused(
    stand: Stand, signer: Signer, version: int
) -> None:
    stand.control.services.authentication.verify_beside(stand.control.posted.append)
    first = answered(stand, ask(stand, message(stand, signer, good=False), version))
    assert stand.who(first) == NOBODY and b"invalid_token" in (first.answer or b"")
    second = FakeRequest(
        ApiKey.SASL_AUTHENTICATE, BARE_TOKEN, b"\x01", listener="SASL", open=False,
        state=first.state,
    )  # fmt: skip
    stand.control.serve(second)
    assert second.refused_ms == 100
    assert stand.control.services.logins()["SASL"].failed_begun == 1


def test_an_address_that_fails_often_is_refused_unread(
    stand: Stand, signer: Signer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other addresses are not, and after a while it is listened to again."""
    looked_at = 0
    step = oauth.OAuthBearer.step

    def counting(*args):
        nonlocal looked_at
        looked_at += 1
        return step(*args)

    monkeypatch.setattr(oauth.OAuthBearer, "step", counting)
    bad, good = message(stand, signer, good=False), message(stand, signer)
    for _ in range(FAILURES_BURST):
        assert ask(stand, good).refused_ms is None, "what is valid costs nothing"
        assert b"invalid_token" in (ask(stand, bad).answer or b"")
    before = looked_at
    with caplog.at_level(logging.WARNING, "kbroker.security"):
        refused = ask(stand, good)
    assert refused.refused_ms == 100 and stand.told(refused)["error_code"] == REFUSED
    assert looked_at == before and "too many tokens" in caplog.text
    stand.peer = ("10.0.0.9", 5)
    assert stand.who(ask(stand, good)) == Principal("User", "alice")
    stand.peer = ("127.0.0.1", 1)
    stand.control.clock.advance(1000)
    assert stand.who(ask(stand, good)) == Principal("User", "alice")
