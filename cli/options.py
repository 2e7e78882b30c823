"""Options that several commands share, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kbroker import runfile
from kbroker.cli.places import default_data_dir

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = [
    "bootstrap_option",
    "data_dir_option",
    "key_values",
    "open_cluster",
    "output_option",
    "reachable",
]

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DEFAULT_ADDRESS = "127.0.0.1:9092"


def data_dir_option(command: Decorated) -> Decorated:
    """--data-dir D."""
    return click.option(
        "--data-dir",
        "-D",
        type=click.Path(file_okay=False, path_type=Path),
        help="Data directory. Default: $KBROKER_DATA_DIR, else /var/lib/kbroker for root, else"
        " $XDG_DATA_HOME/kbroker/data (~/.local/share/kbroker/data).",
    )(command)


def bootstrap_option(command: Decorated) -> Decorated:
    """-b/--bootstrap-server B."""
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        metavar="HOST:PORT[,...]",
        envvar="KBROKER_BOOTSTRAP_SERVER",
        help="Broker to talk to. Default: $KBROKER_BOOTSTRAP_SERVER, else the broker that runs on"
        f" the default data directory, else {_DEFAULT_ADDRESS}.",
    )(command)


def output_option(command: Decorated) -> Decorated:
    """-o/--output json|table|wide."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(["table", "wide", "json"]),
        default="table",
        show_default=True,
        help="wide: all columns, never cut; json: for programs.",
    )(command)


def open_cluster(bootstrap: str | None, *, timeout_s: float = 30.0) -> Cluster:
    """The cluster that -b names, or the one that runs here."""
    from kbroker.client.cluster import Cluster

    try:
        return Cluster(bootstrap or _local_address(), timeout_s=timeout_s)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap-server") from error


def _local_address() -> str:
    try:
        info = runfile.running(default_data_dir())
    except OSError:
        info = None
    return reachable(info.listeners[0]) if info and info.listeners else _DEFAULT_ADDRESS


def reachable(listener: str) -> str:
    """The address by which this machine reaches a listener bound to every interface."""
    scheme, _, address = listener.rpartition("://")
    del scheme
    host, _, port = address.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    return f"{host}:{port}"


def key_values(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`k=v` pairs of an option that may be given several times."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{pair!r}: write KEY=VALUE", param_hint=option)
        found[key.strip()] = value.strip()
    return found
