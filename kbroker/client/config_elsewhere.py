"""Settings that other clients have under other names, for who comes from there."""

from __future__ import annotations

from typing import Final

__all__ = ["LIBRDKAFKA", "advice"]

#: librdkafka's names (confluent-kafka, kcat) of what is the same in Kafka, units and all.
LIBRDKAFKA: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "queue.buffering.max.ms": "linger.ms",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.send.max.retries": "retries",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "partitioner": "partitioner.class",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}

_PYTHON: Final = {
    "max.batch.size": "batch.size",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
    "ssl.ciphers": "ssl.cipher.suites",
    "sasl.kerberos.name": "sasl.kerberos.service.name",
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.oauth.token.provider": "sasl.oauthbearer.token.callback",
}

_LOGGED: Final = "logging.getLogger('kbroker.client') has what is logged"
_MEASURED: Final = "metrics() tells when it is asked"
_BYTES: Final = "buffer.memory bounds what waits to be sent, in bytes"

_REVOKED: Final = "certificates that were revoked are not looked for; replace the CA instead"
_TRUSTED: Final = "ssl.ca.location says which certificates are trusted; without it the system does"
_CHOSEN_BY_OPENSSL: Final = "OpenSSL's configuration says which are offered"
_ALWAYS: Final = "it is always so"
_FETCHED: Final = "retry.backoff.ms is the pause after an error, and fetches need no other"

#: What there is in their place, where that is no setting, or one that means something else.
_OTHERWISE: Final = {
    "api.version": "versions are agreed on with each broker",
    "auto.commit.enable": "enable.auto.commit is Kafka's name, of consumers in groups",
    "blacklist": "a pattern that does not match a topic leaves it out",
    "bootstrap.timeout.ms": "default.api.timeout.ms and max.block.ms bound calls",
    "broker.address.family": "all addresses of a name are tried, IPv6 and IPv4",
    "broker.address.ttl": "names are resolved for each connection",
    "broker.version.fallback": "versions are agreed on with each broker",
    "coordinator.query.interval.ms": "coordinators are looked for when they are needed",
    "default.offset.commit.callback": "commit_async(callback=...) tells",
    "enable.incremental.fetch.sessions": _ALWAYS,
    "fetch.error.backoff.ms": _FETCHED,
    "fetch.queue.backoff.ms": _FETCHED,
    "batch.num.messages": "batch.size bounds a batch, in bytes",
    "compression.level": "see compression.zstd.level; gzip and lz4 have theirs",
    "consumer.timeout.ms": "poll(timeout_s) ends without records",
    "debug": _LOGGED,
    "default.topic.config": "give what is in it beside the others",
    "delivery.report.only.error": "send(on_delivery=...) is called for each record",
    "enable.auto.offset.store": "commit() takes offsets, for who tells them by hand",
    "enable.partition.eof": "lag(), end_offsets() and stop_at() know of the end of a partition",
    "enable.ssl.certificate.verification": "ssl.ca.location says which certificates are trusted",
    "error.cb": "errors are raised by the calls that they concern, and logged",
    "kafka.client": "clients make their own connections",
    "log.connection.close": _LOGGED,
    "log.level": _LOGGED,
    "log.queue": _LOGGED,
    "log.thread.name": _LOGGED,
    "logger": _LOGGED,
    "message.copy.max.bytes": "records are copied once, whatever their size",
    "metric.group.prefix": _MEASURED,
    "metrics.enabled": _MEASURED,
    "oauth.cb": "see sasl.oauthbearer.token.callback",
    "on.commit": "commit_async(callback=...) tells",
    "offset.store.method": "offsets are committed to the broker",
    "on.delivery": "send(on_delivery=...) takes it",
    "produce.offset.report": "a delivery's result has the offset",
    "proxy.url": "connections go straight to brokers",
    "queue.buffering.max.kbytes": _BYTES,
    "queue.buffering.max.messages": _BYTES,
    "queued.min.messages": "queued.max.messages.kbytes bounds what is fetched ahead",
    "rebalance.timeout.ms": "max.poll.interval.ms is also the time that a rebalance may take",
    "receive.message.max.bytes": "fetch.max.bytes bounds an answer",
    "reconnect.backoff.jitter.ms": "pauses vary by a fifth",
    "sasl.oauthbearer.config": "see sasl.jaas.config",
    "sasl.oauthbearer.method": "sasl.oauthbearer.token.endpoint.url or a callback gives tokens",
    "sasl.kerberos.domain.name": "Kerberos is not offered",
    "socket.blocking.max.ms": "request.timeout.ms bounds the wait for an answer",
    "socket.keepalive.enable": "connections.max.idle.ms ends what is idle",
    "socket.max.fails": "a connection is given up at its first failure",
    "socket.nagle.disable": _ALWAYS,
    "socket.options": "see send.buffer.bytes and receive.buffer.bytes",
    "socks5.proxy": "connections go straight to brokers",
    "ssl.ca.certificate.stores": _TRUSTED,
    "ssl.check.hostname": (
        "ssl.endpoint.identification.algorithm is https to check the name, which it is, or empty"
        " not to"
    ),
    "ssl.crl.location": _REVOKED,
    "ssl.crlfile": _REVOKED,
    "ssl.curves.list": _CHOSEN_BY_OPENSSL,
    "ssl.sigalgs.list": _CHOSEN_BY_OPENSSL,
    "ssl.context": "see ssl.ca.location, ssl.certificate.location and ssl.key.location",
    "statistics.interval.ms": _MEASURED,
    "stats.cb": _MEASURED,
    "throttle.cb": _MEASURED,
}


def advice(name: str) -> str | None:
    """What to write instead of a name with dots; None: no client is known to have it."""
    name = name.removeprefix("topic.")
    same = LIBRDKAFKA.get(name) or _PYTHON.get(name)
    return f"Kafka's name is {same}" if same else _OTHERWISE.get(name)
