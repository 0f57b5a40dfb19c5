"""Check messages against the limits of a broker. Loaded with the first one that may break them."""

from ..port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client5


# What the broker offers: see `v5.server`.
_RETAIN = const(2)
_MAXIMUM_PACKET_SIZE = const(3)


def allow(self: "Client5", n: int, retain: bool) -> None:
    """Check a message with `n` bytes after its fixed header against the broker's limits.
    ValueError if it is outside them."""
    if retain and not self.offers[_RETAIN]:
        load("checks").retain(retain)
    n += 2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5
    most = self.offers[_MAXIMUM_PACKET_SIZE]
    if most and n > most:
        load("checks").packet(n, most, True)
