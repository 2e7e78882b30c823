"""SASL, TLS, tokens and authorization."""

from __future__ import annotations

from typing import Final

from kbroker.config.types import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    READ_ONLY,
    SHORT,
    STRING,
    ConfigKey,
    at_least,
    between,
    list_of,
    one_of,
    one_of_any_case,
)

AUTHORIZERS: Final = ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kbroker")

KEYS: Final = (
    ConfigKey(
        "super.users", STRING, "", None, MEDIUM, READ_ONLY,
        "Principals that may do everything whatever the ACLs say, with semicolons between them: "
        "User:alice;User:bob. A setting of the authorizer.",
        internal=True,
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found", BOOLEAN, "false", None, MEDIUM, READ_ONLY,
        "Whether everybody may do everything to a resource that no ACL belongs to. A setting of "
        "the authorizer.",
        internal=True,
    ),
    ConfigKey(
        "authorizer.class.name", STRING, "", None, LOW, READ_ONLY,
        "Name of the authorizer that decides who may do what: "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer, or kbroker for short, both of "
        "which go by the ACLs in the metadata log. Empty means that everything is allowed.",
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms", LONG, "3600000", at_least(1), LOW,
        READ_ONLY,
        "How often expired delegation tokens are removed.",
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms", LONG, "86400000", at_least(1), MEDIUM, READ_ONLY,
        "How long a delegation token lives until it must be renewed.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms", LONG, "604800000", at_least(1), MEDIUM, READ_ONLY,
        "Age at which a delegation token ends even when it is renewed.",
    ),
    ConfigKey(
        "delegation.token.secret.key", PASSWORD, None, None, MEDIUM, READ_ONLY,
        "Secret with which delegation tokens are signed.",
    ),
    ConfigKey(
        "principal.builder.class", CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", None,
        MEDIUM, PER_BROKER,
        "Java class that derives a principal from a connection. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "sasl.client.callback.handler.class", CLASS, None, None, MEDIUM, READ_ONLY,
        "Java class for the client side of SASL between brokers.",
        effective=False,
    ),
    ConfigKey(
        "sasl.enabled.mechanisms", LIST, "GSSAPI", list_of(), MEDIUM, PER_BROKER,
        "SASL mechanisms that clients may choose from: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. Where nothing is set, a listener has the two of SCRAM; there is no Kerberos.",
    ),
    ConfigKey(
        "sasl.jaas.config", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Login data for SASL in the syntax of a JAAS file, given per listener and mechanism.",
    ),
    ConfigKey(
        "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, PER_BROKER,
        "Path of the kinit command for Kerberos.",
        effective=False,
    ),
    ConfigKey(
        "sasl.kerberos.min.time.before.relogin", LONG, "60000", None, MEDIUM, PER_BROKER,
        "Least time between two Kerberos logins.",
        effective=False,
    ),
    ConfigKey(
        "sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", list_of(), MEDIUM, PER_BROKER,
        "Rules that turn a Kerberos principal into a short name.",
        effective=False,
    ),
    ConfigKey(
        "sasl.kerberos.service.name", STRING, None, None, MEDIUM, PER_BROKER,
        "Kerberos service name of the broker.",
        effective=False,
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", None, MEDIUM, PER_BROKER,
        "Random part of the time until a Kerberos ticket is renewed.",
        effective=False,
    ),
    ConfigKey(
        "sasl.kerberos.ticket.renew.window.factor", DOUBLE, "0.8", None, MEDIUM, PER_BROKER,
        "Share of a Kerberos ticket's life after which it is renewed.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.callback.handler.class", CLASS, None, None, MEDIUM, READ_ONLY,
        "Java class that handles SASL login callbacks.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.class", CLASS, None, None, MEDIUM, READ_ONLY,
        "Java class that does the SASL login.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.connect.timeout.ms", INT, None, None, LOW, READ_ONLY,
        "Time limit for connecting to an identity provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.read.timeout.ms", INT, None, None, LOW, READ_ONLY,
        "Time limit for reading from an identity provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.refresh.buffer.seconds", SHORT, "300", None, MEDIUM, PER_BROKER,
        "Seconds before its end at which a login is refreshed at the latest.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.refresh.min.period.seconds", SHORT, "60", None, MEDIUM, PER_BROKER,
        "Least seconds between two login refreshes.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.refresh.window.factor", DOUBLE, "0.8", None, MEDIUM, PER_BROKER,
        "Share of a credential's life after which the login is refreshed.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.refresh.window.jitter", DOUBLE, "0.05", None, MEDIUM, PER_BROKER,
        "Random part of the time until a login is refreshed.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.retry.backoff.max.ms", LONG, "10000", None, LOW, READ_ONLY,
        "Longest pause between attempts to reach an identity provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.login.retry.backoff.ms", LONG, "100", None, LOW, READ_ONLY,
        "First pause between attempts to reach an identity provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH, READ_ONLY,
        "SASL mechanism between broker and controller. Here both are one process.",
        effective=False,
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None, MEDIUM, PER_BROKER,
        "SASL mechanism between brokers. There is only one.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.algorithm", STRING, "RS256",
        one_of_any_case("ES256", "RS256"), MEDIUM, READ_ONLY,
        "Algorithm that signs the assertion sent to an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM, READ_ONLY,
        "Audience claim of the assertion sent to an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.exp.seconds", INT, "300", between(0, 86400), LOW,
        READ_ONLY,
        "Seconds until the assertion sent to an OAuth provider expires.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM, READ_ONLY,
        "Issuer claim of the assertion sent to an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, "false", None, MEDIUM,
        READ_ONLY,
        "Whether the assertion sent to an OAuth provider carries a unique id.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.nbf.seconds", INT, "60", between(0, 3600), LOW,
        READ_ONLY,
        "Seconds by which the assertion's begin of validity is set back.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM, READ_ONLY,
        "Subject claim of the assertion sent to an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM, READ_ONLY,
        "File with a ready made assertion for an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.private.key.file", STRING, None, None, MEDIUM, READ_ONLY,
        "Private key that signs the assertion sent to an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM,
        READ_ONLY,
        "Passphrase of the private key that signs the assertion.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM, READ_ONLY,
        "File with further header and claims for the assertion.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id", STRING, None, None, MEDIUM, READ_ONLY,
        "Client id for the client credentials grant of an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, None, MEDIUM,
        READ_ONLY,
        "Client secret for the client credentials grant of an OAuth provider.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds", INT, "30", None, LOW, READ_ONLY,
        "Seconds by which the clocks of broker and OAuth provider may differ.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience", LIST, "", list_of(), LOW, READ_ONLY,
        "Audiences that a token must be made out for.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer", STRING, None, None, LOW, READ_ONLY,
        "Issuer that a token must come from.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", None, LOW, READ_ONLY,
        "How often the key set of an OAuth provider is read again.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", None, LOW,
        READ_ONLY,
        "Longest pause between attempts to read the key set.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100", None, LOW, READ_ONLY,
        "First pause between attempts to read the key set.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY,
        "Address of the key set that tokens are verified with.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.retriever.class", CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever", None, MEDIUM,
        READ_ONLY,
        "Java class that fetches tokens.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.jwt.validator.class", CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator", None, MEDIUM,
        READ_ONLY,
        "Java class that verifies tokens.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.scope", STRING, None, None, MEDIUM, READ_ONLY,
        "Scope that is asked for in a token request.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, READ_ONLY,
        "Name of the claim that holds a token's scope.",
        effective=False,
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, READ_ONLY,
        "Name of the claim that holds a token's subject.",
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, READ_ONLY,
        "Address at which tokens are fetched.",
        effective=False,
    ),
    ConfigKey(
        "sasl.server.callback.handler.class", CLASS, None, None, MEDIUM, READ_ONLY,
        "Java class that handles SASL callbacks on the server side. Of OAUTHBEARER, Kafka's "
        "OAuthBearerUnsecuredValidatorCallbackHandler has unsigned tokens taken; no other is "
        "known.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size", INT, "524288", None, MEDIUM, READ_ONLY,
        "Largest SASL message that is read before a client has authenticated.",
    ),
    ConfigKey(
        "security.inter.broker.protocol", STRING, "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), MEDIUM, READ_ONLY,
        "Security protocol between brokers, the name of their listener where none is given. There "
        "is only one broker.",
    ),
    ConfigKey(
        "security.providers", STRING, None, None, LOW, READ_ONLY,
        "Java security provider factories. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "ssl.allow.dn.changes", BOOLEAN, "false", None, LOW, READ_ONLY,
        "Whether a new key store may carry another distinguished name.",
    ),
    ConfigKey(
        "ssl.allow.san.changes", BOOLEAN, "false", None, LOW, READ_ONLY,
        "Whether a new key store may carry other alternative names.",
    ),
    ConfigKey(
        "ssl.cipher.suites", LIST, "", list_of(), MEDIUM, PER_BROKER,
        "Cipher suites that may be negotiated; empty means the library's own choice.",
    ),
    ConfigKey(
        "ssl.client.auth", STRING, "none", one_of("required", "requested", "none"), MEDIUM,
        PER_BROKER,
        "Whether clients must, may or need not present a certificate.",
    ),
    ConfigKey(
        "ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", list_of(), MEDIUM, PER_BROKER,
        "TLS versions that may be negotiated.",
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm", STRING, "https", None, LOW, PER_BROKER,
        "How the broker as a client checks the host name in a certificate. It opens no "
        "connections.",
        effective=False,
    ),
    ConfigKey(
        "ssl.engine.factory.class", CLASS, None, None, LOW, PER_BROKER,
        "Java class that makes TLS engines. kbroker loads no Java classes.",
        effective=False,
    ),
    ConfigKey(
        "ssl.key.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Password of the private key.",
    ),
    ConfigKey(
        "ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, PER_BROKER,
        "Java key manager algorithm.",
        effective=False,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Certificate chain in PEM, given in place of a key store file.",
    ),
    ConfigKey(
        "ssl.keystore.key", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Private key in PEM, given in place of a key store file.",
    ),
    ConfigKey(
        "ssl.keystore.location", STRING, None, None, MEDIUM, PER_BROKER,
        "File with the broker's certificate and key.",
    ),
    ConfigKey(
        "ssl.keystore.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Password of the key store file.",
    ),
    ConfigKey(
        "ssl.keystore.type", STRING, "JKS", None, MEDIUM, PER_BROKER,
        "Format of the key store file. kbroker knows PEM and PKCS12 by their first bytes.",
        effective=False,
    ),
    ConfigKey(
        "ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, READ_ONLY,
        "Rules that turn the distinguished name of a client certificate into a short name.",
    ),
    ConfigKey(
        "ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, PER_BROKER,
        "TLS version that connections are made with by preference.",
        effective=False,
    ),
    ConfigKey(
        "ssl.provider", STRING, None, None, MEDIUM, PER_BROKER,
        "Java security provider for TLS.",
        effective=False,
    ),
    ConfigKey(
        "ssl.secure.random.implementation", STRING, None, None, LOW, PER_BROKER,
        "Java random number generator for TLS.",
        effective=False,
    ),
    ConfigKey(
        "ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, PER_BROKER,
        "Java trust manager algorithm.",
        effective=False,
    ),
    ConfigKey(
        "ssl.truststore.certificates", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Trusted certificates in PEM, given in place of a trust store file.",
    ),
    ConfigKey(
        "ssl.truststore.location", STRING, None, None, MEDIUM, PER_BROKER,
        "File with the certificates that clients are verified against.",
    ),
    ConfigKey(
        "ssl.truststore.password", PASSWORD, None, None, MEDIUM, PER_BROKER,
        "Password of the trust store file.",
    ),
    ConfigKey(
        "ssl.truststore.type", STRING, "JKS", None, MEDIUM, PER_BROKER,
        "Format of the trust store file. kbroker knows PEM and PKCS12 by their first bytes.",
        effective=False,
    ),
)
