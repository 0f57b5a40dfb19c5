"""The host and port that an address names."""

from __future__ import annotations

from .errors import ToolError

PORT = 1883
TLS_PORT = 8883


def address(text: str, tls: bool = False) -> tuple[str, int]:
    """Return the host and port of "host", "host:port", "::1", "[::1]" or "[::1]:port".

    The default port is 1883, and 8883 with TLS. Raises ToolError.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.endswith("]")):
        host, port = text, str(TLS_PORT if tls else PORT)
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not host.strip("[]") or "/" in host or not 0 < number < 65536:
        text = text.rpartition("@")[2]  # without the password of a URL
        raise ToolError(f"the broker must be HOST or HOST:PORT, a port of 1 to 65535: {text}")
    return host.strip("[]"), number
