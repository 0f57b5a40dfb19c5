"""Moved to packets.fields; this name stays until nothing imports it."""

from packets.fields import *  # noqa: F403
