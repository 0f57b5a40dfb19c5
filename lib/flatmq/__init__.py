"""flatmq: an MQTT client that allocates nothing once it is running."""

from .client import Client as Client  # `as`: for whoever imports it from here
from .client import MQTTError as MQTTError

__version__ = "0.2.0"
