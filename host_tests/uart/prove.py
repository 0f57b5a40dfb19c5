"""Prove that a client over a board's console allocates nothing: prove.py NAME, on MicroPython.

It prints "SEEN asked kept refused" on standard error, as proof.py of ../device means it.
"""

import sys

from flatmq import Client, stream_uart
from flatmq.port import ticks_diff, ticks_ms
from proof import Proof

ANSWER_MS = 30000
name = sys.argv[1].encode()
topic = name + b"/lamp"
came = bytearray(1)


def take(message):
    if message.number() == -1500:
        came[0] += 1


def rounds(proof):
    """A message at each QoS goes to the broker and comes back, and a poll waits in vain."""
    client = Client(name, link=stream_uart.usb(), tx_size=512, rx_size=256)
    subscription = client.subscribe(topic, take, 2)
    client.connect(ANSWER_MS)
    while subscription.granted is None:
        client.poll(ANSWER_MS)
    while True:
        came[0] = 0
        began = ticks_ms()
        client.publish(topic, b"-1500", 0)
        client.publish(topic, b"-1500", 1)
        client.publish(topic, b"-1500", 2)
        while client.pending or came[0] < 3:
            client.poll(100)
            if ticks_diff(ticks_ms(), began) > ANSWER_MS:
                break
        client.poll(5)
        yield came[0] == 3 and client.connected and not client.pending


proof = Proof()
proof.prove(rounds)
print("SEEN", proof.asked, proof.kept, int(proof.refused), file=sys.stderr)
