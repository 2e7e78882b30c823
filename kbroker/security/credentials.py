"""SCRAM credentials as the metadata has them: of users, and of delegation tokens.

A token's password is its HMAC in base64 (KIP-48). Its credential is made when it is first wanted,
with a salt that follows from the token, and kept for a while.
"""

from __future__ import annotations

import base64
import functools
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kbroker.clock import Clock
from kbroker.metadata.image import Image
from kbroker.metadata.records.access import DelegationTokenRecord, UserScramCredentialRecord
from kbroker.security.mechanism import AuthenticationError
from kbroker.security.principals import Principal
from kbroker.security.scram import (
    MECHANISMS,
    Credential,
    Mechanism,
    Shape,
    credential_of,
    shape_of,
)

_BY_NUMBER: Final = {one.number: one for one in MECHANISMS.values()}


def mechanism_of(number: int) -> Mechanism | None:
    """A SCRAM mechanism by its number in records and requests, None for one that is none."""
    return _BY_NUMBER.get(number)


def token_hmac(secret: str, token_id: str) -> bytes:
    """What proves that one has a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def record_of(name: str, mechanism: Mechanism, credential: Credential) -> UserScramCredentialRecord:
    """A user's credential as the metadata log has it."""
    return UserScramCredentialRecord(
        name,
        mechanism.number,
        credential.salt,
        credential.stored_key,
        credential.server_key,
        credential.iterations,
    )


class ImageCredentials:
    """See kbroker.security.scram.Credentials."""

    def __init__(
        self, image: Callable[[], Image], clock: Clock, token_secret: Callable[[], str]
    ) -> None:
        """`token_secret` signs delegation tokens; empty where they are not enabled."""
        self._image = image
        self._clock = clock
        self._token_secret = token_secret
        self._counted: tuple[Image | None, int] = None, 0
        self._shapes: dict[int, Counter[Shape]] = {}

    def of_user(self, mechanism: Mechanism, name: str) -> Credential | None:
        """The credential of a user."""
        return _credential(self._image().scram.get((name, mechanism.number)))

    def shapes_of_users(self, mechanism: Mechanism) -> Mapping[Shape, int]:
        """How many users have a credential of each shape; counted when some have changed."""
        image = self._image()
        counted, changes = self._counted
        if counted is not image or changes != image.scram_changes:
            self._counted = image, image.scram_changes
            self._shapes = {one.number: Counter() for one in MECHANISMS.values()}
            for (_, number), record in image.scram.items():
                shape = shape_of(record.salt, record.iterations)
                self._shapes.setdefault(number, Counter())[shape] += 1
        return self._shapes[mechanism.number]

    def of_token(self, mechanism: Mechanism, token_id: str) -> Credential | None:
        """The credential of a delegation token that is valid."""
        if self._valid_token(token_id) is None:
            return None
        return _token_credential(mechanism, token_hmac(self._token_secret(), token_id))

    def shapes_of_tokens(self, mechanism: Mechanism) -> Mapping[Shape, int]:
        """What credentials of tokens look like."""
        return {Shape(_TOKEN_SALT_BYTES, False, mechanism.iterations_min): 1}

    def owner_of_token(self, token_id: str) -> tuple[Principal, int]:
        """Whose token it is, and when it ends. Raises AuthenticationError."""
        token = self._valid_token(token_id)
        if token is None:
            raise AuthenticationError("the token has ended")
        kind, _, name = token.owner.partition(":")
        return Principal(kind, name), min(token.expiration_timestamp, token.max_timestamp)

    def _valid_token(self, token_id: str) -> DelegationTokenRecord | None:
        token = self._image().tokens.get(token_id)
        if token is None or not self._token_secret():
            return None
        now_ms = self._clock.wall_ms()
        return None if has_ended(token, now_ms) else token


_TOKEN_SALT_BYTES: Final = 24


def has_ended(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Whether a token is of no use any more."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


@functools.lru_cache(maxsize=1024)
def _token_credential(mechanism: Mechanism, proof: bytes) -> Credential:
    salt = hmac.digest(proof, mechanism.name.encode(), "sha256")[:_TOKEN_SALT_BYTES]
    password = base64.b64encode(proof).decode()
    return credential_of(mechanism, password, mechanism.iterations_min, salt)


def _credential(record: UserScramCredentialRecord | None) -> Credential | None:
    if record is None:
        return None
    return Credential(record.salt, record.stored_key, record.server_key, record.iterations)


def users_of(image: Image) -> Iterable[str]:
    """Everybody who has a credential, each once."""
    return dict.fromkeys(name for name, _ in image.scram)
