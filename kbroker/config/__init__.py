"""Settings: definitions of every key, readers, listeners, and what holds for broker and topics."""

from kbroker.config.broker import BrokerConfig, load_config
from kbroker.config.listeners import Listener
from kbroker.config.types import ConfigError

__all__ = ["BrokerConfig", "ConfigError", "Listener", "load_config"]
