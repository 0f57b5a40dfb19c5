"""A client whose connections are broken on the way, with a clean one after each.

Usage: `broken_client.py NAME ROUNDS BROKEN_PORT CLEAN_PORT CA [CERT KEY]`, with - for CA without
TLS.

Runs on CPython and on MicroPython. It publishes at every QoS to a topic that it is subscribed to.
For each broken connection there is a line "@lost KIND DETAIL"; "@wrong TEXT" says what may not be;
and at the end there is "@done LOSSES GROWTH", where GROWTH is what the heap holds more than after
the first rounds.
"""

import gc
import sys

from flatmq import Client
from flatmq.port import drop, load, ticks_add, ticks_diff, ticks_ms
from flatmq.stream_tls import TLS

MOST = 200  # messages of a QoS in a round
PENDING = 5
CLEAN = 4  # messages of each QoS that are published on the clean connection
WARM = 6  # rounds before the heap is looked at for the first time
PATIENCE = 120000  # ms until a round is given up
# What some losses load. It is let go of, but MicroPython keeps its names, and the room for them in
# the package, for ever: they must be there before the heap is looked at for the first time.
LOADED = ("alone", "rare.qos2", "queue", "rare.reading", "reasons", "rare.strays")


class Wrong(Exception):
    """Something happened that may not."""


def payload(number, qos, i):
    """The payload of a message: each has its own, of its own length."""
    return b"%d %d %d " % (number, qos, i) + b"payload" * (i * 5 % 23)


class Round:
    """The messages published in a round, and how often each came."""

    def __init__(self):
        self.number = 0
        self.counts = [bytearray(MOST) for _ in range(3)]
        self.sent = [0, 0, 0]

    def begin(self):
        self.number += 1
        for qos in range(3):
            self.sent[qos] = 0
            for i in range(MOST):
                self.counts[qos][i] = 0

    def take(self, message):
        """Handle a message: it must be one that was published, and as often as its QoS says."""
        words = bytes(message.payload).split(b" ")
        try:
            number, qos, i = [int(word) for word in words[:3]]
        except ValueError:
            number = qos = i = -1
        good = 0 <= qos < 3 and 0 <= i < MOST and message.is_payload(payload(number, qos, i))
        if not good or qos != message.qos or number > self.number:
            raise Wrong("delivered " + repr(bytes(message.payload)))
        if number < self.number:
            if qos != 1:  # at QoS 1 a message may come again, also late
                raise Wrong("delivered late " + repr(bytes(message.payload)))
            return
        if i >= self.sent[qos]:
            raise Wrong("delivered what was not published")
        if self.counts[qos][i] and qos != 1:
            raise Wrong(f"delivered twice at QoS {qos}")
        self.counts[qos][i] = 1

    def is_complete(self):
        """Return whether all messages of QoS 1 and 2 have come."""
        for qos in (1, 2):
            for i in range(self.sent[qos]):
                if not self.counts[qos][i]:
                    return False
        return True


class Bench:
    """The client and its rounds."""

    def __init__(self, name, broken, clean, tls):
        self.broken = broken
        self.clean = clean
        self.round = Round()
        self.topic = b"broken/" + name.encode()
        self.client = Client(
            b"broken-" + name.encode(),
            "127.0.0.1",
            broken,
            tls=tls,
            clean_session=False,
            tx_size=1024,
            rx_size=512,
            incoming=24,
            keepalive=4,
            timeout=8,
            retry_ms=20,
            retry_max_ms=200,
            give_up=0,
        )
        self.client.subscribe(self.topic, self.round.take, qos=2)
        self.turn = 0

    def go(self, port):
        """Connect to that port from now on."""
        self.client.link.port = port
        self.client.link.address = None

    def publish(self, most):
        """Publish the next message, at another QoS each time; none if there is no room."""
        sent = self.round.sent
        qos = self.turn % 3
        i = sent[qos]
        if i >= most or self.client.pending >= PENDING:
            return
        sent[qos] += 1  # it may come before publish returns
        if self.client.publish(self.topic, payload(self.round.number, qos, i), qos) is None:
            sent[qos] -= 1
        else:
            self.turn += 1

    def until_lost(self):
        """Publish until the connection ends; report how."""
        client = self.client
        before = client.stats.losses
        end = ticks_add(ticks_ms(), PATIENCE)
        while client.stats.losses == before:
            if ticks_diff(end, ticks_ms()) <= 0:
                raise Wrong("a broken connection does not end: " + repr(client))
            self.publish(MOST)
            client.poll(5)
        print("@lost", client.error.kind, client.error.detail)

    def until_done(self):
        """On a clean connection, have everything acknowledged and delivered."""
        client = self.client
        end = ticks_add(ticks_ms(), PATIENCE)
        most = max(self.round.sent) + CLEAN
        most = min(most, MOST)
        while (
            min(self.round.sent) < most
            or not client.connected
            or client.pending
            or not self.round.is_complete()
        ):
            if ticks_diff(end, ticks_ms()) <= 0:
                raise Wrong("messages are lost, or the next connection does not work")
            if self.round.sent[self.turn % 3] >= most:
                self.turn += 1
            if client.connected:
                self.publish(most)
            client.poll(5)

    def play(self, broken):
        """One round."""
        self.round.begin()
        self.go(self.broken if broken else self.clean)
        self.client.start()
        if broken:
            self.until_lost()
            self.go(self.clean)
        self.until_done()

    def stop(self):
        """End the clean connection, so that the next one is another."""
        self.client.disconnect()


def load_what_losses_load():
    """Have the names of all that a loss may load in the heap, beside what is loaded now."""
    more = [name for name in LOADED if "flatmq." + name not in sys.modules]
    for name in more:
        load(name, "")
    drop(*[name.rpartition(".")[2] for name in more])


def held():
    """Return what the heap holds, in bytes; 0 on CPython, which does not say."""
    gc.collect()
    gc.collect()
    return gc.mem_alloc() if hasattr(gc, "mem_alloc") else 0


def main(name, rounds, broken, clean, ca, cert=None, key=None):
    """Play so many rounds."""
    tls = None if ca == "-" else TLS(ca=ca, cert=cert, key=key)
    bench = Bench(name, int(broken), int(clean), tls)
    first = growth = 0
    try:
        for i in range(int(rounds)):
            bench.play(True)
            if i == min(WARM, int(rounds) - 1):
                load_what_losses_load()
                first = held()
            bench.stop()
        # What looks like a pointer on the stack keeps garbage: what is really held is still there
        # after more clean rounds.
        for _ in range(6):
            bench.play(False)
            growth = held() - first
            bench.stop()
            if growth <= 0:
                break
    except Wrong as e:
        print("@wrong", e)
        print("@end")
        return
    print("@done", bench.client.stats.losses, growth)
    print("@end")


main(*sys.argv[1:])
