"""A client at MQTT 3.1.1 or 5, for tests that speak of packets as 3.1.1 has them.

What is fed to a client at 5 is given the property lengths and reason codes that 3.1.1 lacks. What
it sends is held to the standard by the strict decoder, and then shown without them.
"""

import peer
from packets import strict
from unit.fake_link import Bench, Clock

VERSIONS = (4, 5)
CODES = {0: 0, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}  # of CONNACK: at 3.1.1, at 5


def at_5(packet: peer.Packet, filters: int = 1) -> bytes:
    """Return a packet of a broker as MQTT 5 has it; `filters` is for UNSUBACK."""
    first, body = packet
    kind = first >> 4
    if kind == 2:
        body = bytes([body[0], CODES.get(body[1], body[1])]) + b"\0"
    elif kind == 3:
        end = 2 + int.from_bytes(body[:2], "big") + (2 if first & 6 else 0)
        body = body[:end] + b"\0" + body[end:]
    elif kind == 9:
        body = body[:2] + b"\0" + body[2:]
    elif kind == 11:
        body = body[:2] + b"\0" + bytes(filters)
    return peer.packet(first, body)


def at_4(raw: peer.Packet) -> peer.Packet:
    """Return a packet of a client at MQTT 5, which must be right, as 3.1.1 has it."""
    packet = strict.from_client(*raw)
    pid = packet.pid.to_bytes(2, "big")
    if packet.name == "PUBLISH":
        more = {"retain": packet.retain, "dup": packet.dup}
        data = peer.publish(packet.topic, packet.payload, packet.qos, packet.pid, **more)
        return peer.split(data)[0][0]
    if packet.name == "SUBSCRIBE":
        filters = (peer.text(each.topic) + bytes([each.qos]) for each in packet.filters)
        return peer.Packet(raw.first, pid + b"".join(filters))
    if packet.name == "UNSUBSCRIBE":
        return peer.Packet(raw.first, pid + b"".join(peer.text(f.topic) for f in packet.filters))
    return raw


class VersionBench(Bench):
    """A bench whose client speaks `version`, and whose packets are those of 3.1.1."""

    def __init__(self, clock: Clock, version: int = 4, **options) -> None:
        super().__init__(clock, version=version, **options)
        self.version = version

    @property
    def kept(self) -> int:
        """QoS 1 and 2 messages that the client has not settled."""
        return self.client.kept

    def wire(self, *packets: bytes) -> bytes:
        """Return whole packets as the bytes of this version."""
        data = b"".join(packets)
        if self.version != 5:
            return data
        found, rest = peer.split(data)
        return b"".join(at_5(packet, self._filters(packet)) for packet in found) + rest

    def _filters(self, packet: peer.Packet) -> int:
        """Return the number of topic filters that an UNSUBACK is about."""
        if packet.first >> 4 != 11:
            return 0
        sent, _ = peer.split(bytes(self.stream.written))
        asked = [p for p in sent if p.first == 0xA2 and p.pid == packet.pid]
        return len(strict.from_client(*asked[-1]).filters)

    def arrives(self, *packets: bytes) -> None:
        """Have packets to be read, with the next poll."""
        self.stream.incoming.append(self.wire(*packets))

    def feed(self, *packets: bytes) -> None:
        super().feed(self.wire(*packets))

    def feed_bytes(self, *chunks: bytes) -> None:
        """Give bytes as they are, each chunk in one read, and poll until all is read."""
        self.stream.incoming.extend(chunks)
        self.drain()

    def sent(self) -> list[peer.Packet]:
        packets = super().sent()
        return [at_4(p) for p in packets] if self.version == 5 else packets
