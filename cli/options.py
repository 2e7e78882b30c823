"""Options that several commands share, and what is made of them.

How a broker is found, the first that is told: -b, `bootstrap.servers` of -X, --profile,
$KBROKER_BOOTSTRAP_SERVER, $KBROKER_PROFILE or the current profile, the broker that runs on the
default data directory, 127.0.0.1:9092. A profile's other settings hold where it was named, or where
its address was taken; -X wins over them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kbroker import runfile
from kbroker.cli.nearest import nearest
from kbroker.cli.places import default_data_dir

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = [
    "CONFIG_META",
    "DATA_DIR_DEFAULT",
    "SECONDS",
    "SECONDS_MAX",
    "Folder",
    "Real",
    "address_option",
    "asked",
    "bootstrap_option",
    "broker_options",
    "client_settings",
    "cluster_at",
    "data_dir_option",
    "directories_option",
    "key_values",
    "one_of",
    "open_cluster",
    "output_option",
    "reachable",
    "settings_option",
]

DATA_DIR_DEFAULT: Final = (
    "Default: $KBROKER_DATA_DIR, else for root the service's (log.dirs of"
    " /etc/kbroker/server.properties, or /var/lib/kbroker), else $XDG_DATA_HOME/kbroker/data"
    " (~/.local/share/kbroker/data)."
)


class Real(click.FloatRange):
    """A number in a range. nan, which no bound of click's holds up, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail("nan is no number.", param, ctx)
        return float(found)


class Folder(click.Path):
    """The path of a folder. An empty one, which Path takes for where the user stands, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not os.fspath(value):
            self.fail("the name of the directory is empty", param, ctx)
        return super().convert(value, param, ctx)


#: What clocks and poll(2) can take.
SECONDS_MAX = 1_000_000
SECONDS = Real(0, SECONDS_MAX, min_open=True)
Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DEFAULT_ADDRESS = "127.0.0.1:9092"
_SERVERS = "bootstrap.servers"
_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9._]*=")
_META = "kbroker.connection"
CONFIG_META: Final = "kbroker.config"
_NO_FILE = ("-", "none")  # kcat's, for a user who has a kcat.conf


def data_dir_option(command: Decorated) -> Decorated:
    """--data-dir D, which may be given several times: the argument `data_dir`, a tuple."""
    return click.option(
        "--data-dir",
        "-D",
        multiple=True,
        type=Folder(file_okay=False, path_type=Path),
        help="Data directory; several may be given, and those that the broker had at its last start"
        f" are added. {DATA_DIR_DEFAULT}",
    )(command)


def directories_option(command: Decorated) -> Decorated:
    """--data-dir D and --config F, whose `log.dirs` are meant without the former. The second waits
    in the context for kbroker.cli.directories."""
    command = click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_keep_config,
        help="Settings of the broker: its log.dirs are the data directories.",
    )(command)
    return data_dir_option(command)


def _keep_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    del param
    ctx.meta[CONFIG_META] = value


def broker_options(command: Decorated) -> Decorated:
    """--config F and --set K=V, the arguments `config_file` and `settings`."""
    command = click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Wins over --config."
    )(command)
    return click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Settings, in the form of Kafka's server.properties.",
    )(command)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Leaves an option in the context, for `client_settings`."""
    ctx.meta.setdefault(_META, {})[param.name] = value


def _client_option(command: Decorated) -> Decorated:
    return click.option(
        "--command-config",
        "-X",
        "-F",
        "properties",
        metavar="KEY=VALUE|FILE",
        multiple=True,
        expose_value=False,
        callback=_keep,
        help="A setting of the client, or a file of them (Kafka's client.properties).",
    )(command)


def _address_option(command: Decorated) -> Decorated:
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        metavar="HOST:PORT[,...]",
        help="Broker to talk to. Default: $KBROKER_BOOTSTRAP_SERVER, else the profile's, else the"
        f" broker that runs on the default data directory, else {_DEFAULT_ADDRESS}.",
    )(command)


def bootstrap_option(command: Decorated) -> Decorated:
    """-b/--bootstrap-server B, the argument `bootstrap`; and --profile and -X, which wait in the
    context until `open_cluster` or `client_settings` asks."""
    command = click.option(
        "--profile",
        metavar="PROFILE",
        expose_value=False,
        callback=_keep,
        help="Settings by name (`kbroker profile`). Default: $KBROKER_PROFILE, else the current"
        " one unless a broker is named.",
    )(_client_option(command))
    return _address_option(command)


def address_option(command: Decorated) -> Decorated:
    """The same without --profile, where that word means something else."""
    return _address_option(_client_option(command))


def settings_option(command: Decorated) -> Decorated:
    """--set KEY=VALUE: the same as -X, where no other settings could be meant."""
    return click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=_keep,
        help="A setting of the client, as linger.ms=5.",
    )(command)


