"""Rights of users who have logged in: each its own, whatever its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import guarded as g
from tests.support import sasl, wire
from tests.support.guarded import acl, granted
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS
from tests.support.wire import WireConnection
from tests.wire.test_acls import NO_TOPIC, produce

ODD = "sn☃w, =man \"x\" y='z'"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Over the open listener everybody may do everything."""
    settings = {"authorizer.class.name": "kbroker", "super.users": g.NOBODY}
    with SecuredBroker(tmp_path_factory.mktemp("users"), settings) as one:
        wire.create_topic(one.port, "there")
        one.add_user(ODD, "pw")
        yield one


def logged_in(broker: SecuredBroker, name: str) -> WireConnection:
    one = WireConnection(broker.sasl_port)
    told = (sasl.scram(one, "SCRAM-SHA-256", name, "pw") if name == ODD
            else sasl.plain(one, name, PASSWORDS[name]))  # fmt: skip
    assert told["error_code"] == 0
    return one


def test_each_user_has_its_own_rights(broker: SecuredBroker) -> None:
    writes = [acl(g.TOPIC, "there", g.WRITE, principal=f"User:{name}", host="*")
              for name in ("alice", ODD)]  # fmt: skip
    with logged_in(broker, "alice") as alice, logged_in(broker, "bob") as bob, logged_in(
        broker, ODD
    ) as odd:
        with granted(broker.port, *writes):
            for _ in range(2):
                assert produce(alice, "there") == produce(odd, "there") == [0]
                assert produce(bob, "there") == [NO_TOPIC]
        for one in (alice, bob, odd):
            assert produce(one, "there") == [NO_TOPIC]
