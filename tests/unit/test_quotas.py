"""Which quota holds, whose consumption counts for it, and how long a client over it waits."""

from __future__ import annotations

import random

import pytest

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext.testing_quotas import Rules, Usage
from kbroker.protocol import ApiKey
from kbroker.security.quotas import ABSENT, DEFAULT, Limits, Mutations, entity, pair_of
from tests.reference.quotas import Rate

ORDER = [
    ("u", "c"), ("u", DEFAULT), ("u", ABSENT), (DEFAULT, "c"), (DEFAULT, DEFAULT),
    (DEFAULT, ABSENT), (ABSENT, "c"), (ABSENT, DEFAULT),
]  # fmt: skip
USERS = {"u": 0, "v": 2, DEFAULT: -1, ABSENT: -2}


def test_the_most_special_limit_holds():
    limits = Limits()
    for place, pair in enumerate(ORDER):
        limits.put(pair, float(place))
    for place, pair in enumerate(ORDER):
        assert limits.limit(limits.whose("u", "c")) == place
        limits.put(pair, None)
    assert limits.limit(limits.whose("u", "c")) is None and not limits
    assert limits.whose("u", "c") == (ABSENT, "c")


def test_entities():
    assert pair_of(entity(user="u", client_id=DEFAULT)) == ("u", DEFAULT)
    assert pair_of(entity(client_id="c")) == (ABSENT, "c")


def test_clients_of_a_user_share_his_limit():
    limits = Limits()
    limits.put((DEFAULT, ABSENT), 5.0)
    assert limits.whose("u", "a") == limits.whose("u", "b") == ("u", ABSENT)
    assert limits.whose("v", "a") == ("v", ABSENT)
    limits.put((ABSENT, "a"), 1.0)
    assert limits.whose("u", "a") == ("u", ABSENT)


@pytest.mark.parametrize("seed", range(20))
def test_the_data_plane_decides_the_same(seed):
    """Random rules come and go; whose limit holds, and which, is asked of both."""
    chance = random.Random(seed)
    limits, rules = Limits(), Rules()
    pairs = [(user, client) for user in USERS for client in ("c", "d", DEFAULT, ABSENT)
             if (user, client) != (ABSENT, ABSENT)]  # fmt: skip
    for _ in range(60):
        pair = chance.choice(pairs)
        limit = chance.choice([None, float(chance.randrange(1, 100))])
        limits.put(pair, limit)
        client = None if pair[1] is None else pair[1].encode()
        rules.put(1, USERS[pair[0]], client, limit)
        assert rules.on() == bool(limits)
        for user in ("u", "v", "w"):
            for client_id in ("c", "d", "e", ""):
                whose = limits.whose(user, client_id)
                told = limits.limit(whose)
                found = rules.find(1, USERS.get(user, 8), client_id.encode())
                assert found == (
                    None if told is None else (whose[0] != ABSENT, whose[1] != ABSENT, told)
                )
    assert rules.find(0, 0, b"c") is None, "kinds are told apart"


@pytest.mark.parametrize("seed", range(10))
def test_the_rate_is_kafkas(seed):
    chance = random.Random(seed)
    samples, window = chance.choice([(11, 1000), (2, 500), (1, 1000)])
    limit, now = 1000.0, 5
    ours, theirs = Usage(samples, window, limit), Rate(samples, window)
    for _ in range(400):
        now += chance.choice([0, 1, 7, 200, 999, 1000, 1001, 5000, 30_000])
        amount = chance.randrange(10_000)
        theirs.record(amount, now)
        if chance.random() < 0.2:
            ours.add(amount, now)
        else:
            assert abs(ours.take(amount, now) - theirs.wait_ms(limit, now)) <= 1


def test_a_client_that_waits_as_told_keeps_its_quota():
    """100,000 bytes a second in requests of 30,000: over a minute, within 5 in 100."""
    usage, now, sent, limit = Usage(11, 1000, 100_000.0), 0, 0, 100_000
    while now <= 60_000:
        sent += 30_000
        now += usage.take(30_000, now) + 3
    assert sent / (now / 1000 + 10) == pytest.approx(limit, rel=0.05)  # ten windows go ahead


