"""Signed tokens: what openssl signs is verified, and nothing else."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kbroker.config.types import ConfigError
from kbroker.security import jwt, oauth
from kbroker.security.jwks import KeySet, parse_keys
from kbroker.security.mechanism import AuthenticationError
from kbroker.security.unsecured import unsecured_demands
from tests.support.signed import Signer, url64
from tests.support.waits import passes, wait_for

NOW_S = 1_700_000_000
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]


def good(**more: Any) -> dict[str, Any]:
    claims = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60} | more
    return {name: value for name, value in claims.items() if value is not None}


@pytest.fixture(scope="module")
def signers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Signer]:
    directory = tmp_path_factory.mktemp("keys")
    return {name: Signer(directory, name) for name in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_signatures(signers: dict[str, Signer], algorithm: str) -> None:
    signer = signers[algorithm]
    key = signer.jwk()
    for number in range(5):
        token = jwt.take_apart(signer.token(good(n=number)))
        jwt.verify(token, key)
        flipped = bytearray(token.signature)
        flipped[number * 7] ^= 1
        for wrong in (
            token._replace(signature=bytes(flipped)),
            token._replace(signature=b""),
            token._replace(signature=token.signature + b"\0"),
            token._replace(signature=bytes(len(token.signature))),
            token._replace(signature=b"\xff" * len(token.signature)),
            token._replace(signed=token.signed + b"x"),
        ):
            with pytest.raises(jwt.TokenError):
                jwt.verify(wrong, key)


def test_keys_and_headers_that_do_not_fit(signers: dict[str, Signer]) -> None:
    signer = signers["RS256"]
    key = signer.jwk()
    token = jwt.take_apart(signer.token(good()))
    for wrong in (
        key | {"use": "enc"}, key | {"alg": "RS512"}, key | {"kty": "EC"}, key | {"e": "AQ"},
        key | {"n": key["n"][:100]}, key | {"n": 5}, {"kty": "RSA"}, {}, key | {"n": "***"},
        signers["ES256"].jwk(), signers["RS512"].jwk(),
    ):  # fmt: skip
        with pytest.raises(jwt.TokenError):
            jwt.verify(token, wrong)
    for algorithm in ("none", "HS256", "", None, 5, ["RS256"], "rs256"):
        with pytest.raises(jwt.TokenError):
            jwt.verify(token._replace(header=token.header | {"alg": algorithm}), key)
    with pytest.raises(jwt.TokenError):
        jwt.verify(token._replace(header=token.header | {"crit": ["x"]}), key)
    other = signers["ES256"].jwk()
    for part in ("x", "y"):
        off_curve = other | {part: url64(b"\1" * 32)}
        with pytest.raises(jwt.TokenError, match="a key that is none"):
            jwt.verify(jwt.take_apart(signers["ES256"].token(good())), off_curve)


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "a.b", "a.b.c.d", "%.%.%", "e30.e30", "e30.W10.", "bnVsbA.e30.",
        "e30.e30.\u00e4", "e30." + "W" * 70_000 + ".", url64(b"[" * 20_000) + ".e30.",
        url64(b'{"exp":' + b"9" * 30_000 + b"}") + ".e30.",
    ],
)  # fmt: skip
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(jwt.TokenError):
        jwt.take_apart(text)


def mechanism(keys: oauth.Keys, **demands: Any) -> oauth.OAuthBearer:
    return oauth.OAuthBearer(oauth.Demands(**demands), keys, lambda: NOW_S * 1000)


def message(token: str, authzid: str = "", extensions: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


@pytest.fixture
def rs(signers: dict[str, Signer]) -> tuple[Signer, Callable[..., oauth.OAuthBearer]]:
    signer = signers["RS256"]
    key = signer.jwk()

    def keys(key_id: str | None) -> list[Any]:
        return [key] if key_id in (None, signer.key_id) else []

    return signer, lambda **demands: mechanism(keys, **demands)


def test_a_token_says_who_the_client_is(
    rs: tuple[Signer, Callable[..., oauth.OAuthBearer]],
) -> None:
    signer, made = rs
    step = made().step(None, message(signer.token(good())))
    assert (step.answer, str(step.who), step.ends_ms) == (b"", "User:alice", (NOW_S + 60) * 1000)
    named = message(signer.token(good()), "a=alice", "traceId=123\x01")
    assert str(made().step(None, named).who) == "User:alice"
    demands = {"audiences": frozenset({"kafka"}), "issuer": "us", "subject": "email"}
    claims = good(aud=["x", "kafka"], iss="us", email="a@b", sub=None)
    assert str(made(**demands).step(None, message(signer.token(claims))).who) == "User:a@b"
    assert made().step(None, message(signer.token(good(exp=NOW_S - 29)))).who


@pytest.mark.parametrize(
    ("claims", "demands"),
    [
        (good(exp=NOW_S - 31), {}), (good(exp=None), {}), (good(exp="x"), {}),
        (good(exp=True), {}), (good(exp=-1), {}), (good(exp=1e300), {}),
        (good(iat=None), {}), (good(iat="now"), {}), (good(nbf=NOW_S + 31), {}),
        (good(sub=None), {}), (good(sub=""), {}), (good(sub=" "), {}), (good(sub=["a"]), {}),
        (good(aud="kafka"), {}), (good(), {"audiences": frozenset({"kafka"})}),
        (good(aud=["x", 5]), {"audiences": frozenset({"kafka"})}),
        (good(), {"issuer": "us"}), (good(iss="them"), {"issuer": "us"}),
    ],
)  # fmt: skip
def test_claims_that_are_refused(
    rs: tuple[Signer, Callable[..., oauth.OAuthBearer]],
    claims: dict[str, Any],
    demands: dict[str, Any],
) -> None:
    """The client is told so in JSON, asks for the verdict, and gets it."""
    signer, made = rs
    one = made(**demands)
    step = one.step(None, message(signer.token(claims)))
    assert json.loads(step.answer) == {"status": "invalid_token"} and step.who is None
    with pytest.raises(AuthenticationError):
        one.step(step.state, b"\x01")


def test_tokens_of_other_keys_and_of_none(
    rs: tuple[Signer, Callable[..., oauth.OAuthBearer]], signers: dict[str, Signer]
) -> None:
    signer, made = rs
    head = url64(b'{"alg":"none"}')
    unsigned = f"{head}.{url64(json.dumps(good()).encode())}."
    for token in (
        signer.token(good(), kid="two"), signers["RS512"].token(good()), unsigned, "x.y.z",
    ):  # fmt: skip
        assert made().step(None, message(token)).who is None
    open_to_all = mechanism(lambda key_id: [], signed=False)
    assert str(open_to_all.step(None, message(unsigned)).who) == "User:alice"
    assert open_to_all.step(None, message(signer.token(good()))).who is None


def login(options: str, claims: dict[str, Any]) -> str | None:
    """Who an unsigned token is, by a listener's JAAS settings."""
    demands = unsecured_demands(f"org.kafka.OAuthBearerLoginModule required {options};")
    one = oauth.OAuthBearer(demands, lambda key_id: [], lambda: NOW_S * 1000)
    head = url64(b'{"alg":"none"}')
    who = one.step(None, message(f"{head}.{url64(json.dumps(claims).encode())}.")).who
    return None if who is None else str(who)


