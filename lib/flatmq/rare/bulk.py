"""Acknowledge in bulk, for programs that take PUBLISH packets with `Client.bulk`."""

from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .. import Client


def queue(self: "Client", packets: "bytes | bytearray | memoryview") -> bool:
    """Queue acknowledgements, given as complete packets.

    Returns False, and queues nothing, if there is no room for all of them.
    """
    if len(self.acks) + len(packets) > self.space + 4:
        return False
    self.acks.extend(packets)
    return True
