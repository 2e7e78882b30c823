"""The client: what the command line, the tests and the examples talk to brokers with.

Synchronous and plain: connections, metadata, produce, fetch by partition and offset, admin calls.
Works against any broker of Kafka 2.5 and later, kbroker among them.
"""