@pytest.mark.parametrize(
    ("options", "claims", "who"),
    [
        ("", good(iat=None), "User:alice"),
        ("", good(exp=NOW_S), None),
        ("", good(iat=NOW_S + 1), None),
        ("", good(iat=NOW_S - 5, exp=NOW_S - 5), None),
        ('unsecuredValidatorAllowableClockSkewMs="1500"', good(exp=NOW_S - 1), "User:alice"),
        ('unsecuredValidatorAllowableClockSkewMs="1500"', good(exp=NOW_S - 2), None),
        ('unsecuredValidatorAllowableClockSkewMs="1500"', good(iat=NOW_S + 1), "User:alice"),
        ('unsecuredValidatorPrincipalClaimName="email"', good(email="a@b"), "User:a@b"),
        ('unsecuredValidatorPrincipalClaimName="email"', good(), None),
        ('unsecuredValidatorRequiredScope="kafka"', good(), None),
        ('unsecuredValidatorRequiredScope="kafka"', good(scope="kafka"), "User:alice"),
        ('unsecuredValidatorRequiredScope="a b"', good(scope=["b", " a "]), "User:alice"),
        ('unsecuredValidatorRequiredScope="a b"', good(scope="a b"), None),
        ('unsecuredValidatorRequiredScope="a b"', good(scope=["a", 5]), None),
        ('unsecuredValidatorRequiredScope="a" unsecuredValidatorScopeClaimName="s"',
         good(scope=["a"]), None),
        ('unsecuredValidatorRequiredScope="a" unsecuredValidatorScopeClaimName="s"',
         good(s=["a"]), "User:alice"),
        ('unsecuredLoginStringClaim_sub="broker"', good(), "User:alice"),
    ],
)  # fmt: skip
def test_unsigned_tokens_by_the_settings_of_kafkas_handler(
    options: str, claims: dict[str, Any], who: str | None
) -> None:
    assert login(options, claims) == who


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", "org.kafka.PlainLoginModule required;",
        'OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="-1";',
        'OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="soon";',
        'OAuthBearerLoginModule required unsecuredValidatorRequiredScope="a\\\\b";',
    ],
)  # fmt: skip
def test_settings_of_unsigned_tokens_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config"):
        unsecured_demands(text)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01", b"n,,auth=Bearer x\x01\x01", b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01other=Bearer x\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01", b"\0" * 100_000,
    ],
)  # fmt: skip
def test_messages_that_are_none(text: bytes) -> None:
    with pytest.raises(AuthenticationError):
        mechanism(lambda key_id: []).step(None, text)