def one_of(
    names: Sequence[str],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[str, ...]]:
    """The callback of an option whose values are among `names`, in whatever case; for one that is
    not the nearest is told. It raises BadParameter."""
    known = {name.lower(): name for name in names}

    def convert(
        ctx: click.Context, option: click.Parameter, values: tuple[str, ...]
    ) -> tuple[str, ...]:
        for value in values:
            if value.lower() not in known:
                near = nearest(value.lower(), known)
                meant = f"; did you mean {known[near]!r}?" if near else ""
                raise click.BadParameter(
                    f"{value!r} is none of {', '.join(names)}{meant}", ctx, option
                )
        return tuple(known[value.lower()] for value in values)

    return convert


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


def client_settings(
    bootstrap: str | None = None,
    profile: str | None = None,
    sets: Mapping[str, str] | Iterable[str] = (),
    file: str | os.PathLike[str] | None = None,
    *,
    kind: str = "admin",
) -> dict[str, str]:
    """The settings of a client, `bootstrap.servers` among them, by Kafka's names.

    sets: a mapping or KEY=VALUE; file: a properties file. Options of the command that runs
    (--profile, -X, --set) count as if they had been given here. kind: admin, producer or
    consumer; what only another kind knows is left out. Raises ConfigError for a name that none
    knows, OperatorError for a profile that is not there.
    """
    context = click.get_current_context(silent=True)
    told = context.meta.get(_META, {}) if context else {}
    own = _of_client(file) if file is not None else {}
    for word in told.get("properties") or ():
        if word not in _NO_FILE:
            own |= key_values([word], "-X") if _SETTING.match(word) else _of_client(word)
    for pairs in (told.get("settings") or (), sets):
        own |= pairs if isinstance(pairs, Mapping) else key_values(pairs, "--set")
    if own:
        from kbroker.cli.kcat_names import by_kafkas_names

        own = by_kafkas_names(own)
    address = bootstrap or own.pop(_SERVERS, None)
    chosen: dict[str, str] = {}
    named = profile or told.get("profile")
    if named:
        chosen = _profile(named)
        address = address or chosen.get(_SERVERS)
    address = address or os.environ.get("KBROKER_BOOTSTRAP_SERVER")
    if not named and ((asked := os.environ.get("KBROKER_PROFILE")) or not address):
        chosen = _profile(asked or None)
    address = address or chosen.get(_SERVERS) or _local_address()
    settings = {**chosen, **own, _SERVERS: address}
    if settings.keys() == {_SERVERS}:
        return settings
    from kbroker.cli.settings import known_to

    return known_to(kind, settings)


def _profile(name: str | None) -> dict[str, str]:
    from kbroker.cli.profiles import profile_named

    return profile_named(name)


def _of_client(path: str | os.PathLike[str]) -> dict[str, str]:
    """The settings of a properties file by Kafka's names. Those of other programs, such as
    `schema.registry.url`, are skipped with a warning, as Kafka's clients do."""
    from kbroker.cli.kcat_names import by_kafkas_names
    from kbroker.cli.settings import setting_names
    from kbroker.config.properties import property_values

    found = by_kafkas_names(property_values(Path(path)))
    known = {_SERVERS, *setting_names()}
    foreign = []
    for name in found.keys() - known:
        near = nearest(name, known)
        foreign.append(f"{name} (did you mean {near}?)" if near else name)
    if foreign:
        text = f"{path}: skipping settings that no client has: {', '.join(sorted(foreign))}"
        click.echo(f"kbroker: warning: {text}", err=True)
    return {name: value for name, value in found.items() if name in known}


def open_cluster(
    bootstrap: str | None,
    *,
    timeout_s: float = 30.0,
    settings: Mapping[str, str] | None = None,
) -> Cluster:
    """The cluster that -b, the profile or the settings name, or the one that runs here."""
    told = dict(client_settings(bootstrap) if settings is None else settings)
    if told.keys() == {_SERVERS}:
        return cluster_at(told[_SERVERS], timeout_s=timeout_s)
    from kbroker.cli.settings import cluster_settings

    return cluster_at(told[_SERVERS], settings=cluster_settings(told, timeout_s))


def cluster_at(servers: str | Sequence[str], **how: Any) -> Cluster:
    """A cluster by its addresses; click.BadParameter for one that is none. how: as Cluster's."""
    from kbroker.client.cluster import Cluster

    try:
        return Cluster(servers, **how)
    except ValueError as error:
        from kbroker.client.errors import ConfigError

        if isinstance(error, ConfigError):
            raise
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


def asked(info: runfile.RunInfo) -> tuple[str, bool]:
    """The address at which a broker is asked without settings of a client: that of a listener that
    takes anybody, where there is one; and whether it is such a one. A broker warns in its log of
    each connection to another one."""
    plain = info.open
    if plain is None:
        plain = [one for one in info.listeners if one.startswith(("PLAINTEXT://", "PLAINTEXT_"))]
    return reachable((*plain, *info.listeners)[0]), bool(plain)


def key_values(pairs: Iterable[str], option: str) -> dict[str, str]:
    """`k=v` pairs of an option that may be given several times."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{pair!r}: write KEY=VALUE", param_hint=option)
        found[key.strip()] = value.strip()
    return found
