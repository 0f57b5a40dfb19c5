"""Moved to brokers; this name stays until nothing imports it."""

from brokers.core import (  # noqa: F401
    CLOSES_ON_LEVEL_5,
    REFUSES_LEVEL_5,
    UNSUPPORTED_VERSION,
    types,
)
from brokers.fake import FakeBroker as Broker5  # noqa: F401
from packets.properties import Pairs, properties  # noqa: F401