def test_an_authorization_id_of_another_is_refused(
    rs: tuple[Signer, Callable[..., oauth.OAuthBearer]],
) -> None:
    signer, made = rs
    with pytest.raises(AuthenticationError):
        made().step(None, message(signer.token(good()), "a=bob"))


# ---- where keys come from


def key_set(*ids: str) -> bytes:
    return json.dumps({"keys": [{"kid": one, "kty": "RSA"} for one in ids]}).encode()


def test_keys_of_a_file_are_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "keys of us.json"
    file.write_bytes(key_set("one", "two"))
    keys = KeySet(file.as_uri(), 1000)
    assert [key["kid"] for key in keys.keys("two")] == ["two"]
    assert len(keys.keys(None)) == 2 and keys.keys("three") == []
    file.write_bytes(key_set("one", "two", "three"))
    assert len(keys.keys("three")) == 1
    file.write_bytes(b"no keys")
    os.utime(file, (1, 1))
    assert len(keys.keys(None)) == 3, "those read before hold"
    file.unlink()
    assert len(keys.keys(None)) == 3
    deep = b"[" * 200_000
    for wrong in (b"", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [5]}', b"\xff", deep):
        with pytest.raises(ValueError):
            parse_keys(wrong)
    for url in (file.as_uri(), "ftp://a/b", "nonsense", "http://", "https:///x"):
        with pytest.raises(ConfigError, match="jwks"):
            KeySet(url, 1000)


#: What the server below was told last of who asks.
AUTHORIZATIONS: list[str | None] = []


@pytest.fixture
def server() -> Iterator[tuple[str, list[bytes]]]:
    """An address that answers with the last of a list, or fails where that is empty."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            AUTHORIZATIONS.append(self.headers["Authorization"])
            self.send_response(200 if answers else 500)
            self.end_headers()
            self.wfile.write(answers[-1] if answers else b"")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{one.server_port}/keys", answers
        finally:
            one.shutdown()
            thread.join()


def test_the_password_of_an_address_is_used_and_not_told(
    server: tuple[str, list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    """As basic authentication: it is no part of a host's name."""
    url, answers = server
    with caplog.at_level("ERROR", "kbroker.security"):
        keys = KeySet(url.replace("//", "//ann%40corp:s%3Acret@") + "?key=s:cret", 1000)
        try:
            wait_for("the log tells", lambda: caplog.text, 60)
            answers.append(key_set("one"))
            wait_for("the keys", lambda: keys.keys("one"), 60)
        finally:
            keys.close()
        assert f"no keys from {url}: " in caplog.text
        assert "s:cret" not in caplog.text and "s%3Acret" not in caplog.text
        with pytest.raises(ConfigError) as refused:
            KeySet("ftp://ann:s:cret@somewhere/keys", 1000)
        assert "s:cret" not in str(refused.value)
    assert AUTHORIZATIONS[-1] == "Basic " + base64.b64encode(b"ann@corp:s:cret").decode()


def test_keys_of_an_address(server: tuple[str, list[bytes]]) -> None:
    url, answers = server
    keys = KeySet(url, 1000)
    try:
        assert keys.keys("one") == []
        answers.append(key_set("one"))
        wait_for("the keys", lambda: keys.keys("one"), 60)
        answers.append(key_set("one", "two"))
        wait_for("the keys again", lambda: keys.keys("two"), 60)
        answers.clear()
        passes(1500)
        assert keys.keys("two"), "those read before hold"
    finally:
        keys.close()


@pytest.mark.parametrize(
    "wrong",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 302 Found\r\nLocation: nowhere://x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000,
        b"",
    ],
)
def test_an_address_that_answers_nonsense_is_asked_again(wrong: bytes) -> None:
    right = b"HTTP/1.1 200 OK\r\n\r\n" + key_set("one")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        keys = KeySet(f"http://127.0.0.1:{listening.getsockname()[1]}/keys", 1000)
        try:
            for answer in (wrong, right):
                with listening.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(answer)
            wait_for("the keys", lambda: keys.keys("one"), 60)
        finally:
            keys.close()
