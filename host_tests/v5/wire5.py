"""Moved to packets.wire; this name stays until nothing imports it."""

from packets.wire import ANSWER, CLOSED  # noqa: F401
from packets.wire import Wire as Wire5  # noqa: F401
