"""How clients say who they are: exchanges on the control plane, without a socket."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.bounded_log import LINES_BURST
from kbroker.client.scram import Scram
from kbroker.config.types import ConfigError
from kbroker.metadata.records.access import RemoveUserScramCredentialRecord
from kbroker.protocol import ApiKey
from kbroker.security import authentication, credentials, scram
from kbroker.security.principals import NOBODY, Principal, Principals
from tests.support.control import ControlPlane, FakeRequest
from tests.support.sasl_control import HASHES, SETTINGS, Stand

FAILED, ILLEGAL, UNSUPPORTED = 58, 34, 33


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    one = Stand(tmp_path)
    yield one
    one.control.close()


def test_plain(stand: Stand) -> None:
    done = stand.plain("alice", "alice's secret")
    assert stand.told(done) == {
        "error_code": 0, "error_message": "", "auth_bytes": b"", "session_lifetime": 0,
    }  # fmt: skip
    assert (stand.who(done), done.session_ms) == (Principal("User", "alice"), 0)
    assert stand.who(stand.step(stand.handshake("PLAIN").state, b"bob\0bob\0b")).name == "bob"


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0", b"\0\0", b"alice", b"\0alice\0wrong", b"\0nobody\0alice's secret",
        b"\0alice\0", b"\0\0alice's secret", b"bob\0alice\0alice's secret",
        b"\0alice\0alice's secret\0", b"\0alice\0alice's secre", b"\0alice\0alice's secret ",
        b"\0Alice\0alice's secret", b"\0\xff\0\xff", b"\0" * 1000, b"\0a\0" + b"b" * 100_000,
    ],
)  # fmt: skip
def test_plain_that_is_refused_is_told_the_same_whatever_was_wrong(
    stand: Stand, message: bytes
) -> None:
    refused = stand.step(stand.handshake("PLAIN").state, message)
    told = stand.told(refused)
    assert told["error_code"] == FAILED and refused.refused_ms == 100
    assert told == stand.told(stand.plain("alice", "no"))
    assert stand.who(refused) == NOBODY and told["auth_bytes"] == b""


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram(stand: Stand, mechanism: str) -> None:
    for name in ("alice", "a=b,c", "\u00e4\u4e16", "x" * 255):
        stand.add_user(name, f"of {name}", mechanism)
        assert stand.who(stand.scram(mechanism, name, f"of {name}")) == Principal("User", name)
        refused = stand.scram(mechanism, name, "wrong")
        assert refused.refused_ms == 100 and stand.who(refused) == NOBODY


def test_a_user_of_one_mechanism_is_none_of_the_other(stand: Stand) -> None:
    stand.add_user("alice", "pw", "SCRAM-SHA-256")
    assert stand.scram("SCRAM-SHA-512", "alice", "pw").refused_ms == 100


def test_who_is_there_cannot_be_found_out(stand: Stand, tmp_path: Path) -> None:
    """Shape, salt and answer are alike, and the same after a start."""
    credential = scram.credential_of(scram.SHA_256, "pw", 5000, b"0a1b2c" * 4)
    stand.control.store.append([credentials.record_of("known", scram.SHA_256, credential)])

    def challenge(name: str, one: Stand = stand) -> dict[str, str]:
        client = Scram("sha256", name, "x", nonce="n")
        told = one.told(one.step(one.handshake("SCRAM-SHA-256").state, client.first()))
        assert told["error_code"] == 0
        return dict(part.split("=", 1) for part in told["auth_bytes"].decode().split(","))

    known, other = challenge("known"), challenge("nobody")
    assert known["i"] == other["i"] == "5000"
    other_user = scram.credential_of(scram.SHA_256, "pw", 6000)
    stand.control.store.append([credentials.record_of("later", scram.SHA_256, other_user)])
    assert {challenge(f"nobody-{at}")["i"] for at in range(40)} == {"5000", "6000"}
    gone = RemoveUserScramCredentialRecord("later", scram.SHA_256.number)
    stand.control.store.append([gone])
    assert len(known["s"]) == len(other["s"]) and known["s"] != other["s"]
    assert challenge("nobody")["s"] == other["s"] != challenge("somebody")["s"]
    refused = [
        stand.told(stand.scram("SCRAM-SHA-256", name, "wrong")) for name in ("known", "nobody")
    ]
    assert refused[0] == refused[1]
    stand.control.store.close()
    again = Stand(tmp_path)
    assert challenge("nobody", again)["s"] == other["s"]
    again.control.close()


def test_a_user_that_goes_in_the_middle_of_an_exchange_does_not_get_in(stand: Stand) -> None:
    stand.add_user("alice", "pw")
    client = Scram("sha256", "alice", "pw")
    first = stand.step(stand.handshake("SCRAM-SHA-256").state, client.first())
    message = client.final(stand.told(first)["auth_bytes"])
    answer = stand.control.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[{"name": "alice", "mechanism": 1}],
        upsertions=[],
    )  # fmt: skip
    assert answer["results"][0]["error_code"] == 0
    assert stand.step(first.state, message).refused_ms == 100


def test_an_exchange_cannot_be_played_again(stand: Stand) -> None:
    stand.add_user("alice", "pw")
    client = Scram("sha256", "alice", "pw", nonce="n")
    first = stand.step(stand.handshake("SCRAM-SHA-256").state, client.first())
    message = client.final(stand.told(first)["auth_bytes"])
    assert stand.who(stand.step(first.state, message)).name == "alice"
    other = stand.step(stand.handshake("SCRAM-SHA-256").state, client.first())
    assert stand.step(other.state, message).refused_ms == 100


def test_a_challenge_does_not_do_for_another_mechanism(stand: Stand) -> None:
    """No way down: what was begun with SHA-512 is ended with it."""
    stand.add_user("alice", "pw", "SCRAM-SHA-512")
    stand.add_user("alice", "pw", "SCRAM-SHA-256")
    client = Scram("sha256", "alice", "pw")
    first = stand.step(stand.handshake("SCRAM-SHA-512").state, client.first())
    assert stand.step(first.state, client.final(stand.told(first)["auth_bytes"])).refused_ms == 100


def test_handshakes(stand: Stand) -> None:
    for version in (0, 1):
        begun = stand.handshake("PLAIN", version=version)
        told = stand.told(begun)
        assert told == {"error_code": 0, "mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]}
        assert begun.tokens == (version == 0) and begun.refused_ms is None
        wrong = stand.handshake("GSSAPI", version=version)
        assert stand.told(wrong) == told | {"error_code": UNSUPPORTED}
        assert wrong.refused_ms == 100 and wrong.state == b""
        twice = stand.handshake("PLAIN", begun.state, version)
        assert stand.told(twice) == {"error_code": ILLEGAL, "mechanisms": []}
        assert twice.refused_ms == 100


def test_a_message_before_the_handshake_closes(stand: Stand) -> None:
    request = stand.step(b"", b"\0alice\0alice's secret")
    assert request.closed and request.answer is None


def test_who_need_not_say_who_it_is_is_told_so_and_stays(stand: Stand) -> None:
    for key, version, fields in (
        (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"x"}),
    ):
        answer = stand.control.call(key, version, **fields)
        assert answer["error_code"] == ILLEGAL


def test_bare_tokens(stand: Stand) -> None:
    stand.add_user("alice", "pw")

    def token(state: bytes, message: bytes) -> FakeRequest:
        request = FakeRequest(36, -1, message, listener="SASL", open=False, state=state)
        stand.control.dispatcher.serve(request)
        return request

    client = Scram("sha256", "alice", "pw")
    first = token(stand.handshake("SCRAM-SHA-256", version=0).state, client.first())
    assert first.answer is not None
    last = token(first.state, client.final(first.answer))
    assert last.answer is not None
    client.verify(last.answer)
    assert stand.who(last).name == "alice"
    done = token(stand.handshake("PLAIN", version=0).state, b"\0bob\0b")
    assert (done.answer, stand.who(done).name) == (b"", "bob")
    refused = token(stand.handshake("PLAIN", version=0).state, b"\0bob\0c")
    assert (refused.answer, refused.refused_ms) == (None, 100)


def test_a_session_lasts_as_long_as_is_set(tmp_path: Path) -> None:
    one = Stand(
        tmp_path, connections_max_reauth_ms="5000", connection_failed_authentication_delay_ms="7",
        **{"listener.name.sasl.plain.connections.max.reauth.ms": "3000"},
    )  # fmt: skip
    one.add_user("bob", "b")
    done = one.plain("bob", "b")
    assert done.session_ms == 3000 == one.told(done)["session_lifetime"]
    assert one.scram("SCRAM-SHA-256", "bob", "b").session_ms == 5000
    again = one.plain("bob", "b", done.state)
    assert one.who(again).name == "bob" and again.session_ms == 3000
    for other in (
        one.plain("alice", "alice's secret", done.state),
        one.plain("bob", "wrong", done.state),
        one.step(one.handshake("SCRAM-SHA-256", done.state).state, b"n,,n=bob,r=x"),
    ):
        assert one.told(other)["error_code"] == FAILED and other.refused_ms == 7
    one.control.close()


def test_settings_of_mechanisms(tmp_path: Path) -> None:
    for setting, told in (
        ("GSSAPI", "there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ("PLAIN,NTLM", "NTLM for listener SASL"),
        ("", "nothing for listener SASL"),
    ):
        one = ControlPlane(tmp_path, SETTINGS | {"sasl.enabled.mechanisms": setting})
        with pytest.raises(ConfigError, match=told):
            authentication.check_listener(one.config, "SASL")
        one.close()
    settings = dict(SETTINGS)
    del settings["listener.name.sasl.plain.sasl.jaas.config"]
    one = ControlPlane(tmp_path, settings)
    with pytest.raises(ConfigError, match=r"listener\.name\.sasl\.plain\.sasl\.jaas\.config"):
        authentication.check_listener(one.config, "SASL")
    one.close()
    unsigned = "listener.name.sasl.oauthbearer.sasl."
    settings |= {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{unsigned}server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
            "OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
        f"{unsigned}jaas.config": "a.PlainLoginModule required;",
    }
    one = ControlPlane(tmp_path, settings)
    with pytest.raises(ConfigError, match=f"^{unsigned}jaas.config: .* is not for OAUTHBEARER"):
        authentication.check_listener(one.config, "SASL")
    one.close()
    del settings["sasl.enabled.mechanisms"]
    one = ControlPlane(tmp_path, settings)
    authentication.check_listener(one.config, "SASL")
    assert authentication.enabled_mechanisms(one.config, "SASL") == list(HASHES)
    one.close()


def test_mechanisms_of_one_listener_can_be_altered(stand: Stand) -> None:
    key = "listener.name.sasl.sasl.enabled.mechanisms"
    entry = {"name": key, "config_operation": 0, "value": "SCRAM-SHA-512"}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [entry]}
    answer = stand.control.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    assert answer["responses"][0]["error_code"] == 0
    assert stand.told(stand.handshake("PLAIN"))["mechanisms"] == ["SCRAM-SHA-512"]
    for name, value in (("sasl.enabled.mechanisms", "GSSAPI"), ("sasl.enabled.mechanisms", ""),
                        ("plain.sasl.jaas.config", "no module")):  # fmt: skip
        changes = [{"name": key, "config_operation": 1, "value": None},
                   {"name": f"listener.name.sasl.{name}", "config_operation": 0, "value": value}]
        resource["configs"] = changes if name.startswith("plain") else changes[1:]
        answer = stand.control.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
        )
        assert answer["responses"][0]["error_code"] == 42, name
    assert stand.told(stand.handshake("PLAIN"))["mechanisms"] == ["SCRAM-SHA-512"]


def test_logins_are_counted(stand: Stand) -> None:
    """By listener: begun and renewed, well or not."""
    well = stand.plain("alice", "alice's secret")
    stand.plain("alice", "wrong")
    stand.handshake("GSSAPI")
    stand.plain("alice", "alice's secret", well.state)
    stand.plain("bob", "b", well.state)
    assert stand.control.services.logins() == {"SASL": (1, 1, 2, 1)}


def test_what_is_remembered_has_no_secret(stand: Stand) -> None:
    stand.add_user("alice", "a password")
    first = stand.step(
        stand.handshake("SCRAM-SHA-256").state, Scram("sha256", "alice", "a password").first()
    )
    credential = stand.control.store.image.scram["alice", 1]
    for secret in (credential.stored_key, credential.server_key):
        assert secret.hex().encode() not in first.state
    assert set(json.loads(first.state)) == {"mechanism", "step"}


def test_refusals_in_the_log(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    """With who and why, never with the password; a burst, then how many there were."""
    stand.plain("ali\nce\x1b", "a wrong secret")
    assert "refused authentication of ali?ce? from 127.0.0.1:1 on SASL: a wrong pass" in caplog.text
    assert "a wrong secret" not in caplog.text
    for _ in range(LINES_BURST + 10):
        stand.plain("mallory", "x")
    assert caplog.text.count("refused authentication") == LINES_BURST
    refusals = stand.control.services.authentication.refusals
    refusals.tell_dropped()
    assert caplog.messages[-1] == "11 more authentications were refused"
    refusals.tell_dropped()
    assert caplog.text.count("more authentications") == 1


def test_principals_have_numbers() -> None:
    numbers = Principals()
    assert numbers.principal(0) == NOBODY == numbers.principal(numbers.number(NOBODY))
    alice = Principal("User", "alice")
    mine, by_token = numbers.number(alice), numbers.number(alice, by_token=True)
    assert mine != by_token and numbers.number(alice) == mine
    assert numbers.principal(mine) == numbers.principal(by_token) == alice
    assert (numbers.by_token(mine), numbers.by_token(by_token)) == (False, True)
    assert str(alice) == "User:alice"


def alter(stand: Stand, deletions: list[Any], upsertions: list[Any]) -> list[tuple[str, int]]:
    answer = stand.control.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions, upsertions=upsertions
    )
    return [(one["user"], one["error_code"]) for one in answer["results"]]


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt",
            "salted_password": b"p" * 32}  # fmt: skip


def test_users_are_altered_each_by_itself(stand: Stand) -> None:
    assert alter(stand, [], [upsertion("a"), upsertion("b", 2)]) == [("a", 0), ("b", 0)]
    for upsertions, code in (
        ([upsertion("")], 93), ([upsertion("c", 0)], 33), ([upsertion("c", 3)], 33),
        ([upsertion("c", 1, 4095)], 93), ([upsertion("c", 1, 16385)], 93),
    ):  # fmt: skip
        assert alter(stand, [], upsertions) == [(upsertions[0]["name"], code)]
    doomed = [{"name": name, "mechanism": 1} for name in ("a", "b", "nobody", "twice")]
    assert alter(stand, doomed, [upsertion("twice"), upsertion("new")]) == [
        ("a", 0), ("new", 0), ("b", 91), ("nobody", 91), ("twice", 92),
    ]  # fmt: skip
    assert set(stand.control.store.image.scram) == {("b", 2), ("new", 1)}


def test_the_audit_tells_what_was_done_to_a_user(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        alter(stand, [], [upsertion("a"), upsertion("b", 2)])
        alter(stand, [{"name": "a", "mechanism": 1}, {"name": "c", "mechanism": 1}], [])
    told = [vars(record)["fields"] for record in caplog.records]
    assert [(one["user"], one["mechanism"], one["done"]) for one in told] == [
        ("a", "SCRAM-SHA-256", "set"), ("b", "SCRAM-SHA-512", "set"),
        ("a", "SCRAM-SHA-256", "deleted"),
    ]  # fmt: skip
    assert {record.getMessage() for record in caplog.records} == {"credentials of a user changed"}


def test_users_are_described(stand: Stand) -> None:
    alter(stand, [], [upsertion("a")])
    alter(stand, [], [upsertion("a", 2, 5000)])
    alter(stand, [], [upsertion("b")])

    def told(*names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
        users = [{"name": name} for name in names]
        answer = stand.control.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
        return {
            one["user"]: (
                one["error_code"],
                [(info["mechanism"], info["iterations"]) for info in one["credential_infos"]],
            )
            for one in answer["results"]
        }

    everybody = {"a": (0, [(1, 4096), (2, 5000)]), "b": (0, [(1, 4096)])}
    assert told() == everybody
    assert told("b", "c", "a", "a") == {"b": everybody["b"], "c": (91, []), "a": (92, [])}


def test_users_are_there_after_a_start_and_a_snapshot(stand: Stand, tmp_path: Path) -> None:
    stand.add_user("alice", "pw")
    store = stand.control.store
    records = list(store.image.records())
    assert any(getattr(one, "name", None) == "alice" for one in records)
    store.close()
    again = Stand(tmp_path)
    assert again.who(again.scram("SCRAM-SHA-256", "alice", "pw")).name == "alice"
    again.control.close()
