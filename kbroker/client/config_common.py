"""Settings that producers, consumers and admins share: connections, metadata, SASL, TLS.

Names, defaults and ranges are those of Apache Kafka 4.3 (tests/client compares them with its
jars); `effective=False` marks what means nothing outside of a JVM. Those at the end have no
counterpart in Kafka and are librdkafka's, or are marked as our own.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from kbroker.client.config_types import (
    at_least,
    between,
    boolean,
    double,
    int16,
    int32,
    int64,
    invalid,
    one_of,
    one_of_any_case,
    password,
    plugin,
    plugins,
    read_settings,
    specs_of,
    string,
    words,
)
from kbroker.client.errors import ConfigError
from kbroker.urls import shown_url

__all__ = ["SASL_MECHANISMS", "ClientConfig"]

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_log = logging.getLogger("kbroker.client.config")


# fmt: off
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ClientConfig:
    """What every client is told. Times are in ms and sizes in bytes unless the name says else.

    given: the attributes that the user set, which some checks ask for.
    """

    given: frozenset[str] = frozenset()

    bootstrap_servers: tuple[str, ...] = words((),
        "Addresses HOST:PORT of some brokers, from which the others are learnt.")
    client_id: str = string("",
        "Name of the client in the broker's logs and quotas; made up where none is given.")
    client_dns_lookup: str = string(
        "use_all_dns_ips", one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "Whether all addresses of a name are tried in turn, or bootstrap names are expanded to "
        "their canonical names.")
    config_providers: tuple[str, ...] = words((),
        "Java plugins that resolve variables in values.", effective=False)
    connections_max_idle_ms: int = int64(540_000,
        "Idle connections are closed after this time; negative: never.")
    default_api_timeout_ms: int = int32(60_000, at_least(0),
        "Limit of a call that is given none, retries included.")
    enable_metrics_push: bool = boolean(True,
        "Whether metrics are pushed to brokers that ask for them (KIP-714). Never done here.",
        effective=False)
    metadata_max_age_ms: int = int64(300_000, at_least(0),
        "Metadata older than this is asked for again even without an error.")
    metadata_recovery_rebootstrap_trigger_ms: int = int64(300_000, at_least(0),
        "How long no known broker may have answered before the bootstrap addresses are used anew "
        "(KIP-1102).")
    metadata_recovery_strategy: str = string(
        "rebootstrap", one_of_any_case("rebootstrap", "none"),
        "What is done when none of the known brokers can be reached.")
    metric_reporters: tuple[Any, ...] = plugins((),
        "Java classes that report metrics; metrics() tells them here.", effective=False)
    metrics_num_samples: int = int32(2, at_least(1),
        "How many windows a metric is computed over.")
    metrics_recording_level: str = string("INFO", one_of("INFO", "DEBUG", "TRACE"),
        "How detailed the metrics are.", effective=False)
    metrics_sample_window_ms: int = int64(30_000, at_least(0),
        "The length of such a window.")
    receive_buffer_bytes: int = int32(65536, at_least(-1),
        "SO_RCVBUF of connections; -1, or where it is not set: the system's, which grows.")
    reconnect_backoff_max_ms: int = int64(1_000, at_least(0),
        "The pause before a connection is tried again doubles with each failure up to this.")
    reconnect_backoff_ms: int = int64(50, at_least(0),
        "The first pause before a failed connection is tried again.")
    request_timeout_ms: int = int32(30_000, at_least(0),
        "How long an answer may take before the connection is given up.")
    retries: int = int32(2_147_483_647, between(0, 2_147_483_647),
        "How often a request that failed in a way that passes is sent again; its time limit ends "
        "it earlier.")
    retry_backoff_max_ms: int = int64(1_000, at_least(0),
        "The pause before a retry doubles with each failure up to this.")
    retry_backoff_ms: int = int64(100, at_least(0),
        "The first pause before a failed request is sent again.")
    sasl_client_callback_handler_class: Any = plugin(None,
        "Java class that answers a mechanism's questions.", effective=False)
    sasl_jaas_config: str | None = password(None,
        "Login in Kafka's JAAS form: MODULE required username=\"...\" password=\"...\";")
    sasl_kerberos_kinit_cmd: str = string("/usr/bin/kinit",
        "Kerberos is not offered.", effective=False)
    sasl_kerberos_min_time_before_relogin: int = int64(60_000,
        "Kerberos is not offered.", effective=False)
    sasl_kerberos_service_name: str | None = string(None,
        "Kerberos is not offered.", effective=False)
    sasl_kerberos_ticket_renew_jitter: float = double(0.05,
        "Kerberos is not offered.", effective=False)
    sasl_kerberos_ticket_renew_window_factor: float = double(0.8,
        "Kerberos is not offered.", effective=False)
    sasl_login_callback_handler_class: Any = plugin(None,
        "Java class that fetches tokens; sasl.oauthbearer.token.callback does that here.",
        effective=False)
    sasl_login_class: Any = plugin(None,
        "Java class of the login.", effective=False)
    sasl_login_connect_timeout_ms: int | None = int32(None,
        "Limit for connecting to the token endpoint.")
    sasl_login_read_timeout_ms: int | None = int32(None,
        "Limit for the token endpoint's answer.")
    sasl_login_refresh_buffer_seconds: int = int16(300, between(0, 3600),
        "A token is renewed at least this long before it expires.")
    sasl_login_refresh_min_period_seconds: int = int16(60, between(0, 900),
        "A token is kept at least this long before it is renewed.")
    sasl_login_refresh_window_factor: float = double(0.8, between(0.5, 1.0),
        "The part of a token's life after which it is renewed.")
    sasl_login_refresh_window_jitter: float = double(0.05, between(0.0, 0.25),
        "The part of a token's life by which that moment is moved at random.")
    sasl_login_retry_backoff_max_ms: int = int64(10_000,
        "The longest pause between tries at the token endpoint.")
    sasl_login_retry_backoff_ms: int = int64(100,
        "The first pause between tries at the token endpoint.")
    sasl_mechanism: str = string("GSSAPI",
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kafka's default is not offered.")
    sasl_oauthbearer_assertion_algorithm: str = string(
        "RS256", one_of_any_case("ES256", "RS256"),
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_claim_aud: str | None = string(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_claim_exp_seconds: int = int32(300, between(0, 86400),
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_claim_iss: str | None = string(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_claim_jti_include: bool = boolean(False,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = int32(60, between(0, 3600),
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_claim_sub: str | None = string(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_file: str | None = string(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_private_key_file: str | None = string(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = password(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_assertion_template_file: str | None = string(None,
        "Signed assertions are not offered.", effective=False)
    sasl_oauthbearer_client_credentials_client_id: str | None = string(None,
        "Client id at the token endpoint (RFC 6749, client credentials).")
    sasl_oauthbearer_client_credentials_client_secret: str | None = password(None,
        "The secret of that client id.")
    sasl_oauthbearer_clock_skew_seconds: int = int32(30,
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_expected_audience: tuple[str, ...] = words((),
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_expected_issuer: str | None = string(None,
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_header_urlencode: bool = boolean(False,
        "Whether client id and secret are URL-encoded in the Authorization header, as RFC 6749 "
        "2.3.1 has it.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = int64(3_600_000,
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = int64(10_000,
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = int64(100,
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_jwks_endpoint_url: str | None = string(None,
        "For who validates tokens, which clients do not.", effective=False)
    sasl_oauthbearer_jwt_retriever_class: Any = plugin(None,
        "Java class that fetches tokens.", effective=False)
    sasl_oauthbearer_jwt_validator_class: Any = plugin(None,
        "Java class that validates tokens.", effective=False)
    sasl_oauthbearer_scope: str | None = string(None,
        "The scope that is asked for at the token endpoint.")
    sasl_oauthbearer_scope_claim_name: str = string("scope",
        "Name of a token's claim that holds its scope.", effective=False)
    sasl_oauthbearer_sub_claim_name: str = string("sub",
        "Name of a token's claim that holds its subject.", effective=False)
    sasl_oauthbearer_token_endpoint_url: str | None = string(None,
        "Where tokens are got with the client's credentials; https:// or http://.")
    security_protocol: str = string(
        "PLAINTEXT", one_of_any_case("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "How brokers are spoken to.")
    security_providers: str | None = string(None,
        "Java classes.", effective=False)
    send_buffer_bytes: int = int32(131_072, at_least(-1),
        "SO_SNDBUF of connections; -1, or where it is not set: the system's, which grows.")
    socket_connection_setup_timeout_max_ms: int = int64(30_000,
        "The limit for connecting doubles with each failure up to this.")
    socket_connection_setup_timeout_ms: int = int64(10_000,
        "The first limit for connecting.")
    ssl_cipher_suites: tuple[str, ...] = words((),
        "Cipher suites, by Kafka's names or OpenSSL's; none: OpenSSL's own.")
    ssl_enabled_protocols: tuple[str, ...] = words(("TLSv1.2", "TLSv1.3"),
        "Versions of TLS that may be spoken.")
    ssl_endpoint_identification_algorithm: str = string("https",
        "https: the broker's certificate must bear the name that was asked for; empty: not "
        "looked at.")
    ssl_engine_factory_class: Any = plugin(None,
        "Java class.", effective=False)
    ssl_key_password: str | None = password(None,
        "Password of the client's private key.")
    ssl_keymanager_algorithm: str = string("SunX509",
        "Name of a Java algorithm.", effective=False)
    ssl_keystore_certificate_chain: str | None = password(None,
        "The client's certificate chain, PEM text.")
    ssl_keystore_key: str | None = password(None,
        "The client's private key, PEM text.")
    ssl_keystore_location: str | None = string(None,
        "File with the client's key and certificate chain.")
    ssl_keystore_password: str | None = password(None,
        "Password of that file; PEM has none.")
    ssl_keystore_type: str = string("JKS",
        "PEM or PKCS12; the file itself tells which, and Java's JKS cannot be read.")
    ssl_protocol: str = string("TLSv1.3",
        "Java's name of the protocol; ssl.enabled.protocols says what is spoken.",
        effective=False)
    ssl_provider: str | None = string(None,
        "Java's provider.", effective=False)
    ssl_secure_random_implementation: str | None = string(None,
        "Java's random numbers.", effective=False)
    ssl_trustmanager_algorithm: str = string("PKIX",
        "Name of a Java algorithm.", effective=False)
    ssl_truststore_certificates: str | None = password(None,
        "Certificates that are trusted, PEM text.")
    ssl_truststore_location: str | None = string(None,
        "File of certificates that are trusted; none: the system's.")
    ssl_truststore_password: str | None = password(None,
        "Password of that file; PEM has none.")
    ssl_truststore_type: str = string("JKS",
        "PEM or PKCS12; the file itself tells which, and Java's JKS cannot be read.")

    # librdkafka's names
    sasl_username: str | None = string(None,
        "User for PLAIN and SCRAM.")
    sasl_password: str | None = password(None,
        "Password for PLAIN and SCRAM.")
    ssl_ca_location: str | None = string(None,
        "PEM file of certificates that are trusted; the same as ssl.truststore.location.")
    ssl_certificate_location: str | None = string(None,
        "PEM file of the client's certificate chain.")
    ssl_key_location: str | None = string(None,
        "PEM file of the client's private key.")
    enable_sasl_oauthbearer_unsecure_jwt: bool = boolean(False,
        "Whether OAUTHBEARER may make unsigned tokens by itself; for tests only.")
    # our own
    sasl_oauthbearer_token_callback: Any = plugin(None,
        "Python callable without arguments that gives a kbroker.client.oauth.Token.")

    def __repr__(self) -> str:
        """What the user set, secrets hidden."""
        specs = specs_of(type(self))
        shown = []
        for name in sorted(self.given):
            value = getattr(self, name)
            if specs[name].secret:
                value = "[hidden]"
            elif name.endswith("_url") and isinstance(value, str):
                value = repr(shown_url(value))
            else:
                value = repr(value)
            shown.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"
# fmt: on


def read_common(kind: type[ClientConfig], given: Any, more: Any) -> dict[str, Any]:
    """The settings of a config class with what all clients check and derive. Raises ConfigError."""
    found = read_settings(kind, given, more)
    specs = specs_of(kind)
    for name in sorted(found):
        if not specs[name].effective:
            _log.warning("%s has no effect: %s", name.replace("_", "."), specs[name].doc)
    found["given"] = frozenset(found)
    if "reconnect_backoff_ms" in found and "reconnect_backoff_max_ms" not in found:
        found["reconnect_backoff_max_ms"] = found["reconnect_backoff_ms"]  # as Kafka: no growth
    _check_security(found)
    return found


def _check_security(found: dict[str, Any]) -> None:
    protocol = found.get("security_protocol", "PLAINTEXT")
    if protocol.startswith("SASL"):
        mechanism = found.get("sasl_mechanism", "GSSAPI")
        if mechanism not in SASL_MECHANISMS:
            known = ", ".join(SASL_MECHANISMS)
            raise invalid("sasl.mechanism", mechanism, f"must be one of {known}")
    if not protocol.endswith("SSL"):
        return
    pairs = [
        ("ssl_ca_location", "ssl_truststore_location"),
        ("ssl_certificate_location", "ssl_keystore_location"),
        ("ssl_keystore_key", "ssl_keystore_location"),
        ("ssl_truststore_certificates", "ssl_truststore_location"),
    ]
    for one, other in pairs:
        if one in found and other in found:
            raise ConfigError(
                f"{one.replace('_', '.')} and {other.replace('_', '.')} exclude each other"
            )
    for one, other in [
        ("ssl_certificate_location", "ssl_key_location"),
        ("ssl_keystore_certificate_chain", "ssl_keystore_key"),
    ]:
        if (one in found) != (other in found):
            raise ConfigError(
                f"{one.replace('_', '.')} and {other.replace('_', '.')} belong together"
            )
