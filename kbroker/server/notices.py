"""What a start warns of, a line each: what is passed over, who gets in, what a crash may cost."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.config import BrokerConfig
from kbroker.config.report import ignored_line
from kbroker.group.consumer.assignors import ASSIGNORS, assignor_named
from kbroker.server.exposure import closed_line, open_line


def notices(config: BrokerConfig, *, users: bool) -> Iterator[str]:
    """`users`: there are some who log in with SCRAM."""
    unknown = [one for one in config.words("group.consumer.assignors") if not assignor_named(one)]
    told = (
        ignored_line(config),
        f"group.consumer.assignors: {', '.join(unknown)} passed over; there are: "
        f"{', '.join(ASSIGNORS)}" if unknown else None,
        open_line(config, users=users),
        None if users else closed_line(config),
        None if config.durable else
        "kbroker.durability=page-cache: a power cut may take back what was acknowledged",
    )  # fmt: skip
    yield from filter(None, told)
