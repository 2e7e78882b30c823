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
    "sasl.plain.username": "sasl.username",
    "sasl.plain.password": "sasl.password",
    "sasl.oauth.token.provider": "sasl.oauthbearer.token.callback",
}

_LOGGED: Final = "logging.getLogger('kbroker.client') has what is logged"
_MEASURED: Final = "metrics() tells when it is asked"
_BYTES: Final = "buffer.memory bounds what waits to be sent, in bytes"

#: What there is in their place, where that is no setting, or one that means something else.
_OTHERWISE: Final = {
    "api.version": "versions are agreed on with each broker",
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
    "log.level": _LOGGED,
    "logger": _LOGGED,
    "oauth.cb": "see sasl.oauthbearer.token.callback",
    "on.commit": "commit_async(callback=...) tells",
    "on.delivery": "send(on_delivery=...) takes it",
    "queue.buffering.max.kbytes": _BYTES,
    "queue.buffering.max.messages": _BYTES,
    "queued.min.messages": "queued.max.messages.kbytes bounds what is fetched ahead",
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
