"""SASL without a broker: messages, logins as they are configured, tokens from everywhere."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kbroker.client.config import AdminConfig, admin_config
from kbroker.client.errors import AuthenticationError, ConfigError
from kbroker.client.oauth import Token, TokenSource, initial_response
from kbroker.client.sasl import login_of, parse_jaas
from kbroker.client.scram import Scram

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def config(**more: Any) -> AdminConfig:
    base = {"bootstrap_servers": "a:1", "security_protocol": "SASL_PLAINTEXT"}
    return admin_config(base, more)


# The exchange of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_as_in_the_rfc():
    scram = Scram("sha256", "user", "pencil", nonce=NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.verify(SERVER_FINAL)


def test_scram_names_are_escaped_and_tokens_told():
    assert Scram("sha512", "a=b,c", "x", nonce="n").first() == b"n,,n=a=3Db=2Cc,r=n"
    assert Scram("sha512", "id", "x", token=True, nonce="n").first().endswith(b",tokenauth=true")
    assert Scram("sha512", "a", "x").first() != Scram("sha512", "a", "x").first()


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\xff", b"r=other,s=QQ==,i=4096", b"r=rOprNGfwEbeRWgbNEkqO,s=QQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=QQ==,i=1", b"r=rOprNGfwEbeRWgbNEkqOx,s=QQ==,i=999999999",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=QQ==,i=-4096", b"r=rOprNGfwEbeRWgbNEkqOx,s=%%%,i=4096",
        b"e=unknown-user", b"m=x,r=rOprNGfwEbeRWgbNEkqOx,s=QQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=QQ==", b"r=rOprNGfwEbeRWgbNEkqOx,s=QQ==,i=" + b"9" * 5000,
    ],
)  # fmt: skip
def test_scram_answers_of_no_server(message):
    with pytest.raises(AuthenticationError):
        Scram("sha256", "user", "pencil", nonce=NONCE).final(message)


@pytest.mark.parametrize("message", [b"", b"v=", b"v=QQ==", b"v=%", b"e=other-error", b"\xff"])
def test_a_server_without_the_password_is_found_out(message):
    scram = Scram("sha256", "user", "pencil", nonce=NONCE)
    scram.final(SERVER_FIRST)
    with pytest.raises(AuthenticationError):
        scram.verify(message)


def test_a_signature_before_the_exchange_is_none():
    with pytest.raises(AuthenticationError):
        Scram("sha256", "user", "pencil").verify(b"v=")


def test_jaas():
    text = f'{PLAIN_MODULE} required\n username="al\\"ice" password="a;\\\\b" x=y ;'
    options = {"username": 'al"ice', "password": "a;\\b", "x": "y"}
    assert parse_jaas(text) == (PLAIN_MODULE, options)
    for wrong in ("", "Module", 'M required username="a"', 'M needed a="b";', "M required a;"):
        with pytest.raises(ConfigError, match=r"sasl\.jaas\.config"):
            parse_jaas(wrong)


def test_logins():
    assert login_of(admin_config({"bootstrap_servers": "a:1"}, {})) is None
    jaas = f'{PLAIN_MODULE} required username="u" password="p";'
    assert login_of(config(sasl_mechanism="PLAIN", sasl_jaas_config=jaas))
    assert login_of(config(sasl_mechanism="PLAIN", sasl_username="u", sasl_password="p"))
    for settings, told in [
        ({"sasl_mechanism": "PLAIN"}, "needs sasl.username"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": jaas}, "ScramLoginModule"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "u\0", "sasl_password": ""}, "NUL"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "token.callback"),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/",
            },
            "client.id",
        ),
    ]:
        with pytest.raises(ConfigError, match=told):
            login_of(config(**settings))


def oauth(**more: Any) -> TokenSource:
    return TokenSource(config(sasl_mechanism="OAUTHBEARER", **more), {})


def test_tokens_of_a_callback_are_kept_until_they_near_their_end():
    made: list[Token] = []

    def callback() -> Token:
        made.append(Token(f"t{len(made)}", time.time() + life_s, {"a": "b"}))
        return made[-1]

    life_s = 3600.0
    source = oauth(sasl_oauthbearer_token_callback=callback)
    assert source.token() is source.token() is made[0]
    assert initial_response(made[0]) == b"n,,\x01auth=Bearer t0\x01a=b\x01\x01"
    life_s = 0.0
    source = oauth(sasl_oauthbearer_token_callback=callback)
    assert source.token() is not source.token()


def test_a_callback_that_fails_is_named():
    def broken() -> Token:
        raise KeyError("x")

    with pytest.raises(AuthenticationError, match="callback raised KeyError"):
        oauth(sasl_oauthbearer_token_callback=broken).token()
    with pytest.raises(AuthenticationError, match="gave str, not a Token"):
        oauth(sasl_oauthbearer_token_callback=lambda: "x").token()
    with pytest.raises(AuthenticationError, match="must not have"):
        initial_response(Token("a\x01b", 1.0))


@contextmanager
def endpoint(*answers: tuple[int, bytes]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A token endpoint that gives these answers in turn; its address, and what it was asked."""
    asked: list[tuple[str, str]] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # what a POST becomes behind a redirect
            self.do_POST()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            asked.append((self.headers["Authorization"], body))
            status, text = left.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked
        finally:
            server.shutdown()
            thread.join()


