"""Moved to packets.strict; this name stays until nothing imports it."""

from packets.strict import *  # noqa: F403
from packets.strict import CODES, FLAGS, NAMES, SENT_BY  # noqa: F401
