"""The device of the soak: `device.py HOST PORT CLIENT_ID PREFIX MESSAGES LINK TIMEOUT CA`.

It publishes when there is room, polls, and
keeps the books on what comes in with one number per QoS: order is strict, so a number that is
lower came before, and one that is higher leaves others out. Lines that begin with @ are for the
desk.
"""

import gc
import os
import sys

import plan
from micropython import mem_total

from flatmq import Client
from flatmq.port import drop, load, ticks_diff, ticks_ms

POLL_MS = 20
SLOW_MS = 2 * POLL_MS  # a poll that took longer did not get the processor, or worse
REPORT_MS = 250
KINDS = ("closed", "timeout", "refused", "protocol", "resource", "tls")


def held():
    """Return the bytes in use after a collection."""
    gc.collect()
    return gc.mem_alloc()


def open_files():
    """File descriptors of this process, sockets among them."""
    return len(os.listdir("/dev/fd"))


say = print  # lines for the desk


class Books:
    """The messages that came in, by QoS."""

    def __init__(self):
        self.next = [0, 0, 0]  # the lowest number that has not come
        self.missing = [0, 0, 0]  # numbers left out
        self.again = [0, 0, 0]  # numbers that had come, or had been left out
        self.wrong = 0  # not of the plan: payload, or QoS
        self.rows = [0, 0, 0]  # times that numbers were left out

    def at_0(self, message):
        self._take(message, 0)

    def at_1(self, message):
        self._take(message, 1)

    def at_2(self, message):
        self._take(message, 2)

    def _take(self, m, qos):
        n = len(m)
        if n < 4 or m.qos != qos:
            self.wrong += 1
            return
        number = m[0] << 24 | m[1] << 16 | m[2] << 8 | m[3]
        if n != plan.SIZES[number & 7] or (n > 4 and m[n - 1] != 97 + (number & 7)):
            self.wrong += 1
            return
        left_out = number - self.next[qos]
        if left_out < 0:
            self.again[qos] += 1
            return
        if left_out:
            self.missing[qos] += left_out
            self.rows[qos] += 1
        self.next[qos] = number + 1


class Device:
    """The client, its books, and what is measured."""

    def __init__(self, client, books, prefix, messages):
        self.client = client
        self.books = books
        self.messages = messages
        self.sent = 0
        self.topics = [prefix + b"/up" + subject for subject in plan.SUBJECTS]
        self.end = prefix + b"/up" + plan.END
        self.payloads = [plan.template(number) for number in range(8)]
        self.full = 0  # times that there was no room
        self.longest = 0  # ms in poll
        self.slow = 0  # polls that took longer than SLOW_MS
        self.steady = 0  # bytes allocated in turns that began and ended on one connection
        self.turns = 0  # how many those were
        self.held = [0, 0, 0]  # bytes: after warming up, at the end, and the most in between
        self.most = 0  # bytes, garbage included
        self.files = [0, 0]  # file descriptors, after warming up and at the end
        self.last = False  # this is the last look
        self.losses = 0
        self.kinds = [0] * len(KINDS)  # of errors
        self.doubts = 0  # connections with a session that may be a new one,
        self.doubting = False  # as the next one has, because a CONNACK was lost
        self._connects = 0
        self._reported = ticks_ms()

    def accepted(self, client):
        """The broker has accepted a connection."""
        self.doubts += self.doubting and client.session_present
        self.doubting = False

    def publish(self):
        """Publish as many messages as there is room for."""
        while self.sent < self.messages and self.sent - 3 * self.books.next[2] < plan.LEAD:
            number = self.sent // 3
            payload = self.payloads[number & 7]
            payload[0] = number >> 24
            payload[1] = number >> 16 & 255
            payload[2] = number >> 8 & 255
            payload[3] = number & 255
            qos = self.sent % 3
            if self.client.publish(self.topics[qos], payload, qos) is None:
                self.full += 1
                return
            self.sent += 1

    def turn(self):
        """Publish, poll, and see what that took."""
        client = self.client
        # The answer to a SUBSCRIBE takes memory, on a connection that may be another session, too.
        online = client.connected and not client.requests
        allocated = mem_total()
        self.publish()
        began = ticks_ms()
        client.poll(POLL_MS)
        began = ticks_diff(ticks_ms(), began)
        self.longest = max(self.longest, began)
        self.slow += began > SLOW_MS
        allocated = mem_total() - allocated
        if (
            online
            and self.books.next[2]  # the first message at QoS 2 loads code and claims its list
            and client.connected
            and not self.last
            and client.stats.connects == self._connects
        ):
            self.steady += allocated
            self.turns += 1
            if ticks_diff(ticks_ms(), self._reported) >= REPORT_MS:
                self.report()
        else:
            self.changed()

    def report(self):
        self._reported = ticks_ms()
        self.most = max(self.most, gc.mem_alloc())
        say("@at", self.sent, sum(self.books.next), self.client.stats.connects)

    def changed(self):
        """The connection was lost, or there is a new one."""
        client = self.client
        if client.stats.losses != self.losses:
            self.losses = client.stats.losses
            self.doubting = not client.trusted
            if client.error:
                self.kinds[KINDS.index(client.error.kind)] += 1
                if client.error.kind == "tls":  # as it is when a handshake is broken off
                    say("@handshake", client.error)
                elif client.error.kind in KINDS[2:]:
                    say("@error", client.error)
        # What was left from before the loss goes first, and takes memory until it has gone.
        fresh = self.last or client.stats.connects != self._connects
        if client.connected and not client.alone and fresh and self.books.next[2]:
            self._connects = client.stats.connects
            self.most = max(self.most, gc.mem_alloc())
            self.look(held())

    def look(self, now):
        """At what is held, `now`, on a new connection and at the end."""
        if self.last:
            self.held[1] = now
            self.files[1] = open_files()
        # A connection after another one, on which all has happened: from here on nothing is added.
        elif not self.held[2] and self._connects > 1 and min(self.books.next):
            self.held[0] = now
            self.files[0] = open_files()
        if self.held[0]:
            self.held[2] = max(self.held[2], now)

    def finished(self):
        """Return whether everything at QoS 1 and 2 has come in and is acknowledged."""
        if self.sent < self.messages or self.client.pending:
            return False
        rest = [plan.count(self.messages, qos) - self.books.next[qos] for qos in (1, 2)]
        return max(rest) <= 0

    def run(self):
        """Everything, up to the last message."""
        while not self.finished():
            self.turn()
        while self.client.publish(self.end, b"", 2) is None:
            self.turn()
        while self.client.pending:
            self.turn()
        self.last = True
        while not self.files[1]:
            self.turn()


