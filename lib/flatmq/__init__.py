"""flatmq: an MQTT client that allocates nothing once it is running."""

from .client import Client
from .error import MQTTError
from .port import MICROPYTHON

__all__ = ("Client", "MQTTError")
__version__ = "0.1.0"


def _tcp(host, port):
    # Imported on first use, so that a sketch with a link of its own does not pay for it.
    if MICROPYTHON:
        from . import stream_tcp as stream
    else:
        from . import stream_cpython as stream
    return stream.TCP(host, port)


Client.default_link = _tcp
