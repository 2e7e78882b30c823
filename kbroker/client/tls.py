"""TLS as the configuration wants it: `ssl.*`, with Kafka's names and librdkafka's.

A key store is known by its first bytes, whatever ssl.keystore.type says: PEM, or PKCS #12 (what
keytool writes since Java 9). Java's older JKS cannot be read; the error says how to convert it.
Everything is read when the client is made, so that what is wrong there is told at once.
"""

from __future__ import annotations

import socket
from pathlib import Path

from kbroker.client.address import Address
from kbroker.client.config_common import ClientConfig
from kbroker.client.errors import ConfigError, ConnectError, TlsError
from kbroker.ext.tls_context import VERSIONS, TlsChannel, TlsContext

__all__ = ["Tls", "tls_of"]

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE = 0x30
_STORE_MAX_BYTES = 64 << 20

# OpenSSL's X509_V_ERR_*, and what helps.
_EXPIRED = (9, 10)
_UNKNOWN_CA = (18, 19, 20, 21)
_WRONG_HOST = (62, 64)


class Tls:
    """What every connection of a client shares; used by any thread."""

    def __init__(self, context: TlsContext, *, check_host: bool) -> None:
        self._context = context
        self._check_host = check_host

    def open(self, connected: socket.socket, address: Address, timeout_s: float) -> TlsChannel:
        """Makes the socket non-blocking and does the handshake.

        Raises TlsError where the other side is not who it should be or refuses us, ConnectError
        where it is gone, TimeoutError.
        """
        connected.setblocking(False)
        channel = self._context.channel(connected.fileno(), address.host, self._check_host)
        try:
            channel.handshake(timeout_s)
        except ConnectionAbortedError as error:
            raise TlsError(f"TLS with {address}: {error}{_advice(channel, str(error))}") from None
        except ConnectionResetError:
            raise TlsError(
                f"TLS with {address}: the broker closed the connection during the handshake;"
                " is this its TLS port?"
            ) from None
        except TimeoutError:
            raise ConnectError(f"no TLS answer from {address} within {timeout_s:g} s") from None
        return channel


def _advice(channel: TlsChannel, why: str) -> str:
    code = channel.verify_error
    if code in _UNKNOWN_CA:
        return "; ssl.truststore.location must hold the certificate of its CA"
    if code in _WRONG_HOST:
        return "; ssl.endpoint.identification.algorithm= (empty) would not look at the name"
    if code in _EXPIRED:
        return "; or this machine's clock is wrong"
    if "wrong version number" in why:
        return "; is this the port of a listener without TLS?"
    return ""


def tls_of(config: ClientConfig) -> Tls | None:
    """None where security.protocol has no TLS. Raises ConfigError."""
    if not config.security_protocol.endswith("SSL"):
        return None
    try:
        context = TlsContext()
        _set_versions(context, config)
        _set_trust(context, config)
        _set_identity(context, config)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Tls(context, check_host=_checks_host(config))


def _checks_host(config: ClientConfig) -> bool:
    algorithm = config.ssl_endpoint_identification_algorithm.lower()
    if algorithm not in ("https", "", "none"):
        raise ConfigError(
            f"ssl.endpoint.identification.algorithm={algorithm}: must be https or empty"
        )
    return algorithm == "https"


def _set_versions(context: TlsContext, config: ClientConfig) -> None:
    spoken = sorted(VERSIONS.keys() & set(config.ssl_enabled_protocols))
    if not spoken:
        told = ",".join(config.ssl_enabled_protocols)
        raise ConfigError(f"ssl.enabled.protocols={told}: TLSv1.2 and TLSv1.3 are spoken here")
    context.speak(spoken[0], spoken[-1])
    if config.ssl_cipher_suites:
        try:
            context.ciphers(list(config.ssl_cipher_suites))
        except ValueError as error:
            raise ConfigError(f"ssl.cipher.suites: {error}") from None


def _set_trust(context: TlsContext, config: ClientConfig) -> None:
    if config.ssl_truststore_certificates is not None:
        pem = config.ssl_truststore_certificates.encode()
        context.trust_pem(pem, "ssl.truststore.certificates")
        return
    for name, path in (
        ("ssl.truststore.location", config.ssl_truststore_location),
        ("ssl.ca.location", config.ssl_ca_location),
    ):
        if path is not None:
            data, source = _read(name, path), f"{name} {path}"
            if data[0] == _DER_SEQUENCE:
                context.trust_pkcs12(data, config.ssl_truststore_password, source)
            else:
                context.trust_pem(data, source)
            return
    context.trust_system()


def _set_identity(context: TlsContext, config: ClientConfig) -> None:
    password = config.ssl_key_password
    if config.ssl_keystore_key is not None:
        chain = (config.ssl_keystore_certificate_chain or "").encode()
        key = config.ssl_keystore_key.encode()
        context.identity_pem(chain, key, password, "ssl.keystore.certificate.chain")
    elif config.ssl_certificate_location is not None and config.ssl_key_location is not None:
        name, path = "ssl.certificate.location", config.ssl_certificate_location
        key = _read("ssl.key.location", config.ssl_key_location)
        context.identity_pem(_read(name, path), key, password, f"{name} {path}")
    elif config.ssl_keystore_location is not None:
        name, path = "ssl.keystore.location", config.ssl_keystore_location
        data, source = _read(name, path), f"{name} {path}"
        if data[0] == _DER_SEQUENCE:
            context.identity_pkcs12(data, config.ssl_keystore_password or password, source)
        else:
            context.identity_pem(data, data, password, source)


def _read(name: str, path: str) -> bytes:
    """A key store that this client can read; never empty."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_STORE_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name} {path}: {error.strerror}") from None
    if data.startswith(_JKS):
        raise ConfigError(
            f"{name} {path} is a JKS key store, which only Java reads; convert it: keytool"
            f" -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    if not data or len(data) > _STORE_MAX_BYTES:
        raise ConfigError(f"{name} {path}: {len(data)} bytes are no key store")
    return data
