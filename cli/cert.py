"""`kbroker cert create`: a CA of one's own and what it signs, for a first TLS set-up.

    ca.pem, ca.key       the CA; made once, used again by every later call with the same directory
    server.pem           key, certificate and CA for ssl.keystore.location
    client.properties    what clients need to trust the server
    NAME.pem             with --client: key, certificate and CA of a user
    NAME.properties      what a client needs to be that user

Nothing that is there is written over, but with --force what is not the CA's.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbroker.errors import OperatorError

if TYPE_CHECKING:
    from kbroker.security.certificates import Owned

_CA_DAYS = 3650
_NAME = re.compile(r"[\w.@ -]{1,64}")
_LABEL = r"\w(?:[\w-]*\w)?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_HOST_MOST = 253
_HERE = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tls"),
    show_default=True,
    help="Where the files are, and where they go.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME|ADDRESS",
    help="What clients call the server, besides localhost and this machine's name; several.",
)
@click.option("--client", metavar="USER", help="Make a client's certificate, of this user.")
@click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=825,
    show_default=True,
    help="How long the certificate holds.",
)
@click.option("--force", is_flag=True, help="Write over a certificate that is there.")
def create(
    folder: Path, hosts: tuple[str, ...], client: str | None, days: int, force: bool
) -> None:
    """Make a CA and a server's certificate, or a client's, signed by the CA of the directory.

    A new CA holds for ten years. Whoever has its key, ca.key, can be any server and any user: keep
    it where the broker is not.
    """
    if client is not None and not _NAME.fullmatch(client):
        raise click.BadParameter("letters, digits and . _ @ - are allowed", param_hint="--client")
    for host in hosts:
        if not _is_host(host):
            raise click.BadParameter(
                f"{host!r} is neither a name nor an address; write it without a port",
                param_hint="--host",
            )
    folder = folder.absolute()
    name = client or "server"
    files = [folder / f"{name}.pem", folder / f"{client or 'client'}.properties"]
    if found := [file for file in files if file.exists() and not force]:
        raise OperatorError(f"{found[0]} is there already; --force writes over it")
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    try:
        signer = _authority(folder)
        _issue(folder, signer, client, days, [*hosts, *_HERE, socket.gethostname()])
    except ValueError as error:
        raise OperatorError(str(error)) from None
    if client is None:
        _tell_server(folder)
    else:
        _tell_client(folder, client)


def _is_host(text: str) -> bool:
    """Whether it can stand in a certificate, as an address or a name, also one as *.example."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        pass
    else:
        return True
    try:
        return len(text.encode("idna")) <= _HOST_MOST and bool(_HOST.fullmatch(text))
    except UnicodeError:  # a part of the name is too long
        return False


def _authority(folder: Path) -> Owned:
    from kbroker.ext.tls_key import TlsKey
    from kbroker.security.certificates import Owned, authority, certificate_of, pem

    certificate, key = folder / "ca.pem", folder / "ca.key"
    if key.exists():
        found = TlsKey.read(key.read_bytes(), None, str(key))
        return Owned(certificate_of(certificate.read_text()), found)
    if certificate.exists():
        raise OperatorError(f"{certificate} is there, but not its key {key}")
    made = authority(f"kbroker CA of {socket.gethostname()}"[:64], _CA_DAYS)
    _write(key, made.key.pem().decode(), private=True)
    _write(certificate, pem(made.certificate))
    click.echo(f"{certificate}, {key}: a new CA")
    return made


def _issue(folder: Path, signer: Owned, client: str | None, days: int, hosts: list[str]) -> None:
    from kbroker.security.certificates import issued, pem

    if client is None:
        made = issued(signer, hosts[0], days, hosts=dict.fromkeys(hosts))
    else:
        made = issued(signer, client, days)
    store = folder / f"{client or 'server'}.pem"
    chain = pem(made.certificate) + pem(signer.certificate)
    _write(store, made.key.pem().decode() + chain, private=True)
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    if client is not None:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    _write(folder / f"{client or 'client'}.properties", lines)


def _tell_server(folder: Path) -> None:
    store = folder / "server.pem"
    click.echo(f"{store}: key and certificate of the server, for its user's eyes only")
    click.echo(f"{folder / 'client.properties'}: what clients need")
    click.echo(f"broker:  --listen SSL://HOST:9093 --set ssl.keystore.location={store}")
    click.echo(f"clients: -b HOST:9093 -X {folder / 'client.properties'}")


def _tell_client(folder: Path, client: str) -> None:
    click.echo(f"{folder / client}.properties: what {client}'s clients need")
    trust = f"ssl.truststore.location={folder / 'ca.pem'}"
    click.echo(f"broker:  --set ssl.client.auth=required --set {trust}, beside those of its own")
    click.echo(f"clients: -b HOST:9093 -X {folder / client}.properties")


def _write(path: Path, text: str, *, private: bool = False) -> None:
    """As a whole or not at all; nobody else reads a private one, not even for a moment."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(temporary, flags, 0o600 if private else 0o644), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
