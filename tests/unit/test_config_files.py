"""Settings as other programs write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, ConfigError
from kbroker.config.properties import parse_properties, property_values


def test_a_file_that_is_not_utf_8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("# Größe\nbroker.rack=Süd\n".encode("latin-1"))
    assert property_values(path) == {"broker.rack": "Süd"}
    path.write_text("# Größe\nbroker.rack=Süd\n", encoding="utf-8")
    assert property_values(path) == {"broker.rack": "Süd"}
    for wrong in ("a=\\u00g0", "a=\\u+123", "a=\\u1_23", "a=\\u12"):
        with pytest.raises(ConfigError, match="malformed"):
            parse_properties(wrong)


def test_node_id_and_broker_id_have_each_others_value() -> None:
    for name, other in (("node.id", "broker.id"), ("broker.id", "node.id")):
        config = BrokerConfig({name: "7"})
        assert config.integer(other) == 7 and config.source(other) == "static"
    adopted = BrokerConfig({})
    adopted.adopt_node_id(5)
    assert adopted.integer("broker.id") == 5 and adopted.node_id == 5
    assert BrokerConfig({"node.id": "7", "broker.id": "7"}).node_id == 7
    with pytest.raises(ConfigError, match=r"broker\.id: must be the same as node\.id"):
        BrokerConfig({"node.id": "7", "broker.id": "8"})
