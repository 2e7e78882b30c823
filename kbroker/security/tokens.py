"""Delegation tokens (KIP-48, KIP-373): made by who has said who it is, for itself or another.

A token's id is told to whom it may concern; its HMAC under `delegation.token.secret.key` is the
password of a SCRAM login as its owner. The metadata log has all of it but the HMAC.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Final

from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import Image
from kbroker.metadata.records.access import DelegationTokenRecord, RemoveDelegationTokenRecord
from kbroker.metadata.records.schema import Record
from kbroker.security.credentials import has_ended, token_hmac
from kbroker.security.principals import USER, Principal
from kbroker.uuids import random_uuid, uuid_text

_LONG_MAX: Final = 2**63 - 1
_SWEPT_MAX: Final = 1000


class Tokens:
    """What requests about tokens come to. The control thread owns it."""

    def __init__(self, config: BrokerConfig, image: Callable[[], Image], clock: Clock) -> None:
        self._config = config
        self._image = image
        self._clock = clock

    @property
    def secret(self) -> str:
        """What signs tokens; empty where there are none."""
        return self._config.string("delegation.token.secret.key")

    def hmac(self, token: DelegationTokenRecord) -> bytes:
        """What proves that one has a token."""
        return token_hmac(self.secret, token.token_id)

    def make(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        lifetime_ms: int,
    ) -> DelegationTokenRecord:
        """A new token's record. Raises ClientError."""
        now_ms = self._clock.wall_ms()
        life_ms = self._config.integer("delegation.token.max.lifetime.ms")
        if lifetime_ms > 0:
            life_ms = min(life_ms, lifetime_ms)
        max_ms = min(now_ms + life_ms, _LONG_MAX)
        told = list(renewers)
        if any(one.type != USER for one in told):
            raise ClientError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        return DelegationTokenRecord(
            owner=str(owner),
            requester=str(requester),
            renewers=[str(one) for one in told],
            issue_timestamp=now_ms,
            max_timestamp=max_ms,
            expiration_timestamp=min(max_ms, now_ms + self._period_ms(0)),
            token_id=uuid_text(random_uuid()),
        )

    def renew(self, proof: bytes, asker: Principal, period_ms: int) -> DelegationTokenRecord:
        """The record of a token that ends later. Raises ClientError."""
        token = self._found(proof)
        now_ms = self._clock.wall_ms()
        if has_ended(token, now_ms):
            raise ClientError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        _check_right(token, asker)
        return _until(token, min(token.max_timestamp, now_ms + self._period_ms(period_ms)))

    def expire(
        self, proof: bytes, asker: Principal, period_ms: int
    ) -> tuple[int, DelegationTokenRecord | RemoveDelegationTokenRecord]:
        """When a token ends now, below 0 at once, and the record of it. Raises ClientError."""
        token = self._found(proof)
        now_ms = self._clock.wall_ms()
        _check_right(token, asker)
        if period_ms < 0:
            return now_ms, RemoveDelegationTokenRecord(token.token_id)
        if has_ended(token, now_ms):
            raise ClientError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        end_ms = min(token.max_timestamp, now_ms + period_ms)
        return end_ms, _until(token, end_ms)

    def ended(self) -> list[Record]:
        """Records that remove tokens that are over, some at a time."""
        now_ms = self._clock.wall_ms()
        gone = [one for one in self._image().tokens.values() if has_ended(one, now_ms)]
        return [RemoveDelegationTokenRecord(one.token_id) for one in gone[:_SWEPT_MAX]]

    def _period_ms(self, asked_ms: int) -> int:
        most_ms = self._config.integer("delegation.token.expiry.time.ms")
        return min(most_ms, asked_ms) if asked_ms > 0 else most_ms

    def _found(self, proof: bytes) -> DelegationTokenRecord:
        tokens = self._image().tokens.values()
        token = next((one for one in tokens if hmac.compare_digest(self.hmac(one), proof)), None)
        if token is None:
            raise ClientError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token


def _check_right(token: DelegationTokenRecord, asker: Principal) -> None:
    """Owner and renewers may."""
    if str(asker) not in (token.owner, *token.renewers):
        raise ClientError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _until(token: DelegationTokenRecord, end_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=end_ms,
        token_id=token.token_id,
    )


def principal_of(text: str) -> Principal:
    """A principal as records have it."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
