"""Tokens that openssl signs, and their keys as a key set has them (RFC 7515, RFC 7517)."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.needs import need_command

CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
SIZES = {"ES256": 32, "ES384": 48, "ES512": 66}


def url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def openssl(*words: str | Path, data: bytes = b"") -> bytes:
    need_command("openssl", "openssl")
    command = ["openssl", *map(str, words)]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


class Signer:
    """A key of openssl's."""

    def __init__(self, directory: Path, algorithm: str, key_id: str = "one") -> None:
        self.algorithm, self.file = algorithm, directory / f"{algorithm}.pem"
        self.key_id = key_id
        if algorithm in CURVES:
            curve = ["-pkeyopt", f"ec_paramgen_curve:{CURVES[algorithm]}"]
            openssl("genpkey", "-algorithm", "EC", *curve, "-out", self.file)
        else:
            openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048",
                    "-out", self.file)  # fmt: skip

    def jwk(self) -> dict[str, Any]:
        if self.algorithm in CURVES:
            der = openssl("pkey", "-in", self.file, "-pubout", "-outform", "DER")
            size = SIZES[self.algorithm]
            x, y = der[-2 * size : -size], der[-size:]
            return {"kty": "EC", "crv": CURVES[self.algorithm], "x": url64(x), "y": url64(y),
                    "kid": self.key_id}  # fmt: skip
        modulus = openssl("rsa", "-in", self.file, "-noout", "-modulus").strip().split(b"=")[1]
        return {"kty": "RSA", "n": url64(bytes.fromhex(modulus.decode())), "e": "AQAB",
                "kid": self.key_id, "use": "sig"}  # fmt: skip

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        head = {"alg": self.algorithm, "typ": "JWT", "kid": self.key_id} | header
        signed = f"{url64(json.dumps(head).encode())}.{url64(json.dumps(claims).encode())}"
        digest = f"-sha{self.algorithm[2:]}"
        options = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"]
        more = options if self.algorithm.startswith("PS") else []
        signature = openssl("dgst", digest, "-sign", self.file, *more, data=signed.encode())
        if self.algorithm in CURVES:
            signature = raw_signature(signature, SIZES[self.algorithm])
        return f"{signed}.{url64(signature)}"


def raw_signature(der: bytes, size: int) -> bytes:
    """r and s of SEQUENCE { INTEGER r, INTEGER s }."""
    at = 2 if der[1] < 0x80 else 3
    numbers = []
    for _ in range(2):
        length = der[at + 1]
        numbers.append(int.from_bytes(der[at + 2 : at + 2 + length]).to_bytes(size))
        at += 2 + length
    return b"".join(numbers)
