"""Moved to packets.wire; this name stays until nothing imports it."""

from packets.wire import *  # noqa: F403
