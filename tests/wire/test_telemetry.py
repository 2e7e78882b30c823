"""Subscriptions to clients' metrics (KIP-714), by what a client says of itself."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tests.support.certificates import Authority
from tests.support.kbroker import KbrokerProcess
from tests.support.wire import API_VERSIONS, INCREMENTAL_ALTER_CONFIGS, WireConnection, call_once

StartBroker = Callable[..., KbrokerProcess]
GET_TELEMETRY_SUBSCRIPTIONS, CLIENT_METRICS = 71, 16
SUBSCRIPTIONS = {
    "java": "client_software_name=apache-kafka-java",
    "four": "client_software_version=4\\..*",
    "both": "client_software_name=apache-.*,client_software_version=4\\.3\\.0",
    "other": "client_software_name=apache-kafka-jav",
    "unknown": "client_software_name=unknown,client_software_version=unknown",
}


def subscribe(port: int) -> None:
    """One subscription to a metric of its own name for each of SUBSCRIPTIONS."""
    resources = [
        {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": [
            {"name": "metrics", "config_operation": 0, "value": name},
            {"name": "match", "config_operation": 0, "value": match},
        ]}
        for name, match in SUBSCRIPTIONS.items()
    ]  # fmt: skip
    answer = call_once(port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources})
    assert {one["error_code"] for one in answer["responses"]} == {0}, answer


def asked(connection: WireConnection) -> set[str]:
    """The metrics that a new instance is asked for."""
    answer = connection.call(GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": None})
    assert answer["error_code"] == 0, answer
    return set(answer["requested_metrics"])


def say(connection: WireConnection, version: int, name: str = "", number: str = "") -> int:
    """The error of an ApiVersions request."""
    said = {"client_software_name": name, "client_software_version": number} if version > 2 else {}
    return int(connection.call(API_VERSIONS, version, said)["error_code"])


def test_clients_are_matched_by_their_software(
    start_kbroker: StartBroker, authority: Authority
) -> None:
    settings = {"kbroker.client.telemetry": "true",
                "ssl.keystore.location": str(authority.issue("server").pem)}  # fmt: skip
    broker = start_kbroker(settings, listeners=("SSL",))
    subscribe(broker.port)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    with (
        WireConnection(broker.port) as plain,
        WireConnection(broker.port) as quiet,
        WireConnection(broker.ports["SSL"], tls=trusting) as encrypted,
    ):
        for one in (plain, encrypted):
            assert asked(one) == {"unknown"}
            assert say(one, 4, "apache-kafka-java", "4.3.0") == 0
            assert asked(one) == {"java", "four", "both"}
            assert asked(one) == {"java", "four", "both"}, "it is remembered"
            assert say(one, 3, "testbed", "4.0") == 0
            assert asked(one) == {"four"}
            assert say(one, 4, "no name", "3") != 0
            assert asked(one) == {"four"}, "what is refused counts for nothing"
            assert say(one, 0) == 0
            assert asked(one) == {"unknown"}
        assert asked(quiet) == {"unknown"}