def at(url: str, **more: Any) -> TokenSource:
    return oauth(
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_credentials_client_id="me&",
        sasl_oauthbearer_client_credentials_client_secret="hush",
        sasl_login_retry_backoff_ms=1,
        **more,
    )


def test_tokens_of_an_endpoint():
    good = json.dumps({"access_token": "opaque", "expires_in": 1000}).encode()
    with endpoint((503, b""), (200, good)) as (url, asked):
        token = at(url, sasl_oauthbearer_scope="s").token()
    assert token.value == "opaque" and 900 < token.expires_s - time.time() <= 1000
    assert asked[0] == asked[1]
    basic = base64.b64encode(b"me&:hush").decode()
    assert asked[0] == (f"Basic {basic}", "grant_type=client_credentials&scope=s")
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 4e9}).encode()).decode().rstrip("=")
    with endpoint((200, json.dumps({"access_token": f"h.{claims}.s"}).encode())) as (url, asked):
        token = at(url, sasl_oauthbearer_header_urlencode=True).token()
    assert token.expires_s == 4e9
    assert asked[0][0] == f"Basic {base64.b64encode(b'me%26:hush').decode()}"


@pytest.mark.parametrize(
    "answer", [(401, b""), (200, b"{}"), (200, b"nonsense"), (200, b'{"access_token": 5}')]
)
def test_an_endpoint_that_gives_no_token(answer):
    with endpoint(answer) as (url, asked), pytest.raises(AuthenticationError):
        at(url).token()
    assert len(asked) == 1


def test_an_endpoint_that_is_not_there():
    with pytest.raises(AuthenticationError, match="token endpoint"):
        at("http://127.0.0.1:1/", sasl_login_retry_backoff_max_ms=5).token()
    with pytest.raises(ConfigError, match="must be http"):
        at("file:///etc/passwd").token()


def test_credentials_in_the_address_of_an_endpoint_are_not_shown():
    for url in ("http://ann:s3cret@127.0.0.1:1/x?key=s3cret", "ftp://ann:s3cret@h/",
                "http://ann:s3/cret@h/", "http://ann:s3cret@[::1/"):  # fmt: skip
        with pytest.raises((AuthenticationError, ConfigError)) as refused:
            at(url, sasl_login_retry_backoff_max_ms=5).token()
        for part in ("s3", "cret", "ann"):
            assert part not in str(refused.value).replace("oauthbearer", "")


def test_an_endpoint_that_redirects_gives_no_secret_away():
    """To another server, which would learn it, and which answers 404 here."""
    with (
        endpoint((404, b"")) as (other, asked),
        redirecting(other) as url,
        pytest.raises(AuthenticationError, match="404"),
    ):
        at(url).token()
    assert [authorization for authorization, _ in asked] == [None]


@contextmanager
def redirecting(to: str) -> Iterator[str]:
    """A server that sends every POST to another address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(302)
            self.send_header("Location", to)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_an_endpoint_that_speaks_no_http():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(65536)
                taken.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(AuthenticationError, match="token endpoint"):
            at(f"http://127.0.0.1:{server.getsockname()[1]}/",
               sasl_login_retry_backoff_max_ms=0).token()  # fmt: skip
        thread.join()


def test_unsigned_tokens_only_where_they_are_asked_for():
    source = oauth(enable_sasl_oauthbearer_unsecure_jwt=True, sasl_username="alice")
    header, claims, signature = source.token().value.split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "alice"
    assert signature == ""
