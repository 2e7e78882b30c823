"""Users of SCRAM, quotas of clients, delegation tokens."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.client.admin import error_of
from kbroker.client.admin_transactions import to_ms
from kbroker.client.cluster import Cluster
from kbroker.client.errors import ConfigError, KafkaError, check
from kbroker.client.results import Results, ask_each, listed
from kbroker.protocol import ApiKey
from kbroker.salts import new_salt

__all__ = [
    "DelegationToken",
    "QuotaEntity",
    "ScramCredential",
    "ScramDeletion",
    "ScramUpsertion",
    "alter_quotas",
    "alter_scram_users",
    "create_token",
    "describe_quotas",
    "describe_scram_users",
    "describe_tokens",
    "expire_token",
    "renew_token",
]

_MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_MECHANISM_NAMES = {number: name for name, (number, _) in _MECHANISMS.items()}

# How a component of an entity is matched.
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What brokers tell of a user's password: not the password."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A user's password for a mechanism, to be set."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    iterations: int = 4096


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A user's password for a mechanism, to be taken away."""

    user: str
    mechanism: str


# Who a quota is for: (kind, name) pairs, kinds user, client-id, ip; name None: the default.
QuotaEntity = frozenset[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token (KIP-48); SCRAM users log in with token_id and `password`. Times in ms since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The hmac as SCRAM takes it."""
        return base64.b64encode(self.hmac).decode()


def _number_of(mechanism: str) -> int:
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"mechanism {mechanism!r}: write one of {', '.join(_MECHANISMS)}")
    return _MECHANISMS[mechanism][0]


def describe_scram_users(
    cluster: Cluster, users: Collection[str] | None = None
) -> Results[str, tuple[ScramCredential, ...]]:
    """The SCRAM credentials of users, or of all."""
    wanted = None if users is None else [{"name": user} for user in listed(users)]

    def ask() -> Results[str, tuple[ScramCredential, ...]]:
        connection = cluster.any_connection()
        body = connection.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": wanted})
        check(body.error_code, "SCRAM users", body.error_message)
        told: dict[str, tuple[ScramCredential, ...] | KafkaError] = {}
        for user in body.results:
            failed = error_of(user.error_code, f"user {user.user!r}", user.error_message)
            told[user.user] = failed or tuple(
                ScramCredential(
                    _MECHANISM_NAMES.get(int(info.mechanism), str(info.mechanism)),
                    int(info.iterations),
                )
                for info in user.credential_infos
            )
        return Results(told)

    return cluster.retry(ask)


def alter_scram_users(
    cluster: Cluster, changes: Iterable[ScramUpsertion | ScramDeletion]
) -> Results[str, None]:
    """Sets and takes away passwords. They are salted and hashed here; none goes to a broker."""
    by_user: dict[str, list[dict[str, Any]]] = {}
    for change in changes:
        entry: dict[str, Any] = {
            "name": change.user,
            "mechanism": _number_of(change.mechanism),
        }
        if isinstance(change, ScramUpsertion):
            salt = new_salt()
            hash_name = _MECHANISMS[change.mechanism][1]
            count = max(change.iterations, 1)  # brokers refuse too few and too many
            entry |= {
                "iterations": change.iterations,
                "salt": salt,
                "salted_password": hashlib.pbkdf2_hmac(
                    hash_name, change.password.encode(), salt, min(count, 1 << 20)
                ),
            }
        by_user.setdefault(change.user, []).append(entry)

    def ask(users: list[str]) -> Iterator[tuple[str, KafkaError | None]]:
        entries = [entry for user in users for entry in by_user[user]]
        values = {
            "deletions": [entry for entry in entries if "salt" not in entry],
            "upsertions": [entry for entry in entries if "salt" in entry],
        }
        body = cluster.controller().call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, values)
        for user in body.results:
            yield user.user, error_of(user.error_code, f"user {user.user!r}", user.error_message)

    return ask_each(cluster, by_user, ask)


def describe_quotas(
    cluster: Cluster, components: Mapping[str, str | None] | None = None, *, strict: bool = False
) -> dict[QuotaEntity, dict[str, float]]:
    """Quotas by entity. components: only entities with these kinds; a name, None: the default,
    "*": any. strict: and with no others."""
    wanted = [
        {
            "entity_type": kind,
            "match_type": _ANY if name == "*" else _DEFAULT if name is None else _EXACT,
            "match": None if name == "*" else name,
        }
        for kind, name in (components or {}).items()
    ]

    def ask() -> dict[QuotaEntity, dict[str, float]]:
        values = {"components": wanted, "strict": strict}
        body = cluster.any_connection().call(ApiKey.DESCRIBE_CLIENT_QUOTAS, values)
        check(body.error_code, "quotas", body.error_message)
        return {
            frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: float(value.value) for value in entry.values
            }
            for entry in body.entries or ()
        }

    return cluster.retry(ask)


def alter_quotas(
    cluster: Cluster,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
) -> Results[QuotaEntity, None]:
    """Sets quotas of entities; None takes one away."""

    def ask(entities: list[QuotaEntity]) -> Iterator[tuple[QuotaEntity, KafkaError | None]]:
        entries = [
            {
                "entity": [
                    {"entity_type": kind, "entity_name": name}
                    for kind, name in sorted(entity, key=lambda part: part[0])
                ],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in changes[entity].items()
                ],
            }
            for entity in entities
        ]
        values = {"entries": entries, "validate_only": validate_only}
        for entry in cluster.controller().call(ApiKey.ALTER_CLIENT_QUOTAS, values).entries:
            key = frozenset((part.entity_type, part.entity_name) for part in entry.entity)
            shown = ", ".join(f"{kind} {name!r}" for kind, name in sorted(key, key=str))
            yield key, error_of(entry.error_code, f"quotas of {shown}", entry.error_message)

    return ask_each(cluster, changes, ask)


def _principal(text: str) -> dict[str, str]:
    kind, found, name = text.partition(":")
    if not found or not kind or not name:
        raise ConfigError(f"principal {text!r}: write User:NAME")
    return {"principal_type": kind, "principal_name": name}


def create_token(
    cluster: Cluster,
    *,
    owner: str | None = None,
    renewers: Collection[str] = (),
    max_lifetime_ms: int = -1,
) -> DelegationToken:
    """A token for the user of this admin, or for `owner` (`User:name`, KIP-373)."""
    values: dict[str, Any] = {
        "renewers": [_principal(renewer) for renewer in listed(renewers)],
        "max_lifetime": max_lifetime_ms,
    }
    if owner is not None:
        values |= {f"owner_{key}": part for key, part in _principal(owner).items()}

    def ask() -> DelegationToken:
        connection = cluster.controller()
        body = connection.call(ApiKey.CREATE_DELEGATION_TOKEN, values)
        check(body.error_code, "delegation token")
        return _token(body, tuple(renewers))

    return cluster.retry(ask)


def _token(body: Any, renewers: tuple[str, ...]) -> DelegationToken:
    owner = f"{body.principal_type}:{body.principal_name}"
    requester = getattr(body, "token_requester_principal_type", None)
    name = getattr(body, "token_requester_principal_name", None)
    return DelegationToken(
        token_id=body.token_id,
        hmac=bytes(body.hmac),
        owner=owner,
        requester=f"{requester}:{name}" if requester else owner,
        renewers=renewers,
        issue_ms=to_ms(body.issue_timestamp),
        expiry_ms=to_ms(body.expiry_timestamp),
        max_ms=to_ms(body.max_timestamp),
    )


def renew_token(cluster: Cluster, hmac: bytes, period_ms: int = -1) -> int:
    """Puts off a token's end; gives the new one in ms since 1970."""

    def ask() -> int:
        values = {"hmac": hmac, "renew_period": period_ms}
        body = cluster.controller().call(ApiKey.RENEW_DELEGATION_TOKEN, values)
        check(body.error_code, "delegation token")
        return to_ms(body.expiry_timestamp)

    return cluster.retry(ask)


def expire_token(cluster: Cluster, hmac: bytes, period_ms: int = -1) -> int:
    """Ends a token in so many ms, with -1 at once; gives its end in ms since 1970."""

    def ask() -> int:
        values = {"hmac": hmac, "expiry_time_period": period_ms}
        body = cluster.controller().call(ApiKey.EXPIRE_DELEGATION_TOKEN, values)
        check(body.error_code, "delegation token")
        return to_ms(body.expiry_timestamp)

    return cluster.retry(ask)


def describe_tokens(
    cluster: Cluster, owners: Collection[str] | None = None
) -> list[DelegationToken]:
    """The tokens that this admin may see, or those of these owners (`User:name`)."""
    wanted = None if owners is None else [_principal(owner) for owner in listed(owners)]

    def ask() -> list[DelegationToken]:
        connection = cluster.any_connection()
        body = connection.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, {"owners": wanted})
        check(body.error_code, "delegation tokens")
        return [
            _token(
                token,
                tuple(f"{r.principal_type}:{r.principal_name}" for r in token.renewers),
            )
            for token in body.tokens
        ]

    return cluster.retry(ask)
