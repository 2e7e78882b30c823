"""The registry of handlers and the ApiVersions bodies made from it."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader

from kbroker.api import registry
from kbroker.api.k18_api_versions import response_bodies, unsupported_version_body
from kbroker.protocol import ApiKey
from kbroker.protocol.schemas import response_schema

SUPPORTED = {"group.version": (0, 1), "metadata.version": (7, 30)}
FINALIZED = {"metadata.version": 30, "group.version": 1, "share.version": 0}


@pytest.mark.parametrize("version", range(5))
def test_bodies_read_back_by_kio(version):
    apis = registry.table()
    body = response_bodies(apis.values(), SUPPORTED, FINALIZED, 17)[version]
    answer, used = entity_reader(response_schema(ApiKey.API_VERSIONS, version))(body, 0)
    assert used == len(body) and answer.error_code == 0
    told = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert told == {key: (one.advertised_low, one.high) for key, one in apis.items()}
    assert [one.api_key for one in answer.api_keys] == sorted(told)
    assert told[ApiKey.PRODUCE] == (0, 13)
    if version >= 3:
        names = [one.name for one in answer.supported_features]
        assert names == (["group.version", "metadata.version"] if version > 3 else names[:1])
        assert answer.finalized_features_epoch == 17
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        assert levels == {"metadata.version": 30, "group.version": 1}


def test_features_that_are_not_known_are_left_out():
    body = response_bodies(registry.table().values(), {}, {}, -1)[4]
    answer, _ = entity_reader(response_schema(ApiKey.API_VERSIONS, 4))(body, 0)
    assert answer.supported_features == () and answer.finalized_features_epoch == -1


def test_an_unknown_version_is_told_the_known_ones_in_version_0():
    body = unsupported_version_body(registry.table().values())
    answer, used = entity_reader(response_schema(ApiKey.API_VERSIONS, 0))(body, 0)
    assert used == len(body) and answer.error_code == 35
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [
        (18, 0, 4)
    ]


def test_every_served_version_has_a_schema():
    for key, entry in registry.table().items():
        versions = schema_name_map[api_key_map[key]]
        assert set(range(entry.low, entry.high + 1)) <= set(versions), key.name


def test_a_key_cannot_be_registered_twice(monkeypatch):
    with pytest.raises(RuntimeError, match="registered twice"):
        registry.register_data_plane(ApiKey.API_VERSIONS, 0, 4)
    monkeypatch.setattr(registry, "_TABLE", {})
    with pytest.raises(RuntimeError, match="versions 3 to 2"):
        registry.register(ApiKey.SASL_AUTHENTICATE, 3, 2)(lambda request, context: None)
