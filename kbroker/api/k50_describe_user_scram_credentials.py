"""DescribeUserScramCredentials: which users have a password, and for which mechanisms (KIP-554).

Behavior: no names, or null: all users. A name twice is an error of its own, whatever there is. Of a
credential only mechanism and iterations are told.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ErrorCode
from kbroker.metadata.image import Image
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE


def _failed(request: Any, code: int, message: str) -> Response:
    """As Apache Kafka's: the error twice, of nobody, without words."""
    del request, message
    error = {"error_code": code, "error_message": None}
    return {**error, "results": [{**error, "user": "", "credential_infos": []}]}


@register(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, failed=_failed)
def describe_user_scram_credentials(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeUserScramCredentials request."""
    require_cluster(context, DESCRIBE)
    image = context.image
    names = Counter(user.name for user in request.users or ())
    asked = names or Counter(dict.fromkeys((name for name, _ in image.scram), 1))
    results = yield from collect(
        _result(image, name, count > 1) for name, count in asked.items()
    )
    return {"error_code": ErrorCode.NONE, "error_message": "", "results": results}


def _result(image: Image, name: str, twice: bool) -> Response:
    infos = [
        {"mechanism": record.mechanism, "iterations": record.iterations}
        for number in (1, 2)
        if (record := image.scram.get((name, number))) is not None
    ]
    code, message = ErrorCode.NONE, None
    if twice:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"User {name} is asked for twice."
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return {
        "user": name,
        "error_code": code,
        "error_message": message,
        "credential_infos": infos if code is ErrorCode.NONE else [],
    }
