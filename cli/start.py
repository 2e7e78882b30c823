"""`kbroker start`, with its help, its mistakes and `--detach`; the way to a broker is launch.py."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import click

from kbroker import runfile
from kbroker.cli.launch import FIRST_PORT, Ready, UsageError, Wish, prepare, serve, server_command
from kbroker.cli.options import DATA_DIR_DEFAULT, SECONDS, Folder, broker_options
from kbroker.cli.places import stop_command
from kbroker.environment import LOG_FILE, PASSWORD, START_FILE

_LOG_NAME = "kbroker.log"
_POLL_S = 0.02
_LOG_LINES_SHOWN = 5


class _WrongSettings(click.ClickException):
    exit_code = os.EX_CONFIG


@click.command()
@broker_options
@click.option(
    "--data-dir",
    "-D",
    multiple=True,
    type=Folder(file_okay=False, path_type=Path),
    help="Data directory; more of them for more disks, the one with the metadata log first."
    f" {DATA_DIR_DEFAULT}",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Address to listen on; port 0: the kernel picks one. Without it, loopback alone:"
    f" 127.0.0.1:{FIRST_PORT} or the next free port.",
)
@click.option(
    "--advertise",
    multiple=True,
    metavar="[NAME://]HOST:PORT",
    help="Address that clients are told, one for each --listen.",
)
@click.option(
    "--dev",
    is_flag=True,
    help="For a developer's machine: nothing is synced, replication factors count as 1, groups"
    " start at once. Without --data-dir the data go when the broker ends.",
)
@click.option(
    "--user",
    multiple=True,
    metavar="NAME[:PASSWORD]",
    help="Make this user, or give it this password, and let nobody in without one: listeners speak"
    " SASL_PLAINTEXT with SCRAM. Without PASSWORD: --password-file, $KBROKER_PASSWORD, else it is"
    " asked for.",
)
@click.option(
    "--password-file",
    metavar="FILE",
    help="With --user NAME: its first line; - for standard input.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="It is meant that listeners which other machines reach ask nobody who it is: no warning.",
)
@click.option(
    "--detach",
    is_flag=True,
    help=f"Return when it serves; it goes on in the background. Its log is {_LOG_NAME} in the data"
    f" directory; at 32 MiB it is renamed to {_LOG_NAME}.1, and a fresh one begun.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --detach: how long to wait until it serves.",
)
def start(
    config_file: Path | None,
    settings: tuple[str, ...],
    data_dir: tuple[Path, ...],
    listen: tuple[str, ...],
    advertise: tuple[str, ...],
    dev: bool,
    user: tuple[str, ...],
    password_file: str | None,
    insecure: bool,
    detach: bool,
    timeout: float,
) -> int:
    """Run a broker on a data directory. An empty one needs no format step.

    When it serves, it prints `listening on NAME://HOST:PORT`. Stop it with Ctrl-C, SIGTERM or
    `kbroker stop`. Exit status 78: its settings are wrong.
    """
    from kbroker.config import ConfigError

    wish = Wish(
        config=() if config_file is None else (str(config_file),),
        set=settings,
        data_dir=tuple(map(str, data_dir)),
        listen=listen,
        advertise=advertise,
        user=user,
        password_file=() if password_file is None else (password_file,),
        dev=dev,
        insecure=insecure,
    )
    try:
        ready = prepare(wish, foreground=not detach)
    except UsageError as error:
        if error.option:
            raise click.BadParameter(str(error), param_hint=error.option) from error
        raise click.UsageError(str(error)) from error
    except ConfigError as error:
        raise _WrongSettings(str(error)) from error
    if not detach:
        return serve(ready)
    return _detached(ready, timeout)


def _detached(ready: Ready, timeout_s: float) -> int:
    command, place = server_command(ready.arguments), ready.place
    log_file = (place / _LOG_NAME).absolute()
    environment = {**os.environ, LOG_FILE: str(log_file)}
    environment.pop(PASSWORD, None)
    inherited = []
    if ready.handed:
        from kbroker.security.handed import file_of

        inherited = [file_of(ready.handed)]
        environment[START_FILE] = str(inherited[0])
    with log_file.open("ab") as log:
        before = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            pass_fds=inherited,
        )
    deadline = time.monotonic() + timeout_s
    while True:
        info = runfile.running(place)
        if info is not None and info.pid == process.pid:
            break
        if process.poll() is not None:
            _show_end_of(log_file, before)
            return max(process.returncode, 1)
        if time.monotonic() > deadline:
            click.echo(
                f"kbroker: the broker (pid {process.pid}) does not serve after {timeout_s:g} s;"
                f" it goes on starting, see {log_file}",
                err=True,
            )
            return 1
        time.sleep(_POLL_S)
    _show_warnings(log_file, before)
    for listener in info.listeners:
        click.echo(f"listening on {listener}")
    click.echo(f"pid {info.pid}, data in {place}, log in {log_file}")
    click.echo(f"`{stop_command(place)}` ends it")
    return 0


def _show_warnings(log_file: Path, before: int) -> None:
    """What the start warns of is for who starts it."""
    import json

    with log_file.open("rb") as log:
        log.seek(before)
        for line in log.read().splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):  # not every line is JSON
                told = json.loads(line)
                if told["level"] in {"warn", "error"}:
                    click.echo(f"{told['level']}: {told['msg']}", err=True)


def _show_end_of(log_file: Path, before: int) -> None:
    with log_file.open("rb") as log:
        log.seek(before)
        said = log.read().decode(errors="replace").splitlines()
    for line in said[-_LOG_LINES_SHOWN:] or ["kbroker: the broker ended without a word"]:
        click.echo(line, err=True)
