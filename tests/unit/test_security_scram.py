"""SCRAM, the server's half: the RFC's own exchange, and what an attacker would try."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import Counter

import pytest

from kbroker import salts
from kbroker.security import scram
from kbroker.security.scram import (
    MECHANISMS,
    SHA_256,
    SHA_512,
    AuthenticationError,
    Credential,
    ScramServer,
    credential_of,
    keys_of,
    shape_of,
)

SECRET = b"s" * 32


def server(mechanism=SHA_256, users=None, nonce="SERVER"):
    known = users if users is not None else {"alice": credential_of(mechanism, "wonder", 4096)}
    shapes = Counter(shape_of(one.salt, one.iterations) for one in known.values())
    return ScramServer(mechanism, known.get, SECRET, nonce=lambda: nonce, shapes=shapes)


def client(mechanism, password, first_bare, challenge, *, gs2="n,,", nonce=None):
    """The final message of an honest client."""
    told = dict(part.split("=", 1) for part in challenge.decode().split(","))
    salt, rounds = base64.b64decode(told["s"]), int(told["i"])
    salted = hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, rounds)
    binding = base64.b64encode(gs2.encode()).decode()
    unproved = f"c={binding},r={nonce or told['r']}"
    signed = f"{first_bare},{challenge.decode()},{unproved}".encode()
    key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored = hashlib.new(mechanism.digest, key).digest()
    signature = hmac.digest(stored, signed, mechanism.digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return f"{unproved},p={proof}".encode(), signed, salted


def test_the_exchange_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = {"user": credential_of(SHA_256, "pencil", 4096, salt)}
    one = server(users=users, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    challenge = one.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    signature = one.final(f"c=biws,r={nonce},p={proof}".encode())
    assert signature == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert one.complete and one.user == "user"


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=list(MECHANISMS))
@pytest.mark.parametrize(
    ("name", "bare", "gs2"),
    [
        ("alice", "n=alice,r=abc", "n,,"),
        ("alice", "n=alice,r=abc", "n,a=alice,"),
        ("a,b=c", "n=a=2Cb=3Dc,r=abc", "n,,"),
        ("\u00e4\u4e16", "n=\u00e4\u4e16,r=abc", "n,,"),
        ("alice", "n=alice,r=abc,tokenauth=true,x=y", "n,,"),
        ("alice", "m=later,n=alice,r=abc", "n,,"),
    ],
)
def test_an_honest_client_is_let_in(mechanism, name, bare, gs2):
    one = server(mechanism, {name: credential_of(mechanism, "p\u00e4ss", 4096)})
    challenge = one.first(f"{gs2}{bare}".encode())
    message, signed, salted = client(mechanism, "p\u00e4ss", bare, challenge, gs2=gs2)
    told = one.final(message)
    _, server_key = keys_of(mechanism, salted)
    assert told == b"v=" + base64.b64encode(hmac.digest(server_key, signed, mechanism.digest))
    assert one.complete and one.user == name
    assert one.token_authenticated == ("tokenauth" in bare)


def attempt(one, password="wonder", bare="n=alice,r=abc", **changes):
    challenge = one.first(f"n,,{bare}".encode())
    message, _, _ = client(SHA_256, password, bare, challenge, **changes)
    return one.final(message)


def test_a_wrong_password_is_refused_and_there_is_one_try():
    one = server()
    with pytest.raises(AuthenticationError, match="wrong password, or no such user"):
        attempt(one, "wander")
    assert not one.complete
    with pytest.raises(AuthenticationError, match="out of turn"):
        one.final(b"c=biws,r=abcSERVER,p=AAAA")


def test_who_is_not_there_looks_like_who_is():
    """Same shape, same salt at every try, same error; another broker's secret gives another."""
    users = {"alice": credential_of(SHA_256, "wonder", 4096)}
    challenges = [server(users=users).first(b"n,,n=bob,r=abc") for _ in range(2)]
    assert challenges[0] == challenges[1]
    known = server(users=users).first(b"n,,n=alice,r=abc")
    assert len(known) == len(challenges[0]) and known.split(b",")[2] == b"i=4096"
    other = ScramServer(SHA_256, {}.get, b"t" * 32, nonce=lambda: "SERVER")
    assert other.first(b"n,,n=bob,r=abc") != challenges[0]
    assert server(SHA_512, {}).first(b"n,,n=bob,r=abc") != challenges[0]
    with pytest.raises(AuthenticationError, match="wrong password, or no such user"):
        attempt(server(), bare="n=bob,r=abc")


def shape_told(name, users):
    """The shape of the salt that a name is told, and its iterations."""
    told = dict(
        part.split("=", 1)
        for part in server(users=users).first(f"n,,n={name},r=abc".encode()).decode().split(",")
    )
    return shape_of(base64.b64decode(told["s"]), int(told["i"]))


