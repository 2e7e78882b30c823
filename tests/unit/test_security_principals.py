"""Principals and the rules that map certificates' names to them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kbroker.api.delegation import PRINCIPALS_EVERY_MS, PRINCIPALS_KEPT, PrincipalSweep
from kbroker.config.types import ConfigError
from kbroker.security.principals import (
    NOBODY,
    Principal,
    Principals,
    mapped,
    parse_principal,
    parse_rules,
    parse_super_users,
)
from tests.support.control import ControlPlane

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("text", "name", "user"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("", DUKE, DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        ("RULE:^CN=(.*?),.*$/$1/U , DEFAULT", DUKE, "DUKE"),
        ("RULE:^cn=(.*?),.*$/$1/, DEFAULT", DUKE, DUKE),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", DUKE, "duke@serviceusers"),
        ("RULE:^CN=(.*?),.*$/$1-$2/", DUKE, "Duke-$2"),
        ("RULE:^CN=(.*?),.*$/$10/", DUKE, "Duke0"),
        (r"RULE:^CN=(.*?),.*$/a\/b\/$1/", DUKE, "a/b/Duke"),
        ("RULE:.*/service/", DUKE, "service"),
        ("RULE:^OU=(.*?)$/$1/", DUKE, None),
    ],
)
def test_rules(text, name, user):
    assert mapped(parse_rules(text), name) == user


def test_a_rule_takes_time_linear_in_a_name():
    """Python's `re` takes hours for these, and holds the interpreter."""
    rules = parse_rules("RULE:CN=(a+)+,O=x/$1/, RULE:CN=((a|aa)*)!/$1/U")
    began = time.monotonic()
    assert mapped(rules, f"CN={'a' * 20_000}!") == "A" * 20_000
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("text", ["RULE:(a)\\1/$1/", "RULE:CN=(?!x).*/$1/",
                                  "default", "RULE:abc", "RULE:a/b", "RULE:(/x/", "DEFAULT x",
                                  "RULE:a/b/X"])  # fmt: skip
def test_what_is_no_rule(text):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(text)


def test_super_users():
    assert parse_super_users("User:a; User:CN=b,OU=c ;") == {"User:a", "User:CN=b,OU=c"}
    assert parse_super_users("") == frozenset()
    for bad in ("alice", "User:", ":a"):
        with pytest.raises(ConfigError, match="no principal"):
            parse_principal(bad)


def test_who_is_idle_at_two_looks_is_forgotten() -> None:
    principals = Principals()
    names = [Principal("User", name) for name in "abcd"]
    a, b, c, d = (principals.number(one, keep=one.name == "d") for one in names)
    used = {b}

    def idle_of(numbers: list[int]) -> list[int]:
        assert 0 not in numbers and d not in numbers, "these are kept"
        return [number for number in numbers if number not in used]

    principals.forget(idle_of)
    assert len(principals) == 5
    assert principals.number(names[2]) == c, "it comes again"
    principals.forget(idle_of)
    assert len(principals) == 4 and principals.principal(b) == names[1]
    with pytest.raises(KeyError):
        principals.principal(a)
    again = principals.number(names[0])
    assert again not in (0, a, b, c, d), "no number is used twice"
    principals.forget(idle_of)
    principals.forget(idle_of)
    assert len(principals) == 3
    assert principals.number(names[1], by_token=True) == b + 1
    assert principals.principal(d) == names[3] and principals.principal(0) == NOBODY


def test_many_principals_are_looked_through_from_time_to_time(tmp_path: Path) -> None:
    control = ControlPlane(tmp_path)
    services = control.services
    services.data_plane.engine.principals_idle = list
    sweep = PrincipalSweep(services)
    for number in range(PRINCIPALS_KEPT):
        services.principals.number(Principal("User", str(number)))
    for looks in range(3):
        assert len(services.principals) == (PRINCIPALS_KEPT + 1 if looks < 2 else 1)
        control.clock.advance(PRINCIPALS_EVERY_MS - 1)
        sweep.tick()
        control.clock.advance(1)
        sweep.tick()
    control.close()
