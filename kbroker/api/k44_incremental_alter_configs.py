"""IncrementalAlterConfigs: set, remove, extend or shorten single settings (KIP-339).

Behavior: each resource succeeds or fails by itself, answers in the order of the request. Loggers
are changed at once and forgotten with the process; the rest goes to the metadata log.

Version notes:
  v1: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api import config_changes as changes
from kbroker.api.config_resources import (
    BROKER_LOGGERS,
    check_logger_level,
    parse_node,
    set_logger_level,
)
from kbroker.api.context import Context
from kbroker.api.k33_alter_configs import failed, result
from kbroker.api.registry import Response, register
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import Resource
from kbroker.metadata.records.schema import Record
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey


@register(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, failed=failed, changes=True)
def incremental_alter_configs(request: Any, context: Context) -> Steps[Response]:
    """Answer an IncrementalAlterConfigs request."""
    twice = yield from changes.duplicates(request.resources)
    responses, records = [], list[Record]()
    changed: list[Resource] = []
    for one in request.resources:
        yield
        operations = yield from collect(
            (config.name, config.value, config.config_operation) for config in one.configs
        )
        try:
            if (one.resource_type, one.resource_name) in twice:
                text = "Each resource must appear at most once."
                raise ClientError(ErrorCode.INVALID_REQUEST, text)
            yield from changes.check_shape(operations)
            changes.require_altering(context, one, before=True)
            if one.resource_type == BROKER_LOGGERS:
                yield from _alter_loggers(
                    context, one.resource_name, operations, request.validate_only
                )
            else:
                yield from changes.check_lists(one.resource_type, operations)
                resource = changes.resource_of(context, one.resource_type, one.resource_name)
                current = context.image.configs(resource)
                settings = yield from changes.apply_operations(
                    one.resource_type, current, operations
                )
                yield from changes.validate(context, one.resource_type, resource, settings)
                changes.require_altering(context, one, before=False)
                records += changes.records_of(context, one.resource_type, resource, settings)
                changed.append(resource)
        except ClientError as error:
            responses.append(result(one, error.code, _text(one.resource_type, error)))
            continue
        responses.append(result(one, ErrorCode.NONE, None))
    if not request.validate_only:
        yield from changes.take_effect(context, records, changed)
    return {"responses": responses}


def _text(kind: int, error: ClientError) -> str | None:
    """Apache Kafka's loggers have no words for who may not change them."""
    unsaid = kind == BROKER_LOGGERS and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None if unsaid else str(error)


def _alter_loggers(
    context: Context,
    name: str,
    operations: list[tuple[str, str | None, int]],
    validate_only: bool,
) -> Steps[None]:
    unexpected = "Unexpected node id. Expected {}, but received {}"
    parse_node(name, context.node_id, "Node", unexpected)
    wanted: dict[str, str | None] = {}
    for logger, level, operation in operations:
        if operation not in (changes.SET, changes.DELETE):
            change = "APPEND" if operation == changes.APPEND else "SUBTRACT"
            text = f"{change} operation is not allowed for the BROKER_LOGGER resource"
            raise ClientError(ErrorCode.INVALID_REQUEST, text)
        wanted[logger] = (level or "") if operation == changes.SET else None
        check_logger_level(logger, wanted[logger])
        yield
    if not validate_only:
        for logger, known in wanted.items():
            set_logger_level(logger, known)
            context.changed("log level changed", logger=logger, level=known or "(its parent's)")
            yield