def test_who_is_not_there_looks_like_one_or_the_other():
    """As often as users have a shape, and for a name the same one when others come and go."""
    users = {
        f"u{at}": credential_of(SHA_256, "p", rounds, salt)
        for at, (rounds, salt) in enumerate(
            3 * [(8192, b"1" + b"z" * 24)] + [(8192, bytes(24)), (4096, bytes(32)),
                                              (16384, b"1" + b"0" * 25)]
        )
    }  # fmt: skip
    assert all(shape_told(name, users) == shape_of(one.salt, one.iterations)
               for name, one in users.items())  # fmt: skip
    strangers = [f"stranger-{at}" for at in range(600)]
    told = {name: shape_told(name, users) for name in strangers}
    counts = Counter(told.values())
    assert set(counts) == {shape_of(one.salt, one.iterations) for one in users.values()}
    assert 240 < counts[shape_of(b"1" + b"z" * 24, 8192)] < 360
    assert min(counts.values()) > 60
    users["new"] = credential_of(SHA_256, "p", 5000, bytes(16))
    changed = [name for name in strangers if shape_told(name, users) != told[name]]
    assert 0 < len(changed) < 180
    assert {shape_told(name, users) for name in changed} == {shape_of(bytes(16), 5000)}


def test_salts_are_those_of_kafkas_tools():
    """A made up one could be one, to its first digit: of 26 digits 130 bits begin with 1."""
    made = [credential_of(SHA_256, "p", 1).salt for _ in range(300)]
    assert {len(salt) for salt in made} <= {22, 23, 24, 25, 26}
    assert all(salts.is_number(salt) and salt[:1] != b"0" for salt in made)
    for size in (24, 25, 26):
        first = {salts.number_of(size, secrets.randbits(256))[:1] for _ in range(300)}
        assert (first == {b"1"}) == (size == 26) and b"0" not in first
    assert len(salts.number_of(40, secrets.randbits(400))) == 40


def test_as_much_is_computed_for_who_is_not_there(monkeypatch):
    """So that time does not tell either: the same digests of the same lengths, step by step."""
    work = []

    def counted(function, name):
        def call(*arguments):
            work.append((name, *(len(one) for one in arguments if isinstance(one, bytes))))
            return function(*arguments)

        return call

    monkeypatch.setattr("kbroker.security.scram._hmac", counted(scram._hmac, "hmac"))
    told = []
    users = {"alice": credential_of(SHA_256, "wonder", 4096)}  # salts are not of one length
    for name in ("alice", "mabel"):
        one = server(users=users)
        bare = f"n={name},r=abc"
        work.clear()
        challenge = one.first(f"n,,{bare}".encode())
        first, message = work.copy(), client(SHA_256, "wander", bare, challenge)[0]
        work.clear()
        with pytest.raises(AuthenticationError):
            one.final(message)
        told.append((first, work.copy()))
    assert told[0] == told[1] and told[0][0] and told[0][1]


def test_a_made_up_credential_cannot_be_met(monkeypatch):
    """Not even by a password that fits it."""
    made_up = credential_of(SHA_256, "known", 4096)
    monkeypatch.setattr(ScramServer, "_made_up", lambda self, name: made_up)
    with pytest.raises(AuthenticationError, match="wrong password, or no such user"):
        attempt(server(users={}), "known")


def test_a_nonce_of_another_exchange_is_refused():
    """A recorded exchange played again meets another server nonce."""
    users = {"alice": credential_of(SHA_256, "wonder", 4096)}
    recorded = server(users=users, nonce="ONE")
    challenge = recorded.first(b"n,,n=alice,r=abc")
    message, _, _ = client(SHA_256, "wonder", "n=alice,r=abc", challenge)
    assert recorded.final(message)
    again = server(users=users, nonce="TWO")
    again.first(b"n,,n=alice,r=abc")
    with pytest.raises(AuthenticationError, match="another nonce"):
        again.final(message)


def test_a_changed_header_is_refused():
    """What stands between could have taken channel binding out of the first message."""
    with pytest.raises(AuthenticationError, match="another channel binding"):
        attempt(server(), gs2="y,,")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=al=2Xice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=a\x00c",
        b"n,,n=ali\x00ce,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=\xff\xfe,r=abc",
        b"n,,n=" + b"a" * 40_000 + b",r=abc",
    ],
)
def test_first_messages_that_are_none(message):
    with pytest.raises(AuthenticationError):
        server().first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=abcSERVER",
        b"c=biws,r=abcSERVER,p=",
        b"c=biws,r=abcSERVER,p=AAAA",
        b"c=biws,r=abcSERVER,p=" + b"A" * 44,
        b"c=biws,r=abcSERVER,p=***",
        b"c=,r=abcSERVER,p=AAAA",
        b"c=biws,r=,p=AAAA",
        b"\xff",
    ],
)
def test_final_messages_that_are_none(message):
    one = server()
    one.first(b"n,,n=alice,r=abc")
    with pytest.raises(AuthenticationError):
        one.final(message)
    assert not one.complete


def test_messages_out_of_turn():
    one = server()
    with pytest.raises(AuthenticationError):
        one.final(b"c=biws,r=abcSERVER,p=AAAA")
    two = server()
    two.first(b"n,,n=alice,r=abc")
    with pytest.raises(AuthenticationError):
        two.first(b"n,,n=alice,r=abc")


def test_too_few_rounds_are_refused():
    weak = Credential(b"salt", b"k" * 32, b"s" * 32, 100)
    with pytest.raises(AuthenticationError, match="100 rounds"):
        server(users={"alice": weak}).first(b"n,,n=alice,r=abc")


def test_nonces_and_salts_are_never_the_same():
    made = {credential_of(SHA_256, "p", 4096).salt for _ in range(5)}
    assert len(made) == 5
    first = {ScramServer(SHA_256, {}.get, SECRET).first(b"n,,n=a,r=b") for _ in range(5)}
    assert len(first) == 5
