"""SASL, the server's side: which mechanisms a listener has, and how an exchange goes (KIP-43, 368).

    SaslHandshake       names the mechanism; version 1 and up: tokens come as SaslAuthenticate
    SaslAuthenticate    the mechanism's messages, until it says who the client is

What is remembered of an exchange is carried by its connection, as JSON:

    {"mechanism": the one of the exchange that goes on, "step": what that remembers,
     "was": [mechanism, principal's number] of a session that is being renewed}

A session is renewed with the mechanism and as the principal that it began with. It ends after
`connections.max.reauth.ms`, or with the token that the client showed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.bounded_log import BoundedLog
from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.config.types import ConfigError
from kbroker.metadata.image import Image
from kbroker.offload import Offload
from kbroker.operations import Completion, settle
from kbroker.printable import host_port
from kbroker.security.attempts import FailureLimit
from kbroker.security.credentials import ImageCredentials
from kbroker.security.mechanism import (
    AuthenticationError,
    Mechanism,
    OutOfTurnError,
    Settled,
    Step,
)
from kbroker.security.plain import Plain, users_of
from kbroker.security.principals import Principals
from kbroker.security.scram import MECHANISMS, Scram

if TYPE_CHECKING:
    from kbroker.security.jwks import KeySet
    from kbroker.security.oauth import Demands, OAuthBearer

_LOG: Final = logging.getLogger("kbroker.security")
_ENABLED: Final = "sasl.enabled.mechanisms"
_JAAS: Final = "sasl.jaas.config"
_SHOWN_MAX_CHARS: Final = 200
PLAIN: Final = "PLAIN"
DEFAULT_MECHANISMS: Final = tuple(MECHANISMS)
OAUTHBEARER: Final = "OAUTHBEARER"
KNOWN_MECHANISMS: Final = (PLAIN, *MECHANISMS, OAUTHBEARER)
_JWKS: Final = "sasl.oauthbearer.jwks.endpoint.url"
_HANDLER: Final = "sasl.server.callback.handler.class"
_UNSIGNED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"


def enabled_mechanisms(config: BrokerConfig, listener: str) -> list[str]:
    """The mechanisms of a listener. Raises ConfigError for those that there are not."""
    if not config.is_set_for(listener, _ENABLED):
        return list(DEFAULT_MECHANISMS)  # Kafka's default is Kerberos alone
    told = config.words_of(listener, _ENABLED)
    unknown = [name for name in told if name not in KNOWN_MECHANISMS]
    if unknown or not told:
        raise ConfigError(
            f"{config.name_of(listener, _ENABLED)}: {', '.join(unknown) or 'nothing'} for listener "
            f"{listener}; there are "
            f"{', '.join(KNOWN_MECHANISMS)}"
        )
    return told


def check_listener(config: BrokerConfig, listener: str) -> None:
    """Whether a SASL listener could authenticate anybody. Raises ConfigError."""
    for name in enabled_mechanisms(config, listener):
        if name == PLAIN:
            _check_jaas(config, listener, name, partial(users_of, _jaas_of(config, listener, name)))
        elif name == OAUTHBEARER and not _takes_signed(config, listener):
            _check_jaas(config, listener, name, partial(_of_unsigned, config, listener))
        elif name == OAUTHBEARER and not config.text_of(listener, _JWKS, name):
            raise ConfigError(
                f"{_JWKS} is not set, and {name} on listener {listener} needs it; unsigned tokens "
                f"are taken where {_HANDLER} names {_UNSIGNED}"
            )


def _check_jaas(
    config: BrokerConfig, listener: str, mechanism: str, read: Callable[[], object]
) -> None:
    try:
        read()
    except ConfigError as error:
        key = config.name_of(listener, _JAAS, mechanism)
        raise ConfigError(f"{key}{str(error).removeprefix(_JAAS)}") from None


def _of_unsigned(config: BrokerConfig, listener: str) -> Demands:
    from kbroker.security.unsecured import unsecured_demands  # noqa: PLC0415  not everybody's

    return unsecured_demands(config.text_of(listener, _JAAS, OAUTHBEARER))


def _takes_signed(config: BrokerConfig, listener: str) -> bool:
    named = config.text_of(listener, _HANDLER, OAUTHBEARER) or ""
    return named.rpartition(".")[2] != _UNSIGNED


def _jaas_of(config: BrokerConfig, listener: str, mechanism: str) -> str:
    text = config.text_of(listener, _JAAS, mechanism)
    if text is None:
        key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"
        raise ConfigError(f"{key} is not set, and {mechanism} needs it")
    return text


class Counts(NamedTuple):
    """Exchanges of a listener that have ended: sessions begun and renewed, and failures of both."""

    begun: int = 0
    renewed: int = 0
    failed_begun: int = 0
    failed_renewed: int = 0


class Authentication:
    """All listeners' exchanges. The control thread owns it; any thread may read `counts`."""

    def __init__(
        self,
        config: BrokerConfig,
        image: Callable[[], Image],
        directory_id: Callable[[], bytes],
        principals: Principals,
        clock: Clock,
    ) -> None:
        """`directory_id` is the data directory's, which nobody outside knows: what is made up for
        users that are not there follows from it, and is the same after a start."""
        self._config = config
        self._directory_id = directory_id
        self._principals = principals
        self._clock = clock
        self.credentials = ImageCredentials(
            image, clock, lambda: config.string("delegation.token.secret.key")
        )
        self.refusals = Refusals(clock)
        self.counts: dict[str, Counts] = {}
        self._key_sets: dict[str, KeySet] = {}
        self._verifier = Offload("tokens")
        self._failures = FailureLimit(clock)

    def mechanisms(self, listener: str) -> list[str]:
        """The mechanisms of a listener; none where what was set at run time cannot be."""
        try:
            return enabled_mechanisms(self._config, listener)
        except ConfigError as error:
            _LOG.error("%s", error)
            return []

    def open(self, listener: str) -> None:
        """At the start: get what takes time. Raises ConfigError."""
        check_listener(self._config, listener)
        if OAUTHBEARER in self.mechanisms(listener) and _takes_signed(self._config, listener):
            self._key_set(listener)

    def verify_beside(self, post: Callable[[Callable[[], None]], None]) -> None:
        """From now on check signatures on a thread of their own; `post` runs a callable on the
        control thread."""
        self._verifier.open(post)

    def close(self) -> None:
        """At the end."""
        self._verifier.close()
        for one in self._key_sets.values():
            one.close()

    @property
    def delay_ms(self) -> int:
        """How long a refusal takes."""
        return self._config.integer("connection.failed.authentication.delay.ms")

    def begin(self, state: bytes, mechanism: str) -> bytes:
        """A handshake named a mechanism of the listener's: what is remembered. Raises
        OutOfTurnError where an exchange goes on already."""
        was = _loaded(state)
        if "mechanism" in was:
            raise OutOfTurnError
        return _dumped({"mechanism": mechanism, "step": None, **was})

    def count(self, listener: str, state: bytes, *, well: bool) -> None:
        """An exchange has ended; `state` as before its last step."""
        counts = self.counts.get(listener, Counts())
        name = ("" if well else "failed_") + ("renewed" if "was" in _loaded(state) else "begun")
        self.counts[listener] = counts._replace(**{name: getattr(counts, name) + 1})

    def step(
        self, listener: str, state: bytes, message: bytes, address: str
    ) -> Completion[Settled]:
        """The client's next message; `address` is where it comes from. The completion fails with
        AuthenticationError or OutOfTurnError; what needs no signature is settled at once."""
        told = _loaded(state)
        done: Completion[Settled] = Completion()

        def settled(stepped: Completion[Step]) -> Settled:
            try:
                found = self._settled(listener, told, stepped.result())
            except (AuthenticationError, OutOfTurnError):
                self.count(listener, state, well=False)
                raise
            if found.principal is not None:
                self.count(listener, state, well=True)
            return found

        stepped = self._stepped(listener, told, message, address)
        stepped.on_done(lambda stepped: settle(done, lambda: settled(stepped)))
        return done

    def _stepped(
        self, listener: str, told: dict[str, Any], message: bytes, address: str
    ) -> Completion[Step]:
        """What the mechanism makes of the message."""
        at_once: Completion[Step] = Completion()
        try:
            name, mechanism = self._turn(listener, told)
            if name != OAUTHBEARER or told["step"] is not None:
                settle(at_once, lambda: mechanism.step(told["step"], message))
                return at_once
            if not self._failures.allows(address):
                raise AuthenticationError("too many tokens from its address were not valid lately")
        except (AuthenticationError, OutOfTurnError, ConfigError) as error:
            at_once.fail(error)
            return at_once
        verified = self._verifier.run(lambda: mechanism.step(None, message))
        verified.on_done(lambda step: self._note(address, step))
        return verified

    def _note(self, address: str, step: Completion[Step]) -> None:
        if step.error is not None or step.result().who is None:
            self._failures.failed(address)

    def _turn(self, listener: str, told: dict[str, Any]) -> tuple[str, Mechanism]:
        """The mechanism whose turn it is."""
        name = told.get("mechanism")
        if name is None:
            raise OutOfTurnError
        was = told.get("was")
        if was is not None and was[0] != name:
            raise AuthenticationError(f"a session of {was[0]} cannot be renewed with {name}")
        return name, self._mechanism(listener, name)

    def _settled(self, listener: str, told: dict[str, Any], step: Step) -> Settled:
        if step.who is None:
            return Settled(step.answer, _dumped({**told, "step": step.state}))
        name, was = told["mechanism"], told.get("was")
        before = None if was is None else self._principals.principal(was[1])
        if before not in (None, step.who):
            raise AuthenticationError(
                f"a session of {before} cannot be renewed as {step.who}", step.who.name
            )
        number = self._principals.number(step.who, by_token=step.by_token)
        session_ms = self._session_ms(listener, name, step.ends_ms)
        return Settled(step.answer, _dumped({"was": [name, number]}), number, session_ms)

    def _mechanism(self, listener: str, name: str) -> Mechanism:
        if name == PLAIN:
            return Plain(users_of(_jaas_of(self._config, listener, name)))
        if name == OAUTHBEARER:
            return self._oauth(listener)
        return Scram(MECHANISMS[name], self.credentials, self._secret)

    def _oauth(self, listener: str) -> OAuthBearer:
        from kbroker.security.oauth import Demands, OAuthBearer  # noqa: PLC0415  not everybody's

        if not _takes_signed(self._config, listener):
            demands = _of_unsigned(self._config, listener)
            return OAuthBearer(demands, _no_keys, self._clock.wall_ms)

        def told(key: str) -> str:
            return self._config.text_of(listener, f"sasl.oauthbearer.{key}", OAUTHBEARER) or ""

        audiences = filter(None, map(str.strip, told("expected.audience").split(",")))
        demands = Demands(
            told("sub.claim.name"),
            told("expected.issuer"),
            frozenset(audiences),
            int(told("clock.skew.seconds")),
        )
        return OAuthBearer(demands, self._key_set(listener).keys, self._clock.wall_ms)

    def _key_set(self, listener: str) -> KeySet:
        found = self._key_sets.get(listener)
        if found is None:
            from kbroker.security.jwks import KeySet  # noqa: PLC0415  as above

            url = self._config.text_of(listener, _JWKS, OAUTHBEARER) or ""
            every = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
            refresh_ms = int(self._config.text_of(listener, every, OAUTHBEARER) or 0)
            found = self._key_sets[listener] = KeySet(url, refresh_ms)
        return found

    def _secret(self) -> bytes:
        return hashlib.sha256(b"users that are not there" + self._directory_id()).digest()

    def _session_ms(self, listener: str, mechanism: str, ends_ms: int | None) -> int:
        text = self._config.text_of(listener, "connections.max.reauth.ms", mechanism)
        most_ms = max(int(text or 0), 0)
        if ends_ms is None:
            return most_ms
        left_ms = max(ends_ms - self._clock.wall_ms(), 1)
        return min(left_ms, most_ms) if most_ms else left_ms


class Refusals:
    """Refused authentications in the log: a burst, then so many a second. The control thread's."""

    def __init__(self, clock: Clock) -> None:
        self._log = BoundedLog(_LOG, clock, "%d more authentications were refused")
        self.tell_dropped = self._log.tell_dropped

    def tell(self, listener: str, peer: tuple[str, int], error: AuthenticationError) -> None:
        """One line, with nothing of a secret."""
        who = "" if error.user is None else f" of {_shown(error.user)}"
        what = "refused authentication%s from %s on %s: %s"
        self._log.tell(logging.WARNING, what, who, host_port(*peer), listener, error)


def _shown(name: str) -> str:
    """A name as it may stand in a log: whoever sent it chose its characters."""
    return re.sub(r"[^\x20-\x7e]", "?", name[:_SHOWN_MAX_CHARS])


def _no_keys(key_id: str | None) -> list[Any]:
    del key_id
    return []


def _loaded(state: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(state) if state else {}
    return found


def _dumped(state: dict[str, Any]) -> bytes:
    return json.dumps(state, separators=(",", ":")).encode()