def test_a_strict_quota_refuses_while_partitions_are_owed():
    mutations = Mutations(samples=2, window_s=1)
    mutations.limits.put((ABSENT, "c"), 5.0)
    quota = mutations.quota("u", "c", 0, strict=True)
    quota.record(20)  # 10 were saved up
    with pytest.raises(ClientError) as refused:
        quota.record(1)
    assert refused.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert quota.throttle_ms == 2000
    quota = mutations.quota("u", "c", 1999, strict=True)
    with pytest.raises(ClientError):
        quota.record(1)
    assert quota.throttle_ms == 1
    quota = mutations.quota("u", "c", 2000, strict=True)
    quota.record(1)
    assert quota.throttle_ms == 0
    permissive = mutations.quota("u", "c", 2000, strict=False)
    permissive.record(9)
    assert permissive.throttle_ms == 2000
    others = mutations.quota("u", "d", 2000, strict=True)
    others.record(1000)
    others.record(1000)


# ---- the handlers


def _alter(control, entities, *operations, version=1, **fields):
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts],
            "ops": [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in operations],
        }
        for parts in entities
    ]
    answer = control.call(
        ApiKey.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=False, **fields
    )
    return [entry["error_code"] for entry in answer["entries"]]


def _describe(control, *components, strict=False):
    rows = [{"entity_type": k, "match_type": t, "match": m} for k, t, m in components]
    answer = control.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=rows, strict=strict)
    return answer["error_code"], {
        tuple(sorted((e["entity_type"], e["entity_name"]) for e in entry["entity"])): {
            one["key"]: one["value"] for one in entry["values"]
        }
        for entry in answer["entries"] or ()
    }


def test_quotas_are_kept_told_and_handed_on(control):
    assert _alter(control, [[("client-id", "c")]], ("producer_byte_rate", 10.0)) == [0]
    assert _alter(control, [[("client-id", None), ("user", "u")]],
                  ("consumer_byte_rate", 20.0), ("request_percentage", 0.5)) == [0]  # fmt: skip
    number = control.services.principals.number(("User", "u"))
    assert control.data_plane.quotas == {
        (-2, b"c"): {"producer_byte_rate": 10.0},
        (number, None): {"consumer_byte_rate": 20.0, "request_percentage": 0.5},
    }
    code, all_of_them = _describe(control)
    assert code == 0 and all_of_them == {
        (("client-id", "c"),): {"producer_byte_rate": 10.0},
        (("client-id", None), ("user", "u")): {
            "consumer_byte_rate": 20.0, "request_percentage": 0.5,
        },
    }  # fmt: skip
    assert list(_describe(control, ("user", 2, None))[1]) == [(("client-id", None), ("user", "u"))]
    assert _describe(control, ("user", 2, None), strict=True) == (0, {})
    assert _alter(control, [[("client-id", "c")]], ("producer_byte_rate", None)) == [0]
    assert control.data_plane.quotas[-2, b"c"] == {}
    image = type(control.store.image)()
    image.replay_all(control.store.image.records())
    assert list(image.quotas) == [frozenset({("client-id", None), ("user", "u")})]


def test_what_topics_may_be_made_and_deleted(control):
    assert _alter(control, [[("client-id", "client")]], ("controller_mutation_rate", 1.0)) == [0]
    topics = [{"name": name, "num_partitions": 20, "replication_factor": 1} for name in "ab"]
    made = control.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=1000)
    assert [topic["error_code"] for topic in made["topics"]] == [0, 89]
    assert made["throttle_time"] == 9000
    more = [{"name": "a", "count": 30, "assignments": None}]
    grown = control.call(ApiKey.CREATE_PARTITIONS, 3, topics=more, timeout=1000)
    assert grown["results"][0]["error_code"] == 89 and grown["throttle_time"] == 9000
    gone = control.call(ApiKey.DELETE_TOPICS, 5, topic_names=["a"], timeout=1000)
    assert gone["responses"][0]["error_code"] == 89 and "a" in control.store.image.topics
    old = control.call(ApiKey.DELETE_TOPICS, 4, topic_names=["a"], timeout=1000)
    assert old["responses"][0]["error_code"] == 0 and old["throttle_time"] == 29_000
