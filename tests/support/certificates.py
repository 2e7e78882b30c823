"""Certificates for tests of TLS, made by the openssl command; none outlives its test run."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.needs import need_command

PASSWORD = "key store"


@dataclass(frozen=True)
class Identity:
    """Files of one owner. pem: key and chain in one; p12: the same, under PASSWORD."""

    key: Path
    certificate: Path
    pem: Path
    p12: Path


class Authority:
    """A CA of its own, in a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = folder / f"{name}.key"
        self.certificate = folder / f"{name}.pem"
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", self.key, "-out", self.certificate, "-days", "2", "-subj", f"/CN={name}",
        )  # fmt: skip

    def issue(
        self, name: str, hosts: str = "DNS:localhost,IP:127.0.0.1", days: int = 2
    ) -> Identity:
        """days: how long it holds; negative: it has ended so long ago."""
        at = self.folder / name
        made = Identity(*(at.with_suffix(end) for end in (".key", ".crt", ".pem", ".p12")))
        request, extensions = at.with_suffix(".csr"), at.with_suffix(".ext")
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", made.key, "-out", request, "-subj", f"/CN={name}",
        )  # fmt: skip
        extensions.write_text(f"subjectAltName={hosts}\n")
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key,
            "-CAcreateserial", "-out", made.certificate, "-days", str(days),
            "-extfile", extensions,
        )  # fmt: skip
        chain = made.certificate.read_text() + self.certificate.read_text()
        made.pem.write_text(made.key.read_text() + chain)
        openssl(
            "pkcs12", "-export", "-inkey", made.key, "-in", made.certificate,
            "-certfile", self.certificate, "-out", made.p12, "-passout", f"pass:{PASSWORD}",
        )  # fmt: skip
        return made


def openssl(*arguments: str | Path) -> None:
    """Runs one command of openssl."""
    program = need_command("openssl", "openssl")
    done = subprocess.run(
        [program, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"openssl {arguments}: {done.stderr}"
