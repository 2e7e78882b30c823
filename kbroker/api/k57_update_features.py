"""UpdateFeatures: levels of the cluster's features (KIP-584).

Behavior: all updates take force or none; of several for one feature the last counts. The next
ApiVersions answer tells the new levels. eligible.leader.replicas.version gives the cluster a
min.insync.replicas of its own and takes those of single brokers away, as Apache Kafka does.

Version notes:
  v1: upgrade types (allow_downgrade of v0 was never acted on), validate-only. v2: no results by
  feature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kbroker.api import publish
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata import builders, features
from kbroker.metadata.features import ELIGIBLE_LEADERS, KRAFT_VERSION, SUPPORTED, Update
from kbroker.metadata.image import Image
from kbroker.metadata.records.cluster import FeatureLevelRecord
from kbroker.metadata.records.schema import Record
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER

_RESULTS_UNTIL: Final = 1
_MIN_IN_SYNC: Final = "min.insync.replicas"


@register(ApiKey.UPDATE_FEATURES, 0, 2, changes=True)
def update_features(request: Any, context: Context) -> Steps[Response]:
    """Answer an UpdateFeatures request."""
    require_cluster(context, ALTER)
    store = context.services.store
    updates = {}
    for asked in request.feature_updates:
        upgrade_type = getattr(asked, "upgrade_type", features.UPGRADE)
        updates[asked.feature] = Update(asked.feature, asked.max_version_level, upgrade_type)
        yield
    levels = {**context.image.features, KRAFT_VERSION: store.quorum.kraft_version}
    wanted = {**levels, **{name: update.level for name, update in updates.items()}}
    supported = _supported(context.image)
    for update in updates.values():
        yield
        try:
            features.check_update(update, levels, wanted, supported)
        except ClientError as error:
            raise ClientError(error.code, f"No feature was updated: {error}") from None
    if not getattr(request, "validate_only", False):
        yield from _take_effect(context, levels, updates)
    names = updates if context.version <= _RESULTS_UNTIL else ()
    results = [{"feature": name, "error_message": ErrorCode.NONE.message} for name in names]
    return {"error_message": None, "results": results}


def _supported(image: Image) -> dict[str, Mapping[str, tuple[int, int]]]:
    """Least and greatest levels by feature: of this process, and of every registered broker."""
    found: dict[str, Mapping[str, tuple[int, int]]] = {"this broker": SUPPORTED}
    for node, broker in image.brokers.items():
        found[f"broker {node}"] = {
            one.name: (one.min_supported_version, one.max_supported_version)
            for one in broker.features
        }
    return found


def _take_effect(
    context: Context, levels: Mapping[str, int], updates: Mapping[str, Update]
) -> Steps[None]:
    store, services = context.services.store, context.services
    changed = {
        name: update.level
        for name, update in updates.items()
        if levels.get(name, 0) != update.level
    }
    quorum = changed.pop(KRAFT_VERSION, 0)
    if quorum:
        yield store.upgrade_kraft_version()
        context.changed("feature changed", feature=KRAFT_VERSION, level=quorum)
        publish.tell_versions(services)
    records: list[Record] = []
    if changed.get(ELIGIBLE_LEADERS, 0) > 0:
        records += _safe_for_eligible_leaders(context)
    records += (FeatureLevelRecord(name, level) for name, level in changed.items())

    def follow() -> None:
        for name, level in changed.items():
            context.changed("feature changed", feature=name, level=level)
        publish.tell_versions(services)
        if ELIGIBLE_LEADERS in changed:
            publish.reload_broker_settings(services)

    if records:
        yield store.append(records, follow)


def _safe_for_eligible_leaders(context: Context) -> list[Record]:
    """One min.insync.replicas for the whole cluster, as each replica set is judged by it."""
    image = context.image
    records: list[Record] = []
    if _MIN_IN_SYNC not in image.configs(("broker", "")):
        value = context.config.static.get(_MIN_IN_SYNC, "1")
        records += builders.alter_configs(("broker", ""), {_MIN_IN_SYNC: value})
    for resource in list(image.config_resources()):
        if resource[0] == "broker" and resource[1] and _MIN_IN_SYNC in image.configs(resource):
            records += builders.alter_configs(resource, {_MIN_IN_SYNC: None})
    return records
