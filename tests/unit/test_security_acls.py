"""The authorizer's decisions against a slow, plain reading of the rules, and Kafka's own cases."""

from __future__ import annotations

import itertools
import random

import pytest

from kbroker.security import acls as a
from kbroker.security.acls import Acl, Authorizer, Filter, fault

ALICE, BOB, ANY_HOST, HERE = "User:alice", "User:bob", "*", "10.0.0.1"


def acl(name="t", pattern=a.LITERAL, *, principal=ALICE, host=ANY_HOST, operation=a.READ,
        permission=a.ALLOW, kind=a.TOPIC):  # fmt: skip
    return Acl(kind, name, pattern, principal, host, operation, permission)


def deciding(*acls, **settings):
    one = Authorizer(**settings)
    for each in acls:
        one.add(each)
    return one


def may(one, operation=a.READ, name="t", *, principal=ALICE, host=HERE, kind=a.TOPIC):
    return one.decide(principal, host, operation, kind, name).allowed


@pytest.mark.parametrize("allow_if_none", [False, True])
def test_without_acls_the_setting_counts(allow_if_none):
    one = deciding(acl("other"), allow_if_none=allow_if_none)
    assert may(one) == allow_if_none
    one.add(acl(principal=BOB))
    assert not may(one), "an ACL of anybody makes the resource one that has ACLs"
    assert may(one, kind=a.GROUP) == allow_if_none


def test_denied_is_denied():
    one = deciding(acl(), acl("*", permission=a.DENY, operation=a.ALL))
    assert not may(one)
    one = deciding(acl("*", operation=a.ALL), acl("t", a.PREFIXED, permission=a.DENY))
    assert not may(one) and not may(one, name="tt") and may(one, name="s")
    one = deciding(acl("*"), acl(permission=a.DENY, host="10.0.0.2"))
    assert may(one) and not may(one, host="10.0.0.2")
    one = deciding(acl("*"), acl(permission=a.DENY, principal="User:*"), super_users=[BOB])
    assert not may(one) and may(one, principal=BOB)


def test_patterns():
    one = deciding(acl("foo", a.PREFIXED), acl("bar"), acl("*", a.PREFIXED, operation=a.WRITE))
    assert may(one, name="foo") and may(one, name="foobar") and not may(one, name="fo")
    assert may(one, name="bar") and not may(one, name="bar2")
    assert may(one, a.WRITE, name="*x") and not may(one, a.WRITE, name="x")


@pytest.mark.parametrize("given", [a.READ, a.WRITE, a.DELETE, a.ALTER, a.ALTER_CONFIGS, a.CREATE])
def test_what_implies_what(given):
    allowing, denying = deciding(acl(operation=given)), deciding(
        acl(operation=a.ALL), acl(operation=given, permission=a.DENY)
    )  # fmt: skip
    describes = given in (a.READ, a.WRITE, a.DELETE, a.ALTER)
    assert may(allowing, a.DESCRIBE) == describes
    assert may(allowing, a.DESCRIBE_CONFIGS) == (given == a.ALTER_CONFIGS)
    assert may(denying, a.DESCRIBE) and may(denying, a.DESCRIBE_CONFIGS)
    assert not may(denying, given)


def test_adding_and_removing_leave_nothing():
    one = deciding(acl(), acl("t", a.PREFIXED), acl(principal=BOB))
    before = one.version
    one.add(acl())
    assert (one.version, len(one)) == (before, 3)
    for each in one.acls(lambda _: True):
        one.remove(each)
    one.remove(acl())
    assert (one.version, len(one)) == (before + 3, 0)
    assert one.decide(ALICE, HERE, a.READ, a.TOPIC, "t").rule == "no ACL belongs to the resource"


def slowly(acls, allow_if_none, asked):
    """The rules as the documentation tells them; User:root is a super user."""
    principal, host, operation, kind, name = asked
    if principal == "User:root":
        return True
    of = [one for one in acls if one.resource_type == kind and (
        (one.pattern == a.LITERAL and one.name in (name, "*"))
        or (one.pattern == a.PREFIXED and name.startswith(one.name)))]  # fmt: skip
    mine = [one for one in of if one.principal in (principal, "User:*")
            and one.host in (host, "*")]  # fmt: skip
    if any(one.permission == a.DENY and one.operation in (operation, a.ALL) for one in mine):
        return False
    implied = {a.DESCRIBE: {a.READ, a.WRITE, a.DELETE, a.ALTER},
               a.DESCRIBE_CONFIGS: {a.ALTER_CONFIGS}}.get(operation, set())  # fmt: skip
    if any(one.permission == a.ALLOW and one.operation in {operation, a.ALL, *implied}
           for one in mine):  # fmt: skip
        return True
    return not of and allow_if_none


