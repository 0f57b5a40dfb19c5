"""Moved to packets.build; this name stays until nothing imports it."""

from packets.build import *  # noqa: F403
