"""AlterUserScramCredentials: passwords of users set and taken away (KIP-554).

Behavior: each user succeeds or fails by itself; one that is named twice fails, whatever is asked.
The client sends salt and salted password; what is kept is made of them and lets nobody log in
elsewhere. The users that could be altered are written as one change. Answers: deletions, then
upsertions, then what failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from kbroker.api.context import ApiError, Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.records.access import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kbroker.metadata.records.schema import Record
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER

_TWICE = ApiError(
    ErrorCode.DUPLICATE_RESOURCE, "A user cannot be altered twice in the same request."
)


def _failed(request: Any, code: int, message: str) -> Response:
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    return {"results": [_result(name, code, message) for name in names]}


@register(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, failed=_failed, changes=True)
def alter_user_scram_credentials(request: Any, context: Context) -> Steps[Response]:
    """Answer an AlterUserScramCredentials request."""
    require_cluster(context, ALTER)
    times: Counter[str] = Counter()
    for each in (*request.deletions, *request.upsertions):
        times[each.name] += 1
        yield
    errors: dict[str, ApiError] = {}
    done: list[str] = []
    records: list[Record] = []
    changes: tuple[tuple[Any, Callable[[Context, Any], Record]], ...] = (
        (request.deletions, _deletion),
        (request.upsertions, _upsertion),
    )
    for asked, record_of in changes:
        for one in asked:
            yield
            if times[one.name] > 1:
                errors[one.name] = _TWICE
                continue
            try:
                records.append(record_of(context, one))
                done.append(one.name)
            except ClientError as error:
                errors[one.name] = ApiError.of(error)
    if records:
        yield context.services.store.append(records, lambda: _tell(context, records))
    results = yield from collect(_result(name, ErrorCode.NONE, None) for name in done)
    results += yield from collect(
        _result(name, error.code, error.message) for name, error in errors.items()
    )
    return {"results": results}


def _tell(context: Context, records: Iterable[Record]) -> None:
    from kbroker.security.credentials import mechanism_of  # noqa: PLC0415  not every start

    for one in records:
        assert isinstance(one, UserScramCredentialRecord | RemoveUserScramCredentialRecord)
        mechanism = mechanism_of(one.mechanism)
        assert mechanism is not None
        context.changed(
            "credentials of a user changed", user=one.name, mechanism=mechanism.name,
            done="set" if isinstance(one, UserScramCredentialRecord) else "deleted",
        )  # fmt: skip


def _check(name: str, number: int) -> None:
    from kbroker.security.credentials import mechanism_of  # noqa: PLC0415  not every start

    if not name:
        raise ClientError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user has a name.")
    if mechanism_of(number) is None:
        raise ClientError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism.")


def _deletion(context: Context, one: Any) -> Record:
    _check(one.name, one.mechanism)
    if (one.name, one.mechanism) not in context.image.scram:
        raise ClientError(
            ErrorCode.RESOURCE_NOT_FOUND, f"User {one.name} has no credential of that mechanism."
        )
    return RemoveUserScramCredentialRecord(one.name, one.mechanism)


def _upsertion(context: Context, one: Any) -> Record:
    from kbroker.security import credentials, scram  # noqa: PLC0415  as above

    _check(one.name, one.mechanism)
    mechanism = credentials.mechanism_of(one.mechanism)
    assert mechanism is not None
    if not mechanism.iterations_min <= one.iterations <= scram.ITERATIONS_MAX:
        raise ClientError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Iterations must be from {mechanism.iterations_min} to {scram.ITERATIONS_MAX}.",
        )
    keys = scram.keys_of(mechanism, bytes(one.salted_password))
    credential = scram.Credential(bytes(one.salt), *keys, one.iterations)
    return credentials.record_of(one.name, mechanism, credential)


def _result(name: str, code: int, message: str | None) -> Response:
    return {"user": name, "error_code": code, "error_message": message}
