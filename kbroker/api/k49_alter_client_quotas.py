"""AlterClientQuotas: set and take away quotas of users, client ids and addresses (KIP-546).

Behavior: each entity changes whole or not at all; all that changes is written in one append and
holds for the next request of every connection. An entity that is named twice gets what was asked
first, and an error, as Apache Kafka has it.

Version notes:
  v1: flexible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.quotas import publish_quotas
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import QuotaEntity
from kbroker.metadata.records.access import ClientQuotaRecord, EntityData
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER_CONFIGS
from kbroker.security.quotas import (
    CLIENT_ID,
    CONNECTION_RATE,
    CONSUMER_RATE,
    IP,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_FRACTION_MAX: Final = 1e-6
_RECORDS_MAX: Final = 10_000  # of one request, as in Apache Kafka
# The largest value of a key that takes whole numbers, None where fractions may be.
_OF_CLIENTS: Final[Mapping[str, int | None]] = {
    PRODUCER_RATE: _LONG_MAX,
    CONSUMER_RATE: _LONG_MAX,
    REQUEST_PERCENTAGE: None,
    MUTATION_RATE: None,
}
_OF_ADDRESSES: Final[Mapping[str, int | None]] = {CONNECTION_RATE: _INT_MAX}


def _failed(request: Any, code: int, message: str) -> Response:
    entities = dict.fromkeys(_entity(entry) for entry in request.entries)
    return {"entries": [_result(entity, code, message) for entity in entities]}


@register(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, failed=_failed, changes=True)
def alter_client_quotas(request: Any, context: Context) -> Steps[Response]:
    """Answer an AlterClientQuotas request."""
    require_cluster(context, ALTER_CONFIGS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message)
    records: list[ClientQuotaRecord] = []
    results: dict[QuotaEntity, ClientError | None] = {}
    for entry in request.entries:
        yield
        entity = _entity(entry)
        keys = [op.key for op in entry.ops]
        if entity in results or len(set(keys)) < len(keys):
            results[entity] = _wrong("An entity or a key of it is there twice.")
            continue
        try:
            records += _changes(context, entity, entry.ops)
            results[entity] = None
        except ClientError as error:
            results[entity] = error
    if len(records) > _RECORDS_MAX:
        raise ClientError(
            ErrorCode.POLICY_VIOLATION, f"A request may change at most {_RECORDS_MAX} quotas."
        )

    def take_effect() -> None:
        publish_quotas(context.services, list(results))
        for entity in (one for one, error in results.items() if error is None):
            context.changed("quotas changed", entity=_told(entity))

    if records and not request.validate_only:
        yield context.services.store.append(records, take_effect)
    entries = yield from collect(
        _result(entity, 0, None) if error is None else _result(entity, error.code, str(error))
        for entity, error in results.items()
    )
    return {"entries": entries}


def _entity(entry: Any) -> QuotaEntity:
    """A kind that is there twice has the last name."""
    return frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())


def _changes(
    context: Context, entity: QuotaEntity, operations: Iterable[Any]
) -> list[ClientQuotaRecord]:
    """Records of what is to change. Raises ClientError."""
    allowed = _keys_of(context, entity)
    current = context.image.quotas.get(entity, {})
    records = []
    for op in operations:
        before = current.get(op.key)
        if op.remove:
            if before is not None:
                records.append(ClientQuotaRecord(_parts(entity), op.key, 0.0, remove=True))
            continue
        _check_value(allowed, op.key, op.value)
        if before is None or before.value != op.value:
            records.append(ClientQuotaRecord(_parts(entity), op.key, op.value))
    return records


def _told(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind}={'(default)' if name is None else name}" for kind, name in entity)


def _parts(entity: QuotaEntity) -> list[EntityData]:
    return [EntityData(kind, name) for kind, name in entity]


def _keys_of(context: Context, entity: QuotaEntity) -> Mapping[str, int | None]:
    """The quotas that the entity may have. Raises ClientError for one that cannot be."""
    names = dict(entity)
    if not names:
        raise _wrong("An entity has at least one part.")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _wrong(f"Unknown entity type {kind}.")
        if name == "":
            raise _wrong(f"An empty {kind} cannot have quotas.")
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise _wrong("An address has neither user nor client id.")
    host = names[IP]
    if host is not None and not context.services.hosts.look_up([host], _ignore).get(host):
        raise _wrong(f"{host} is neither an address nor a host that has one.")
    return _OF_ADDRESSES


def _ignore(_found: Mapping[str, list[bytes]]) -> None:
    """A host whose address comes late was refused already."""


def _check_value(allowed: Mapping[str, int | None], key: str, value: float) -> None:
    """Raises ClientError."""
    if key not in allowed:
        raise _wrong(f"Invalid configuration key {key}")
    if value <= 0:
        raise _wrong(f"Quota {key} must be greater than 0")
    most = allowed[key]
    if most is None:
        return
    if value > most:
        raise _wrong(f"{key} can be {most} at most.")
    if value % 1 > _FRACTION_MAX:
        raise _wrong(f"{key} must be a whole number.")


def _wrong(message: str) -> ClientError:
    return ClientError(ErrorCode.INVALID_REQUEST, message)


def _result(entity: QuotaEntity, code: int, message: str | None) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
    }
