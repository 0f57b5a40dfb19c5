"""flatmq: an MQTT client that allocates nothing once it is running."""

from .client import Client
from .errors import MQTTError

__all__ = ("Client", "MQTTError")
__version__ = "0.2.0"
