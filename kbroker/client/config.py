"""Configuration of clients: one frozen dataclass a kind, made from a dict and keyword arguments.

Names are Kafka's, with dots or underscores; an unknown one raises with the nearest name.
"""

from kbroker.client.config_admin import AdminConfig, admin_config
from kbroker.client.config_common import ClientConfig
from kbroker.client.config_consumer import ConsumerConfig, consumer_config
from kbroker.client.config_producer import ProducerConfig, producer_config
from kbroker.client.errors import ConfigError

__all__ = [
    "AdminConfig",
    "ClientConfig",
    "ConfigError",
    "ConsumerConfig",
    "ProducerConfig",
    "admin_config",
    "consumer_config",
    "producer_config",
]
