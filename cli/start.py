"""`kbroker start`: from options to settings, then over to the broker's own process.

The broker process is `python -m kbroker.server`, which knows nothing of this package: in the
foreground it takes this process's place, detached it becomes a session of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from kbroker import runfile
from kbroker.cli.options import (
    data_dir_option,
    default_data_dir,
    key_values,
    stop_command,
)

_FIRST_PORT = 9092
_PORTS_TRIED = 100
_LOG_NAME = "kbroker.log"
_POLL_S = 0.02
_LOG_LINES_SHOWN = 5


@click.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings, in the form of Kafka's server.properties.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Wins over --config.")
@data_dir_option
@click.option(
    "--listen",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Address to listen on; port 0: the kernel picks one. Without it, loopback alone:"
    f" 127.0.0.1:{_FIRST_PORT} or the next free port.",
)
@click.option(
    "--advertise",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Address that clients are told, one for each --listen.",
)
@click.option("--detach", is_flag=True, help="Return when it serves; it goes on in the background.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --detach: how long to wait until it serves.",
)
def start(
    config_file: Path | None,
    settings: tuple[str, ...],
    data_dir: Path | None,
    listen: tuple[str, ...],
    advertise: tuple[str, ...],
    detach: bool,
    timeout: float,
) -> int:
    """Run a broker on a data directory. An empty one needs no format step.

    When it serves, it prints `listening on PLAINTEXT://HOST:PORT`. Stop it with Ctrl-C, SIGTERM or
    `kbroker stop`.
    """
    chosen = key_values(settings, "--set")
    if data_dir is not None:
        chosen["log.dirs"] = str(data_dir.absolute())
    chosen.update(_listener_settings(listen, advertise))
    place = _settle(config_file, chosen)
    _refuse_second(place)
    _make_directory(place)
    # -P: a folder `kbroker` where the user stands is not the broker.
    command = [sys.executable, "-P", "-m", "kbroker.server"]
    if config_file is not None:
        command += ["--config", str(config_file)]
    for name, value in chosen.items():
        command += ["--set", f"{name}={value}"]
    if not detach:
        sys.stdout.flush()
        os.execv(sys.executable, command)
    return _detached(command, place, timeout)


def _settle(config_file: Path | None, chosen: dict[str, str]) -> Path:
    """Adds to `chosen` what neither file nor options say; gives the data directory.

    The broker checks all settings itself. Only a file is looked into here, so that a start
    without one costs nothing.
    """
    told = dict(chosen)
    if config_file is not None:
        from kbroker.config import load_config

        options = [f"{name}={value}" for name, value in chosen.items()]
        told = load_config(config_file, options).static
    if not {"log.dirs", "log.dir"} & told.keys():
        chosen["log.dirs"] = told["log.dirs"] = str(default_data_dir())
    if "listeners" not in told:
        chosen["listeners"] = f"PLAINTEXT://127.0.0.1:{_free_port()}"
    return Path(told.get("log.dirs") or told["log.dir"])


def _listener_settings(listen: tuple[str, ...], advertise: tuple[str, ...]) -> dict[str, str]:
    """--listen and --advertise as Kafka's settings."""
    if len(advertise) > max(1, len(listen)):
        raise click.UsageError("more --advertise than --listen; give one for each, in order")
    settings: dict[str, str] = {}
    names = [_listener_name(text, at) for at, text in enumerate(listen)]
    if listen:
        settings["listeners"] = ",".join(
            _with_name(text, name, "--listen") for text, name in zip(listen, names, strict=True)
        )
        own = [name for name in names if name not in ("PLAINTEXT", "SSL")]
        if own:
            mapped = ["PLAINTEXT:PLAINTEXT", *(f"{name}:PLAINTEXT" for name in own)]
            settings["listener.security.protocol.map"] = ",".join(mapped)
    if advertise:
        told = zip(advertise, names or ["PLAINTEXT"], strict=False)
        settings["advertised.listeners"] = ",".join(
            _with_name(text.rpartition("://")[2], name, "--advertise") for text, name in told
        )
    return settings


def _listener_name(text: str, at: int) -> str:
    name, found, _ = text.partition("://")
    if found:
        return name.upper()
    return "PLAINTEXT" if at == 0 else f"PLAINTEXT_{at + 1}"


def _with_name(text: str, name: str, option: str) -> str:
    """NAME://HOST:PORT, with Kafka's port where none is given."""
    from kbroker.client.address import parse_address

    try:
        address = parse_address(text, to_bind=option == "--listen")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    return f"{name}://{address}"


def _free_port() -> int:
    """The first free port from 9092 on; the broker binds it a moment later."""
    import socket

    for port in range(_FIRST_PORT, _FIRST_PORT + _PORTS_TRIED):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise click.ClickException(
        f"ports {_FIRST_PORT} to {_FIRST_PORT + _PORTS_TRIED - 1} are taken; give --listen"
    )


def _refuse_second(place: Path) -> None:
    info = runfile.running(place)
    if info is not None:
        at = ", ".join(info.listeners)
        raise click.ClickException(
            f"{place} is served already, by process {info.pid} at {at};"
            f" `{stop_command(place)}` ends it"
        )


def _make_directory(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(
            f"cannot create {place}: {error.strerror}; choose a data directory with --data-dir"
        ) from error
    if not os.access(place, os.W_OK | os.X_OK):
        raise click.ClickException(
            f"the data directory {place} is not writable; choose another with --data-dir"
        )


def _detached(command: list[str], place: Path, timeout_s: float) -> int:
    import subprocess
    import time

    log_file = (place / _LOG_NAME).absolute()
    with log_file.open("ab") as log:
        before = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "KBROKER_LOG_FILE": str(log_file)},
        )
    deadline = time.monotonic() + timeout_s
    while True:
        info = runfile.running(place)
        if info is not None and info.pid == process.pid:
            break
        if process.poll() is not None:
            _show_end_of(log_file, before)
            return 1
        if time.monotonic() > deadline:
            click.echo(
                f"kbroker: the broker (pid {process.pid}) does not serve after {timeout_s:g} s;"
                f" it goes on starting, see {log_file}",
                err=True,
            )
            return 1
        time.sleep(_POLL_S)
    for listener in info.listeners:
        click.echo(f"listening on {listener}")
    click.echo(f"pid {info.pid}, data in {place}, log in {log_file}")
    click.echo(f"`{stop_command(place)}` ends it")
    return 0


def _show_end_of(log_file: Path, before: int) -> None:
    with log_file.open("rb") as log:
        log.seek(before)
        said = log.read().decode(errors="replace").splitlines()
    for line in said[-_LOG_LINES_SHOWN:] or ["kbroker: the broker ended without a word"]:
        click.echo(line, err=True)
