"""The packets of MQTT 3.1.1 for tests: reads what a client wrote, builds what a broker sends.

Written from the standard and apart from flatmq, so that a mistake in one shows in the other. The
forms of MQTT 5, and the strict decoder of both, are in the package `packets`.
"""

from functools import partial
from typing import NamedTuple

from packets import build
from packets.build import PINGRESP, packet
from packets.fields import length, text
from packets.strict import Raw as Packet
from packets.strict import from_client, split

__all__ = ["PINGRESP", "Packet", "Publish", "connack", "length", "packet", "puback", "pubcomp"]
__all__ += ["publish", "pubrec", "pubrel", "split", "suback", "take_apart", "text", "unsuback"]


class Publish(NamedTuple):
    """A PUBLISH, taken apart; `pid` is 0 at QoS 0."""

    dup: bool
    qos: int
    retain: bool
    topic: bytes
    pid: int
    payload: bytes


def take_apart(sent: Packet) -> Publish:
    """The fields of a PUBLISH of a client, which must break no rule."""
    p = from_client(sent.first, sent.body, 4)
    assert p.name == "PUBLISH"
    return Publish(bool(p.dup), p.qos, bool(p.retain), p.topic, p.pid, p.payload)


def publish(
    topic: bytes, payload: bytes = b"", qos: int = 0, pid: int = 0, *, retain=False, dup=False
) -> bytes:
    return build.publish(topic, payload, qos, pid, None, retain=retain, dup=dup)


def connack(code: int = 0, *, present: bool = False) -> bytes:
    return build.connack(code, present, None)


def suback(pid: int, *codes: int) -> bytes:
    """A SUBACK with a return code for each filter."""
    return build.answer("SUBACK", pid, bytes(codes), None)


puback, pubrec, pubrel, pubcomp, unsuback = (
    partial(build.ack, name) for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "UNSUBACK")
)
