"""Moved to brokers.scram; this name stays until nothing imports it."""

from brokers.scram import *  # noqa: F403
