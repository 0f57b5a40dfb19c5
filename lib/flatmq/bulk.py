"""Acknowledge in bulk, for programs that take PUBLISH packets with `Client.bulk`."""

from .session import Session


def queue(self: Session, packets: "bytes | bytearray | memoryview") -> bool:
    """Queue acknowledgements, given as complete packets.

    Returns False, and queues nothing, if there is no room for all of them.
    """
    at = self.size + self.answers
    end = at + len(packets)
    if end > self.size + self.room + 4:
        return False
    self.buf[at:end] = packets
    self.answers = end - self.size
    self.queued = True
    self.plain = False
    return True
