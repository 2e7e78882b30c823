"""AlterConfigs: replace all settings of a resource.

Behavior: each resource succeeds or fails by itself, answers in the order of the request. Settings
that are not named are removed. Deprecated in favour of IncrementalAlterConfigs.

Version notes:
  v2: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api import config_changes as changes
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import Resource
from kbroker.metadata.records.schema import Record
from kbroker.operations import Steps, mapping
from kbroker.protocol import ApiKey


def failed(request: Any, code: int, message: str) -> Response:
    """The same error for every resource of a request."""
    return {"responses": [result(one, code, message) for one in request.resources]}


@register(ApiKey.ALTER_CONFIGS, 0, 2, failed=failed, changes=True)
def alter_configs(request: Any, context: Context) -> Steps[Response]:
    """Answer an AlterConfigs request."""
    twice = yield from changes.duplicates(request.resources)
    responses, records = [], list[Record]()
    changed: list[Resource] = []
    for one in request.resources:
        yield
        try:
            if (one.resource_type, one.resource_name) in twice:
                text = "Each resource must appear at most once."
                raise ClientError(ErrorCode.INVALID_REQUEST, text)
            yield from changes.check_shape((c.name, c.value, changes.SET) for c in one.configs)
            changes.require_altering(context, one, before=True)
            resource = changes.resource_of(context, one.resource_type, one.resource_name)
            settings = yield from mapping((config.name, config.value) for config in one.configs)
            yield from changes.validate(context, one.resource_type, resource, settings)
            changes.require_altering(context, one, before=False)
            records += changes.records_of(context, one.resource_type, resource, settings)
        except ClientError as error:
            responses.append(result(one, error.code, str(error)))
            continue
        changed.append(resource)
        responses.append(result(one, ErrorCode.NONE, None))
    if not request.validate_only:
        yield from changes.take_effect(context, records, changed)
    return {"responses": responses}


def result(resource: Any, code: int, message: str | None) -> dict[str, Any]:
    """The answer for one resource."""
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
