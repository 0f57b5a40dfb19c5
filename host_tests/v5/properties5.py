"""Moved to packets.properties; this name stays until nothing imports it."""

from packets.properties import *  # noqa: F403
