"""Admin and SASL against Apache Kafka: users, ACLs, quotas, tokens, transactions, three nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kbroker.client import Admin, NewTopic, TopicPartition
from kbroker.client.admin_acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from kbroker.client.admin_configs import CLIENT_METRICS, ConfigOp
from kbroker.client.admin_users import ScramCredential, ScramDeletion, ScramUpsertion
from kbroker.client.errors import (
    AuthenticationError,
    AuthorizationError,
    DelegationTokenNotFoundError,
    KafkaError,
    ResourceNotFoundError,
    TransactionalIdNotFoundError,
)
from kbroker.client.oauth import Token
from tests.support.kafka_cluster import KafkaCluster
from tests.support.secured_kafka import PASSWORDS, SecuredKafka
from tests.support.waits import wait_for

pytestmark = pytest.mark.long


@pytest.fixture
def admin(secured_kafka: SecuredKafka) -> Iterator[Admin]:
    with Admin(bootstrap_servers=secured_kafka.bootstrap) as made:
        yield made


def as_user(kafka: SecuredKafka, mechanism: str, user: str, password: str, **more: object) -> Admin:
    return Admin(
        bootstrap_servers=kafka.sasl_bootstrap, security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism, sasl_username=user, sasl_password=password,
        default_api_timeout_ms=15_000, **more,
    )  # fmt: skip


def who(admin: Admin) -> str:
    """The user that a broker takes an admin for."""
    return admin.create_token().owner


@pytest.mark.parametrize("user", PASSWORDS)
def test_plain(secured_kafka: SecuredKafka, user: str):
    with as_user(secured_kafka, "PLAIN", user, PASSWORDS[user]) as admin:
        assert who(admin) == f"User:{user}"
    with (
        as_user(secured_kafka, "PLAIN", user, "wrong") as admin,
        pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"),
    ):
        admin.describe_cluster()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_users(secured_kafka: SecuredKafka, admin: Admin, mechanism: str):
    user, password = f"o=h,{mechanism}", "pässword, with = and more"
    admin.alter_scram_users([ScramUpsertion(user, mechanism, password, 8192)])

    def known() -> bool:
        return user in admin.describe_scram_users().succeeded

    wait_for("the user to be known", known, 60)
    assert admin.describe_scram_users([user])[user] == (ScramCredential(mechanism, 8192),)
    with as_user(secured_kafka, mechanism, user, password) as mine:
        assert who(mine) == f"User:{user}"
    with (
        as_user(secured_kafka, mechanism, user, "wrong") as mine,
        pytest.raises(AuthenticationError),
    ):
        mine.describe_cluster()
    admin.alter_scram_users([ScramDeletion(user, mechanism)])
    wait_for("the user to be gone", lambda: not known(), 60)
    assert isinstance(admin.describe_scram_users([user]).errors[user], ResourceNotFoundError)
    with pytest.raises(KafkaError, match="user"):
        admin.alter_scram_users([ScramUpsertion(user, mechanism, password, 10)])


def test_a_mechanism_that_is_not_enabled(kafka, secured_kafka: SecuredKafka):
    with (
        as_user(secured_kafka, "SCRAM-SHA-256", "nobody", "x") as admin,
        pytest.raises(AuthenticationError),
    ):
        admin.describe_cluster()


def test_oauthbearer(secured_kafka: SecuredKafka):
    base = {
        "bootstrap.servers": secured_kafka.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "default.api.timeout.ms": 15_000,
    }
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="carol" extension_traceId="123";'
    )
    with Admin(base, sasl_jaas_config=jaas) as admin:
        assert who(admin) == "User:carol"
    with Admin(base, enable_sasl_oauthbearer_unsecure_jwt=True, sasl_username="dora") as admin:
        assert who(admin) == "User:dora"
    calls = []

    def callback() -> Token:
        calls.append(1)
        return Token("not.a.token", time.time() + 60)

    with (
        Admin(base, sasl_oauthbearer_token_callback=callback) as admin,
        pytest.raises(AuthenticationError, match="invalid_token"),
    ):
        admin.describe_cluster()
    assert len(calls) == 1


def test_sessions_are_renewed_before_they_end(tmp_path):
    kafka = SecuredKafka(tmp_path / "kafka", session_ms=1500)
    kafka.start()
    try:
        with as_user(kafka, "PLAIN", "alice", PASSWORDS["alice"], retries=0) as admin:
            until = time.monotonic() + 5
            while time.monotonic() < until:  # three sessions long
                admin.describe_cluster()
    finally:
        kafka.kill()


def test_acls(secured_kafka: SecuredKafka, admin: Admin, topic: str):
    admin.create_topic(topic, partitions=1)
    rule = Acl(AclResource.TOPIC, topic, "User:bob", AclOperation.DESCRIBE)
    denied = Acl(AclResource.TOPIC, topic, "User:bob", AclOperation.DELETE, AclPermission.DENY)
    prefixed = Acl(AclResource.GROUP, topic, "User:*", AclOperation.READ,
                   pattern=PatternType.PREFIXED, host="127.0.0.1")  # fmt: skip
    with as_user(secured_kafka, "PLAIN", "bob", PASSWORDS["bob"]) as bob:
        with pytest.raises(AuthorizationError, match="ACLs"):
            bob.describe_acls()
        assert topic not in {info.name for info in bob.list_topics()}
        admin.create_acls([rule, denied, prefixed])
        wait_for("bob to see the topic",
                 lambda: topic in {info.name for info in bob.list_topics()}, 10)  # fmt: skip
        with pytest.raises(AuthorizationError, match=topic):
            bob.delete_topics([topic])
    assert {rule, denied} <= set(admin.describe_acls(AclFilter(principal="User:bob")))
    assert admin.describe_acls(AclFilter(AclResource.GROUP, topic)) == [prefixed]
    assert admin.describe_acls(AclFilter(name=f"{topic}-x", pattern=PatternType.MATCH)) == [
        prefixed
    ]
    gone = admin.delete_acls([AclFilter(principal="User:bob"), AclFilter(name=topic)])
    assert set().union(*gone.values()) == {rule, denied, prefixed}


def test_quotas(admin: Admin):
    bob, everybody = frozenset({("user", "bob")}), frozenset({("user", None), ("client-id", "c")})
    admin.alter_quotas({
        bob: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 500.0},
        everybody: {"request_percentage": 50},
    })  # fmt: skip
    wait_for("quotas to be known", lambda: len(admin.describe_quotas()) == 2, 60)
    assert admin.describe_quotas({"user": "bob"}) == {
        bob: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 500.0}
    }
    assert set(admin.describe_quotas({"user": "*"})) == {bob, everybody}
    assert set(admin.describe_quotas({"user": "*"}, strict=True)) == {bob}
    assert set(admin.describe_quotas({"user": None})) == {everybody}
    admin.alter_quotas({bob: {"producer_byte_rate": None}}, validate_only=True)
    admin.alter_quotas({
        bob: dict.fromkeys(["producer_byte_rate", "consumer_byte_rate"]),
        everybody: {"request_percentage": None},
    })  # fmt: skip
    wait_for("quotas to be gone", lambda: not admin.describe_quotas(), 60)
    with pytest.raises(KafkaError, match="quotas of user 'bob'"):
        admin.alter_quotas({bob: {"no_such_quota": 1.0}})


def test_delegation_tokens(secured_kafka: SecuredKafka):
    with as_user(secured_kafka, "PLAIN", "alice", PASSWORDS["alice"]) as alice:
        token = alice.create_token(renewers=["User:bob"], max_lifetime_ms=100_000)
        assert (token.owner, token.renewers) == ("User:alice", ("User:bob",))
        assert token.issue_ms < token.expiry_ms <= token.max_ms == token.issue_ms + 100_000

        def listed(wanted: str, *owners: str) -> bool:
            return wanted in {one.token_id for one in alice.describe_tokens(owners or None)}

        wait_for("the token to be known", lambda: listed(token.token_id), 60)
        jaas = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{token.token_id}" password="{token.password}" tokenauth="true";'
        )
        with Admin(
            bootstrap_servers=secured_kafka.sasl_bootstrap, security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=jaas,
        ) as mine:  # fmt: skip
            assert mine.describe_cluster().cluster_id
        assert alice.renew_token(token.hmac, 50_000) <= token.max_ms
        for_bob = alice.create_token(owner="User:bob", renewers=["User:alice"])
        assert (for_bob.owner, for_bob.requester) == ("User:bob", "User:alice")
        wait_for("bob's token to be known", lambda: listed(for_bob.token_id, "User:bob"), 60)
        for one in (token, for_bob):
            alice.expire_token(one.hmac)
        wait_for("the token to be gone", lambda: not listed(token.token_id), 60)
        with pytest.raises(DelegationTokenNotFoundError):
            alice.renew_token(token.hmac)


def test_transactions(admin: Admin, secured_kafka: SecuredKafka, topic: str):
    admin.create_topic(topic, partitions=1)
    name = f"txn-{topic}"
    producer = Producer({
        "bootstrap.servers": secured_kafka.bootstrap, "transactional.id": name,
    })  # fmt: skip
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.flush()
    key = TopicPartition(topic, 0)
    (told,) = [t for t in admin.list_transactions() if t.transactional_id == name]
    assert told.state == "Ongoing"
    assert admin.list_transactions(states=["Ongoing"], pattern=f"txn-{topic}") == [told]
    assert admin.list_transactions(producer_ids=[told.producer_id], longer_than_ms=0) == [told]
    assert not admin.list_transactions(longer_than_ms=1_000_000)
    described = admin.describe_transactions([name, "no-such"])
    assert described[name].partitions == (key,) and described[name].start_ms
    assert isinstance(described.errors["no-such"], TransactionalIdNotFoundError)
    (state,) = admin.describe_producers([key])[key]
    assert (state.producer_id, state.transaction_start_offset) == (told.producer_id, 0)
    admin.abort_transaction(key, state)
    (state,) = admin.describe_producers([key])[key]
    assert state.transaction_start_offset is None
    fenced = admin.fence_producers([name])[name]
    assert fenced.producer_id == told.producer_id and fenced.producer_epoch > state.producer_epoch
    with pytest.raises(Exception, match=r"fenced|epoch"):
        producer.commit_transaction(10)
    assert admin.describe_transactions([name])[name].start_ms is None


def test_features_and_quorum(admin: Admin):
    features = admin.describe_features().features
    now = features["metadata.version"]
    assert now.min_supported < now.level <= now.max_supported
    admin.update_features({"metadata.version": now.level}, validate_only=True)
    with pytest.raises(KafkaError, match=r"metadata\.version"):
        admin.update_features({"metadata.version": 30_000})
    quorum = admin.describe_quorum()
    assert quorum.high_watermark > 0
    assert [voter.node_id for voter in quorum.voters] == [quorum.leader_id]


def test_client_metrics_and_resources(admin: Admin):
    key = (CLIENT_METRICS, "all-producers")
    admin.alter_configs({key: [ConfigOp("interval.ms", "9000")]})
    wait_for("the resource to be listed",
             lambda: key in admin.list_config_resources([CLIENT_METRICS]), 10)  # fmt: skip
    assert {e.name: e.value for e in admin.describe_configs([key])[key]}["interval.ms"] == "9000"


def test_replicas_of_three_nodes(kafka_cluster: KafkaCluster, topic: str):
    with Admin(bootstrap_servers=kafka_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [1, 2], 1: [2, 3]})])
        one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)

        def replicas() -> list[tuple[int, ...]]:
            parts = admin.describe_topics([topic])[topic].partitions
            return [part.replicas for part in parts]

        admin.alter_reassignments({one: [3, 2], two: [1, 2, 3]})
        wait_for("the moves to end", lambda: not admin.list_reassignments([one, two]), 60)
        wait_for("replicas to be told", lambda: replicas() == [(3, 2), (1, 2, 3)], 60)
        with pytest.raises(KafkaError, match=str(one)):
            admin.alter_reassignments({one: None})
        assert set(admin.elect_leaders([one, two], partial=True)) == {one, two}

        def led() -> bool:
            admin.elect_leaders([one, two], partial=True)
            parts = admin.describe_topics([topic])[topic].partitions
            return [part.leader for part in parts] == [3, 1]

        wait_for("preferred leaders to lead", led, 60)
        assert admin.elect_leaders([one]) == {one: False}
        assert isinstance(admin.elect_leaders(), object)
        folders = admin.describe_log_dirs()
        assert set(folders) == {1, 2, 3}
        path = folders[3][0].path
        assert admin.alter_replica_log_dirs({(3, topic, 0): path}) == {(3, topic, 0): None}
        with pytest.raises(KafkaError, match=f"{topic}-0 on broker 3"):
            admin.alter_replica_log_dirs({(3, topic, 0): "/no/such/directory"})
        assert len(admin.describe_quorum().voters) == 3
        assert len(admin.describe_cluster().brokers) == 3
