"""Requests and answers, both ways, with the scripted peer."""

import packets
from flatmq.properties import Properties
from scripted_link import online, subscribe

TOPIC = b"dev/pump/do"
MINE = b"reply/proof"  # where a client whose identifier is `proof` gets its answers
THEIRS = b"reply/desk"
_BLOCK = b"\x15\x09\0\4\0\0\0\0\x08\0\x0breply/proof"  # of a request
_ID = 15  # where its packet identifier is,
_DATA = 21  # and its correlation data


class Asker:
    """A client that makes requests one after the other, and counts what comes of them."""

    def __init__(self, **options):
        self.link, self.client = online(**options)
        self.answers = self.late = 0
        self._handler = self._take  # a method that is looked up is a new object
        self._sent = packets.numbered(TOPIC, b"on", 0x32, _BLOCK).with_id(0)
        if not self.client.request(TOPIC, b"on", self._handler, 5):
            raise AssertionError("no room for a request")
        self.client.poll()
        subscribed = self.link.identifier(2)
        if not self.link.took_any():
            raise AssertionError("no SUBSCRIBE")
        self.link.give(packets.suback(1).with_id(subscribed))
        self._answer = bytearray(packets.publish(MINE, b"done", 0x30, b"\x09\x0b\1" + _BLOCK[1:8]))
        self.link.give(packets.PUBACK.with_id(self.client.last_id))
        self.wait()

    def _take(self, message):
        if message is None:
            self.late += 1
        elif message.is_payload(b"done"):
            self.answers += 1

    def ask(self):
        """Make a request, and acknowledge it. Returns whether just that was written."""
        if not self.client.request(TOPIC, b"on", self._handler, 5):
            return False
        self.client.poll()
        self._expect(_ID)
        self._expect(_DATA)
        self._expect(_DATA + 2)
        pid = self.link.identifier(_ID)
        sent = self.link.took(self._sent)
        self.link.give(packets.PUBACK.with_id(pid))
        return sent and self.client.pending == 0

    def _expect(self, at):
        """Take over two bytes that the client chooses."""
        self._sent[at] = self.link.identifier(at) >> 8
        self._sent[at + 1] = self.link.identifier(at) & 255

    def answer(self):
        """Have the peer answer the last request."""
        for i in range(4):
            self._answer[len(self._answer) - 8 + i] = self._sent[_DATA + i]
        self.link.give(self._answer)

    def wait(self):
        """Poll until a request has been given up."""
        late = self.late
        began = self.link.now
        while self.late == late and self.link.now - began < 60000:
            self.client.poll(60000)


def request_and_its_answer(proof):
    asker = Asker()
    while True:
        before = asker.answers
        done = asker.ask()
        asker.answer()
        yield done and asker.answers == before + 1


def answer_that_comes_twice(proof):
    """The second one belongs to no request."""
    asker = Asker()
    while True:
        before = asker.answers
        done = asker.ask()
        asker.answer()
        asker.answer()
        yield done and asker.answers == before + 1


def request_that_nobody_answers(proof):
    asker = Asker(keepalive=0)
    while True:
        before = asker.late
        began = asker.link.now
        done = asker.ask()
        asker.wait()
        yield done and asker.late == before + 1 and asker.link.now - began == 5000


def more_requests_than_may_wait(proof):
    asker = Asker(requests=2)
    asker.ask()
    asker.ask()
    while True:
        refused = not asker.client.request(TOPIC, b"on", print, 5)
        asker.client.poll()
        yield refused and not asker.link.took_any()


def request_that_is_answered(proof):
    """Answer a request in a handler that knows who asks.

    With other correlation data it would need a block of its own for each answer.
    """
    link, client = online()
    reply = Properties(correlation_data=b"7")

    def take(message):
        p = message.properties
        if p.is_value(0x08, THEIRS) and p.is_value(0x09, b"7"):
            client.publish(THEIRS, b"done", properties=reply)

    subscribe(client, link, TOPIC, take)
    packet = packets.publish(TOPIC, b"on", 0x30, b"\x11\x08\0\x0areply/desk\x09\0\x017")
    wanted = packets.publish(THEIRS, b"done", 0x30, b"\4\x09\0\x017")
    while True:
        link.give(packet)
        yield link.took(wanted)
