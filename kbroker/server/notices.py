"""What a start warns of, a line each: what is passed over, who gets in, what a crash may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kbroker.config import BrokerConfig
from kbroker.config.listeners import TLS_PROTOCOLS
from kbroker.config.report import ignored_line
from kbroker.group.consumer.assignors import ASSIGNORS, assignor_named
from kbroker.server.exposure import closed_line, open_line

_OF_LISTENER: Final = "listener.name."


def notices(config: BrokerConfig, *, users: bool) -> Iterator[str]:
    """`users`: there are some who log in with SCRAM."""
    unknown = [one for one in config.words("group.consumer.assignors") if not assignor_named(one)]
    told = (
        ignored_line(config),
        f"group.consumer.assignors: {', '.join(unknown)} passed over; there are: "
        f"{', '.join(ASSIGNORS)}" if unknown else None,
        open_line(config, users=users),
        None if users else closed_line(config),
        _public_line(config),
        _stranger_line(config),
        None if config.durable else
        "kbroker.durability=page-cache: a power cut may take back what was acknowledged",
    )  # fmt: skip
    yield from filter(None, told)


def _public_line(config: BrokerConfig) -> str | None:
    """A trust store is easily forgotten, and nothing fails without one."""
    speaking = [one for one in config.listeners if one.protocol in TLS_PROTOCOLS]
    if not speaking:
        return None
    from kbroker.security.tls import takes_public_clients  # noqa: PLC0415  not everybody's

    told = [one.name for one in speaking if takes_public_clients(config, one)]
    if not told:
        return None
    return (
        f"listener {', '.join(told)}: ssl.client.auth without ssl.truststore.location takes any "
        "client's certificate that the system's public authorities have signed"
    )


def _stranger_line(config: BrokerConfig) -> str | None:
    """Settings of listeners that there are not, among them those not in lower case."""
    known = {one.name.lower() for one in config.listeners}
    known |= {name.lower() for name in config.words("controller.listener.names")}
    told = [
        name
        for name in sorted({*config.static, *config.dynamic_broker, *config.dynamic_default})
        if name.startswith(_OF_LISTENER)
        and name.removeprefix(_OF_LISTENER).partition(".")[0] not in known
    ]
    if not told:
        return None
    return (
        f"settings of listeners that there are not: {', '.join(told)}; there are "
        f"{', '.join(sorted(known))}, in lower case"
    )
