"""Kafka's scripts by their names: kafka-topics, kafka-configs, kafka-consumer-groups and the two
console clients. Flags, columns, texts and exit statuses are those of Apache Kafka 4.3 (its tools
are run beside these in tests/kafka_scripts); the words of --help are our own.

Where the JVM's tool prints in the order of a hash table, these print in order of names. A stack
trace is never printed. A flag or plugin that only a JVM could serve ends with an error naming it.
On a terminal, names hold what would steer it in an escaped form; where a program reads, they are
exact.
"""
