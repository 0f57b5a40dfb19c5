"""Moved to brokers.scripted; this name stays until nothing imports it."""

from brokers.scripted import *  # noqa: F403
