"""TLS as the configuration wants it: `ssl.*`, with Kafka's names and librdkafka's.

Stores are read as the broker's are (kbroker.key_stores). Everything is read when the client is
made, so that what is wrong there is told at once.
"""

from __future__ import annotations

import socket

from kbroker.client.address import Address
from kbroker.client.config_common import ClientConfig
from kbroker.client.errors import ConfigError, ConnectError, TlsError
from kbroker.ext.tls_context import TlsChannel, TlsContext
from kbroker.key_stores import (
    identity_store,
    inline_pem,
    read_store,
    speak_ciphers,
    speak_versions,
    trust_store,
)

__all__ = ["Tls", "tls_of"]

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
        speak_versions(context, "ssl.enabled.protocols", config.ssl_enabled_protocols)
        speak_ciphers(context, "ssl.cipher.suites", config.ssl_cipher_suites)
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


def _set_trust(context: TlsContext, config: ClientConfig) -> None:
    if config.ssl_truststore_certificates is not None:
        pem = inline_pem(config.ssl_truststore_certificates)
        context.trust_pem(pem, "ssl.truststore.certificates")
        return
    for name, path in (
        ("ssl.truststore.location", config.ssl_truststore_location),
        ("ssl.ca.location", config.ssl_ca_location),
    ):
        if path is not None:
            trust_store(context, name, path, config.ssl_truststore_password)
            return
    context.trust_system()


def _set_identity(context: TlsContext, config: ClientConfig) -> None:
    password = config.ssl_key_password
    if config.ssl_keystore_key is not None:
        chain = inline_pem(config.ssl_keystore_certificate_chain or "")
        key = inline_pem(config.ssl_keystore_key)
        context.identity_pem(chain, key, password, "ssl.keystore.certificate.chain")
    elif config.ssl_certificate_location is not None and config.ssl_key_location is not None:
        name, path = "ssl.certificate.location", config.ssl_certificate_location
        key = read_store("ssl.key.location", config.ssl_key_location)
        context.identity_pem(read_store(name, path), key, password, f"{name} {path}")
    elif config.ssl_keystore_location is not None:
        identity_store(
            context, "ssl.keystore.location", config.ssl_keystore_location,
            config.ssl_keystore_password, password,
        )  # fmt: skip
