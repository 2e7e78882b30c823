"""From the options of `kbroker start` to a broker: settings, data directory, hand over.

Free of click, so that a broker in the foreground starts without it: `plain_wish` reads options
that need no explaining, and what it cannot read goes through `kbroker.cli.start`, which can.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kbroker import runfile
from kbroker.cli.places import data_dirs, default_data_dirs, stop_command
from kbroker.environment import PASSWORD, START_SETTINGS, setting_variables
from kbroker.errors import OperatorError
from kbroker.owner import refuse_foreign

__all__ = [
    "FIRST_PORT",
    "Ready",
    "UsageError",
    "Wish",
    "listener_settings",
    "plain_wish",
    "prepare",
    "serve",
    "server_command",
]

FIRST_PORT = 9092
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MEANT: Final = {"TLS": "SSL", "HTTPS": "SSL", "SASL": "SASL_PLAINTEXT", "SASL_TLS": "SASL_SSL"}
_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_SECURED: Final = "SASL_PLAINTEXT"
_PORTS_TRIED = 100

# Of --dev, where nothing else is told: what a developer's machine can do without, and what lets a
# program meant for a cluster of three run on it.
_DEV: Final = {
    "kbroker.durability": "page-cache",
    "kbroker.replication.factor.clamp": "true",
    "group.initial.rebalance.delay.ms": "0",
}


class UsageError(ValueError):
    """An option that cannot be; option is its name, or empty."""

    def __init__(self, text: str, option: str = "") -> None:
        super().__init__(text)
        self.option = option


class Wish(NamedTuple):
    """What the options of `kbroker start` say; no dataclass, whose module costs a start 5 ms."""

    config: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    data_dir: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    advertise: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    password_file: tuple[str, ...] = ()
    dev: bool = False
    insecure: bool = False


class Ready(NamedTuple):
    """A data directory that is there and free, and the arguments of `kbroker.server`."""

    place: Path
    arguments: list[str]
    throwaway: bool
    """The directory goes when the broker ends."""
    handed: dict[str, str]
    """Variables for the broker that nobody else is to see, see kbroker.security.handed."""
    spoken: dict[str, str]
    """Words of the command line that end in a secret, and the secret."""


_OPTIONS = {
    "--config": "config",
    "--set": "set",
    "--data-dir": "data_dir",
    "-D": "data_dir",
    "--listen": "listen",
    "--advertise": "advertise",
    "--user": "user",
    "--password-file": "password_file",
}
_FLAGS = {"--dev": "dev", "--insecure": "insecure"}


def plain_wish(words: Sequence[str]) -> Wish | None:
    """The wish of a start in the foreground; None where a word is not an option with a value."""
    told: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word in _FLAGS:
            told[_FLAGS[word]] = True
            continue
        option, equals, value = word.partition("=")
        name = _OPTIONS.get(option)
        following = value if equals else next(rest, None)
        if name is None or following is None or (equals and not option.startswith("--")):
            return None
        told[name] = (*told.get(name, ()), following)
    return Wish(**told)


def prepare(wish: Wish, *, foreground: bool = True) -> Ready:
    """Everything that a start needs.

    The broker checks all settings itself. Only a file is looked into here, so that a start
    without one costs nothing. Raises UsageError or OperatorError.
    """
    chosen: dict[str, str] = {}
    for pair in wish.set:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{pair!r}: write KEY=VALUE", "--set")
        chosen[key.strip()] = value.strip()
    if wish.data_dir:
        chosen["log.dirs"] = ",".join(map(_named, wish.data_dir))
    secured = bool(wish.user)
    if wish.password_file and not secured:
        raise UsageError("whose password it is says --user NAME", "--password-file")
    if wish.insecure:
        chosen["kbroker.insecure"] = "true"
    config_file = Path(wish.config[-1]) if wish.config else None
    listeners = listener_settings(wish.listen, wish.advertise, secured=secured)
    untold = _unreachable(wish)
    if untold and not _is_told("advertised.listeners", config_file, chosen):
        raise UsageError(
            f"clients cannot connect to {untold}; tell their address with --advertise HOST:PORT",
            "--listen",
        )
    if _PROTOCOL_MAP in listeners:
        if _is_told(_PROTOCOL_MAP, config_file, chosen):
            del listeners[_PROTOCOL_MAP]
        else:
            _refuse_meant(wish.listen)
    chosen.update(listeners)
    told = _told(config_file, chosen)
    throwaway = wish.dev and not {"log.dirs", "log.dir"} & told.keys()
    if throwaway:
        if not foreground:
            raise UsageError(
                "--dev removes its data when it ends, and so stays in the foreground; with"
                " --data-dir it keeps them"
            )
        chosen["log.dirs"] = told["log.dirs"] = _throwaway_place()
    if wish.dev:
        chosen.update((name, value) for name, value in _DEV.items() if name not in told)
    places = _settle(chosen, told, secured=secured)
    if secured:
        _refuse_open({**told, **chosen})
    place = places[0]
    _refuse_second(place)
    for one in places:
        refuse_foreign(one)  # before anything is written, a log too
    handed = _users(wish) if secured else {}
    secret = _secret_settings(wish)
    if secret:
        handed[START_SETTINGS] = json.dumps([f"{name}={chosen.pop(name)}" for name in secret])
    _make_directory(place)
    arguments = ["--config", str(config_file)] if config_file else []
    for name, value in chosen.items():
        arguments += ["--set", f"{name}={value}"]
    return Ready(place, arguments, throwaway, handed, _spoken(wish, secret))


def serve(ready: Ready) -> int:
    """Becomes the broker; returns its exit status when it has stopped."""
    try:
        from kbroker.server.__main__ import main

        _conceal(ready)
        os.environ.update(ready.handed)
        return main(ready.arguments)
    except KeyboardInterrupt:  # before the broker takes its signals
        return 130
    finally:
        if ready.throwaway:
            import shutil

            shutil.rmtree(ready.place, ignore_errors=True)


def _conceal(ready: Ready) -> None:
    """What this process becomes lives for long, and `ps` shows how it was started."""
    if ready.spoken or PASSWORD in os.environ:
        from kbroker.cli.concealing import conceal

        os.environ.pop(PASSWORD, None)
        conceal(ready.spoken, PASSWORD)


def _secret_settings(wish: Wish) -> list[str]:
    """The names of --set whose values are never shown."""
    names = dict.fromkeys(pair.partition("=")[0].strip() for pair in wish.set)
    if not names:
        return []
    from kbroker.config.definitions import is_secret

    return [*filter(is_secret, names)]


def _spoken(wish: Wish, secret: list[str]) -> dict[str, str]:
    """See Ready."""
    users = {word: word.partition(":")[2] for word in wish.user}
    pairs = (pair for pair in wish.set if pair.partition("=")[0].strip() in secret)
    return {word: told for word, told in users.items() if told} | {
        pair: pair.partition("=")[2] for pair in pairs
    }


def _named(directory: str) -> str:
    if not directory:
        raise UsageError("the name of the directory is empty", "--data-dir")
    if "," in directory:
        raise UsageError("a comma in the name of a directory separates two", "--data-dir")
    return str(Path(directory).absolute())


def _is_told(name: str, config_file: Path | None, chosen: dict[str, str]) -> bool:
    """Whether the user set it: what a listener speaks is his word."""
    from kbroker.config.environment import variable_of

    if name in chosen or variable_of(name) in os.environ:
        return True
    if config_file is None:
        return False
    from kbroker.config.properties import read_properties

    return name in read_properties(config_file)


def _told(config_file: Path | None, chosen: dict[str, str]) -> dict[str, str]:
    """What file, environment and options say."""
    if config_file is None and not setting_variables(os.environ):
        return dict(chosen)
    from kbroker.config import load_config

    options = [f"{name}={value}" for name, value in chosen.items()]
    return dict(load_config(config_file, options).static)


def _throwaway_place() -> str:
    import tempfile

    return os.path.join(tempfile.gettempdir(), f"kbroker-dev-{os.urandom(6).hex()}")


def _users(wish: Wish) -> dict[str, str]:
    """The users that the start makes, their passwords hashed."""
    from kbroker.cli.passwords import password_of, split_user
    from kbroker.environment import START_USERS
    from kbroker.security.handed import handed

    file = wish.password_file[-1] if wish.password_file else None
    pairs = [split_user(word) for word in wish.user]
    users = dict(pairs)
    if len(users) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise UsageError(f"{twice} is given twice; which password counts?", "--user")
    passwords = {name: word or password_of(name, file) for name, word in users.items()}
    return {START_USERS: handed(passwords)}


def _refuse_open(settings: dict[str, str]) -> None:
    """--user promises that nobody gets in without a password."""
    from kbroker.config import BrokerConfig

    listeners = BrokerConfig(settings).listeners
    open_ones = [one.name for one in listeners if not one.protocol.startswith("SASL")]
    if open_ones:
        raise UsageError(
            f"the listener {', '.join(open_ones)} asks for no password; have it speak"
            " SASL_PLAINTEXT or SASL_SSL in listener.security.protocol.map",
            "--user",
        )


def _settle(chosen: dict[str, str], told: dict[str, str], *, secured: bool) -> list[Path]:
    """Adds to `chosen` what neither file nor options say; gives the data directories."""
    if not {"log.dirs", "log.dir"} & told.keys():
        chosen["log.dirs"] = told["log.dirs"] = ",".join(map(str, default_data_dirs()))
    if "listeners" not in told:
        speaks = _SECURED if secured else "PLAINTEXT"
        chosen["listeners"] = f"{speaks}://127.0.0.1:{_free_port()}"
    places = data_dirs(told)
    if not places:
        raise UsageError("log.dirs names no directory")
    return places


def listener_settings(
    listen: Sequence[str], advertise: Sequence[str], *, secured: bool = False
) -> dict[str, str]:
    """--listen and --advertise as Kafka's settings; secured: those without a protocol ask who one
    is."""
    if len(advertise) > max(1, len(listen)):
        raise UsageError("more --advertise than --listen; give one for each, in order")
    settings: dict[str, str] = {}
    plain = _SECURED if secured else "PLAINTEXT"
    names = [_listener_name(text, at, plain) for at, text in enumerate(listen)]
    if listen:
        settings["listeners"] = ",".join(
            _with_name(text, name, "--listen") for text, name in zip(listen, names, strict=True)
        )
        own = [name for name in names if name not in _PROTOCOLS]
        if own:
            mapped = [f"{one}:{one}" for one in _PROTOCOLS if one == "PLAINTEXT" or one in names]
            mapped += [f"{name}:{plain}" for name in own]
            settings[_PROTOCOL_MAP] = ",".join(mapped)
    if advertise:
        told = zip(advertise, names or [plain], strict=False)
        settings["advertised.listeners"] = ",".join(
            _with_name(text.rpartition("://")[2], _told_name(text, name), "--advertise")
            for text, name in told
        )
    return settings


def _told_name(text: str, name: str) -> str:
    """The name that an --advertise gives, else that of the --listen in its place."""
    given, found, _ = text.partition("://")
    return given.upper() if found else name


def _unreachable(wish: Wish) -> str:
    """The host of a --listen that is every interface and has no --advertise, or nothing."""
    from kbroker.client.address import parse_address

    hosts = [parse_address(text, to_bind=True).host for text in wish.listen[len(wish.advertise) :]]
    return next((host for host in hosts if host in ("0.0.0.0", "::")), "")


def _refuse_meant(listen: Sequence[str]) -> None:
    """A listener of a name of one's own speaks plain text: who writes TLS means something else."""
    for text in listen:
        name, found, _ = text.partition("://")
        meant = _MEANT.get(name.upper()) if found else None
        if meant:
            raise UsageError(
                f"{name}:// is no protocol of Apache Kafka's; write {meant}://, or say in"
                f" listener.security.protocol.map what {name} speaks",
                "--listen",
            )


