"""The broker process: parts built, started and stopped in order."""

from kbroker.server.broker import Broker

__all__ = ["Broker"]
