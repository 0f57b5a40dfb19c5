"""Refusals of a broker that another try does not change."""

from __future__ import annotations

from flatmq import MQTTError

# CONNACK return codes (section 3.2.2.3): the version, the client identifier, the user or password,
# no right. In MQTT 5 reason codes (section 3.2.2.2): these, what CONNECT has, and another server.
_CODES = (1, 2, 4, 5, *b"\x81\x82\x84\x85\x86\x87\x8a\x8c\x90\x95\x99\x9a\x9b\x9c\x9d")


def final(error: MQTTError | None) -> bool:
    """Return whether the broker has refused the connection for such a reason."""
    return error is not None and error.kind == "refused" and error.code in _CODES