def main():
    """Run the soak and report what came of it."""
    host, port, client_id, prefix, messages, link, timeout, ca = sys.argv[1:9]
    prefix = prefix.encode()
    books = Books()
    way = {"host": host, "port": int(port)}
    if link != "tcp":
        import ways

        way = ways.arguments(link, host, int(port), ca)
    client = Client(
        client_id.encode(),
        **way,
        keepalive=1,
        timeout=int(timeout),
        clean_session=False,
        tx_size=1024,
        rx_size=512,
        inflight=16,
        subscriptions=3,
        incoming=plan.LEAD,
        retry_ms=20,
        retry_max_ms=100,
    )
    # The most that a reconnect may have to send at once: PUBREL for each message in flight,
    # PINGREQ and the SUBSCRIBEs. The memory stays with the client, whenever it is needed first.
    client.acks.extend(bytes(256))
    client.acks[0:] = b""
    device = Device(client, books, prefix, int(messages))
    client.on_connect = device.accepted
    wanted = []
    for qos, handler in enumerate((books.at_0, books.at_1, books.at_2)):
        wanted.append(client.subscribe(prefix + b"/down" + plan.SUBJECTS[qos], handler, qos))
    # What a lost connection needs: see "When memory is claimed" in design.md.
    gc.collect()
    names = ["alone", "rare.qos2", "queue", "rare.reading", "reasons", "rare.strays"]
    if link != "tcp":
        names += ways.needed(link)
    # All at once, beside those that stay, they leave larger tables of names and modules behind.
    for name in ["engine", "dial", "subs", "message"] + names:  # noqa: RUF005
        load(name, "")
    drop(*[name.rpartition(".")[2] for name in names])
    client.start()
    while None in [subscription.granted for subscription in wanted]:
        client.poll(POLL_MS)
        device.changed()
    for qos, subscription in enumerate(wanted):
        if subscription.granted[0] != qos:
            say("@refused", qos, subscription.granted)
            return 1
    wanted = None
    for topic in device.topics + [device.end]:  # noqa: RUF005 (as a board takes it)
        for qos in range(3):  # the first message to a topic checks it, and remembers it
            client.address(topic, qos)
    say("@version", ".".join([str(n) for n in sys.implementation.version[:3]]))
    say("@ready")
    device.run()
    stats = client.stats
    say("@next", *books.next)
    say("@missing", *books.missing)
    say("@again", *books.again)
    say("@wrong", books.wrong)
    say("@rows", *books.rows)
    say("@sent", device.sent)
    say("@full", device.full)
    say("@longest", device.longest, device.slow)
    say("@steady", device.steady, device.turns)
    say("@heap", *device.held, device.most)
    say("@files", *device.files)
    say("@stats", stats.connects, stats.losses, stats.resent, stats.renewed)
    say("@odd", stats.strays, stats.skipped, stats.unrouted)
    say("@kinds", *device.kinds)
    say("@doubts", device.doubts)
    device = None
    gc.collect()
    client.disconnect()
    say("@end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
