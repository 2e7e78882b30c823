"""kbroker: a single-node broker appliance that speaks the Apache Kafka protocol."""

__version__ = "0.1.0"