@pytest.mark.parametrize("seed", range(20))
def test_decisions_are_those_of_the_plain_rules(seed):
    chance = random.Random(seed)
    names, operations = ["", "a", "ab", "abc", "b", "*"], [a.ALL, a.READ, a.DESCRIBE, a.ALTER]

    def made():
        return Acl(
            chance.choice([a.TOPIC, a.GROUP]), chance.choice(names[1:]),
            chance.choice([a.LITERAL, a.PREFIXED]), chance.choice([ALICE, BOB, "User:*"]),
            chance.choice([HERE, "h", "*"]), chance.choice(operations),
            chance.choice([a.ALLOW, a.ALLOW, a.DENY]),
        )  # fmt: skip

    kept = list(dict.fromkeys(made() for _ in range(chance.randrange(12))))
    one = deciding(*kept, super_users=["User:root"], allow_if_none=seed % 2 == 0)
    for gone in kept[::3]:
        one.remove(gone)
    kept = [each for index, each in enumerate(kept) if index % 3]
    for principal, host, operation, name in itertools.product(
        [ALICE, "User:eve", "User:root"], [HERE, "g"], [*operations[1:], a.DESCRIBE_CONFIGS],
        ["a", "abcd", "b", "c", "*"],
    ):  # fmt: skip
        asked = principal, host, operation, a.TOPIC, name
        assert one.decide(*asked).allowed == slowly(kept, seed % 2 == 0, asked), (kept, asked)


def test_at_least_one_resource_of_a_type():
    def any_of(one, principal=ALICE):
        return one.decide_any(principal, HERE, a.READ, a.TOPIC)

    assert not any_of(deciding())
    assert any_of(deciding(allow_if_none=True))
    assert any_of(deciding(super_users=[ALICE]))
    assert any_of(deciding(acl()))
    assert not any_of(deciding(acl(operation=a.WRITE)))
    assert not any_of(deciding(acl(), acl(permission=a.DENY)))
    assert not any_of(deciding(acl(), acl("*", permission=a.DENY)))
    assert not any_of(deciding(acl("topic"), acl("to", a.PREFIXED, permission=a.DENY)))
    assert any_of(deciding(acl("to", a.PREFIXED), acl("topic", a.PREFIXED, permission=a.DENY)))
    assert not any_of(deciding(acl("topic", a.PREFIXED), acl("t", a.PREFIXED, permission=a.DENY)))
    assert any_of(deciding(acl("*"), acl("t", a.PREFIXED, permission=a.DENY)))
    assert any_of(deciding(acl("to", a.PREFIXED), acl("to", permission=a.DENY)))


def test_filters():
    one = acl("abc", a.PREFIXED, host=HERE)
    for wanted, takes in (
        (Filter(), True),
        (Filter(name="abc"), True),
        (Filter(name="abcd"), False),
        (Filter(name="abcd", pattern=a.MATCH), True),
        (Filter(name="ab", pattern=a.MATCH), False),
        (Filter(name="abc", pattern=a.LITERAL), False),
        (Filter(resource_type=a.GROUP), False),
        (Filter(principal=BOB), False),
        (Filter(host="*"), False),
        (Filter(operation=a.ALL), False),
        (Filter(permission=a.DENY), False),
        (Filter(a.TOPIC, None, a.PREFIXED, ALICE, HERE, a.READ, a.ALLOW), True),
    ):
        assert wanted.takes(one) == takes, wanted
    assert Filter(name="x", pattern=a.MATCH).takes(acl("*"))
    assert not Filter(name="x", pattern=a.LITERAL).takes(acl("*"))
    assert Filter(operation=a.UNKNOWN).unknown and not Filter().unknown


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": a.ANY}, {"kind": a.UNKNOWN}, {"kind": 99}, {"name": ""},
        {"kind": a.CLUSTER}, {"pattern": a.ANY}, {"pattern": a.MATCH}, {"operation": a.ANY},
        {"operation": 99}, {"permission": a.ANY}, {"principal": "alice"},
    ],
)  # fmt: skip
def test_what_cannot_be_made(changes):
    assert fault(acl(**changes))
    assert fault(acl()) is None
    assert fault(acl("kafka-cluster", kind=a.CLUSTER)) is None
