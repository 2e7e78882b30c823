"""Principals and the rules that map certificates' names to them."""

from __future__ import annotations

import time

import pytest

from kbroker.config.types import ConfigError
from kbroker.security.principals import mapped, parse_principal, parse_rules, parse_super_users

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