def _listener_name(text: str, at: int, plain: str) -> str:
    name, found, _ = text.partition("://")
    if found:
        return name.upper()
    return plain if at == 0 else f"{plain}_{at + 1}"


def _with_name(text: str, name: str, option: str) -> str:
    """NAME://HOST:PORT, with Kafka's port where none is given."""
    from kbroker.client.address import parse_address

    try:
        address = parse_address(text, to_bind=option == "--listen")
    except ValueError as error:
        raise UsageError(str(error), option) from error
    return f"{name}://{address}"


def _free_port() -> int:
    """The first free port from 9092 on; the broker binds it a moment later."""
    import socket

    for port in range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    last = FIRST_PORT + _PORTS_TRIED - 1
    raise OperatorError(f"ports {FIRST_PORT} to {last} are taken; give --listen")


def _refuse_second(place: Path) -> None:
    info = runfile.running(place)
    if info is not None:
        at = ", ".join(info.listeners)
        raise OperatorError(
            f"{place} is served already, by process {info.pid} at {at};"
            f" `{stop_command(place)}` ends it"
        )


def _make_directory(place: Path) -> None:
    """Its user's alone: passwords and keys are in what the metadata log has."""
    try:
        place.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OperatorError(
            f"cannot create {place}: {error.strerror}; choose a data directory with --data-dir"
        ) from error
    if not os.access(place, os.W_OK | os.X_OK):
        raise OperatorError(
            f"the data directory {place} is not writable; choose another with --data-dir"
        )


def server_command(arguments: list[str]) -> list[str]:
    """The command of a broker process of its own. -P: a folder `kbroker` where the user stands
    is not the broker; -I, as this process has it: nor is what $PYTHONPATH brings."""
    apart = "-I" if sys.flags.isolated else "-P"
    return [sys.executable, apart, "-m", "kbroker.server", *arguments]
