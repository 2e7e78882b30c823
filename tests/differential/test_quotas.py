"""DescribeClientQuotas and AlterClientQuotas: entities, keys, values, filters, what is refused."""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script, same

DESCRIBE, ALTER = 48, 49
EXACT, DEFAULT, ANY = range(3)
Part = tuple[str, str | None]


def alter(s: Script, version: int, *changes: tuple[list[Part], dict[str, float | None]],
          validate_only: bool = False) -> None:  # fmt: skip
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
            "ops": [
                {"key": key, "value": value or 0.0, "remove": value is None}
                for key, value in ops.items()
            ],
        }
        for parts, ops in changes
    ]
    body = {"entries": entries, "validate_only": validate_only}
    s.call(ALTER, version, body, keep=lambda answer: ordered(s, answer))


def describe(
    s: Script, version: int, *components: tuple[str, int, str | None], strict: bool = False
) -> None:
    rows = [
        {"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components
    ]
    body = {"components": rows, "strict": strict}
    s.call(DESCRIBE, version, body, keep=lambda answer: ordered(s, answer))


def ordered(s: Script, answer: dict[str, Any]) -> dict[str, Any]:
    """Entities in one order, and those of other scripts left out."""
    if answer["entries"] is None:
        return answer
    entries = []
    for entry in answer["entries"]:
        entry["entity"].sort(key=str)
        entry.get("values", []).sort(key=lambda value: value["key"])
        entries.append(entry)
    return answer | {"entries": sorted(entries, key=str)}


@same(range(2))
def test_set_told_and_taken_away(s: Script, version: int) -> None:
    user, client = s.name("user"), s.name("client")
    everything: list[list[Part]] = [
        [("user", user)], [("client-id", client)], [("user", user), ("client-id", client)],
        [("user", user), ("client-id", None)],
    ]  # fmt: skip
    rates = {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6, "request_percentage": 12.5,
             "controller_mutation_rate": 0.25}  # fmt: skip
    for parts in everything:
        alter(s, version, (parts, rates))
    s.note("propagation", wait_until_told(s, user))
    describe(s, version, ("user", EXACT, user))
    describe(s, version, ("user", EXACT, user), strict=True)
    describe(s, version, ("user", EXACT, user), ("client-id", ANY, None))
    describe(s, version, ("user", EXACT, user), ("client-id", DEFAULT, None), strict=True)
    describe(s, version, ("client-id", EXACT, client))
    alter(s, version, *((parts, dict.fromkeys(rates)) for parts in everything), validate_only=True)
    alter(s, version, *((parts, dict.fromkeys(rates)) for parts in everything))
    alter(s, version, ([("user", user)], {"producer_byte_rate": None}))


def wait_until_told(s: Script, user: str) -> bool:
    """Kafka's broker hears of a change after the answer."""
    from tests.support import wire
    from tests.support.waits import wait_for

    component = {"entity_type": "user", "match_type": EXACT, "match": user}

    def is_told() -> bool:
        body = {"components": [component], "strict": False}
        entries = wire.call_once(s.broker.port, DESCRIBE, 1, body)["entries"]
        return sum(len(entry["values"]) for entry in entries) == 12

    wait_for(f"quotas of {user}", is_told, 60)
    return True


@same(range(2))
def test_what_is_refused(s: Script, version: int) -> None:
    client: list[Part] = [("client-id", s.name("client"))]
    for ops in (
        {"producer_byte_rate": 0.0}, {"producer_byte_rate": -1.0}, {"producer_byte_rate": 1.5},
        {"producer_byte_rate": 1e30}, {"no_such": 1.0}, {"connection_creation_rate": 1.0},
        {"producer_byte_rate": float("inf")}, {"request_percentage": 0.0}, {},
        {"producer_byte_rate": 1.0000001}, {"no_such": None},
    ):  # fmt: skip
        alter(s, version, (client, ops), validate_only=True)
    rate: dict[str, float | None] = {"producer_byte_rate": 1.0}
    address: dict[str, float | None] = {"connection_creation_rate": 5.0}
    for parts, quotas in (
        ([], rate), ([("host", "x")], rate), ([("user", "")], rate), ([("ip", "127.0.0.1")], rate),
        ([("ip", "127.0.0.1"), ("user", "u")], address), ([("ip", "not an address")], address),
        ([("ip", "127.0.0.1")], address), ([("ip", "::1")], address), ([("ip", None)], address),
        ([("ip", None)], {"connection_creation_rate": 2.5}),
        ([("ip", None)], {"connection_creation_rate": 2.0**31}),
        ([("user", "a"), ("user", "b")], rate), ([("user", "a"), ("host", "b")], rate),
    ):  # fmt: skip
        alter(s, version, (parts, quotas), validate_only=True)
    alter(s, version, validate_only=True)
    alter(s, version, (client, rate), (client, rate), validate_only=True)
    alter(s, version, (client, rate), ([("user", "")], rate), validate_only=True)


@same(range(2))
def test_filters_that_cannot_be(s: Script, version: int) -> None:
    describe(s, version, ("", ANY, None))
    describe(s, version, ("host", ANY, None))
    describe(s, version, ("user", ANY, None), ("user", ANY, None))
    describe(s, version, ("user", 3, None))
    describe(s, version, ("user", -1, "x"))
    describe(s, version, ("user", EXACT, None))
    describe(s, version, ("user", DEFAULT, "x"))
    describe(s, version, ("user", ANY, "x"))
    describe(s, version, ("ip", ANY, None), ("user", ANY, None))
    describe(s, version, ("user", EXACT, s.name("nobody")))
