"""How produce, consume and browse reach a cluster: the settings that -b, -X, a profile and the
command's own options amount to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.options import client_settings, cluster_at

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.config import ClientConfig

__all__ = ["reach", "settings_for"]


def settings_for(
    bootstrap: str | None,
    kind: str,
    defaults: dict[str, Any],
    make: Callable[[dict[str, Any], dict[str, Any]], ClientConfig],
) -> tuple[dict[str, Any], Any]:
    """Settings of a producer or consumer, what was told over `defaults`, and what `make` makes of
    them. Raises click.BadParameter for what is wrong with them."""
    from kbroker.client.errors import ConfigError

    try:
        settings = {"client.id": "kbroker", **defaults, **client_settings(bootstrap, kind=kind)}
        return settings, make(settings, {})
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="-X") from error


def reach(config: ClientConfig, limit_s: float | None = None) -> Cluster:
    """The cluster for questions before anything is read or sent: says at once that nobody is
    there, where producers and consumers try again for a minute. limit_s: of a question."""
    from kbroker.client.reach import ClusterSettings

    settings = ClusterSettings.of(config)._replace(patient=False)
    if limit_s is not None:
        settings = settings._replace(
            timeout_s=limit_s,
            call_timeout_s=limit_s,
            setup_timeout_s=limit_s,
            setup_timeout_max_s=limit_s,
        )
    return cluster_at(config.bootstrap_servers, settings=settings)
