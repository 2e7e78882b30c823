"""The command line against brokers."""
