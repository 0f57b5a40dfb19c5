"""A device of Home Assistant with the scripted peer: states, and commands that come."""

import packets
from flatmq.ha import Device
from scripted_link import Link, connect, made


class _Home:
    """A device that is described, and what the next message to the broker must be."""

    def __init__(self):
        self.link = Link()
        self.link.swallows = True
        self.client = made(self.link)
        self.device = Device(self.client, "Proof")
        self.value = 0
        self.level = self.device.sensor("level")
        self.flow = self.device.sensor("flow")
        self.pump = self.device.switch("pump", self.on_command)
        self.lamp = self.device.light("lamp", self.on_command)
        self.target = self.device.number("target", self.on_command, -500, 500, 5, 1)

    def on_command(self, value):
        self.value = value

    def begin(self):
        """Connect, and acknowledge the status and the message."""
        self.link.swallows = False
        connect(self.client, self.link)
        self.link.swallows = True
        for _ in range(9):
            self.device.poll()
            self.client.poll()
            self.settle()
        if self.client.pending:
            raise AssertionError("still pending")

    def settle(self):
        """Acknowledge the messages that were sent, the oldest first."""
        n = self.client.pending
        while n:
            n -= 1
            self.link.give(packets.PUBACK.with_id(self.client.last_id - n))

    def sent(self):
        """Poll the device; return whether exactly one message was sent, and is acknowledged."""
        self.device.poll()
        one = self.client.pending == 1
        self.client.flush()
        self.settle()
        return one and self.client.pending == 0 and not self.device.news


def numbers(proof):
    home = _Home()
    home.begin()
    value = 1
    while True:
        value = value * -10 if -100000000 < value < 100000000 else 1
        home.level.set(value, 3)
        yield home.sent()


def every_kind_of_state(proof):
    home = _Home()
    home.begin()
    states = (True, False, None, b"text", 7, -7)
    i = 0
    while True:
        i = i + 1 if i < len(states) - 1 else 0
        home.flow.set(states[i])
        one = home.sent()
        home.lamp.set(states[i])
        yield home.sent() and one


def idle(proof):
    home = _Home()
    home.begin()
    while True:
        home.device.poll()
        yield home.client.pending == 0


def no_room(proof):
    """A state waits, and no other one is lost by it."""
    home = _Home()
    home.begin()
    while (
        home.client.publish(b"other", b"0123456789012345678901234567890123456789", 1) is not None
    ):
        pass
    while True:
        home.level.set(5)
        home.device.poll()
        yield home.device.news and home.level.news


def _commands(key, payloads, wanted):
    home = _Home()
    home.begin()
    sent = [packets.publish(b"dev/proof/" + key + b"/set", payload) for payload in payloads]
    i = 0
    while True:
        i = i + 1 if i < len(sent) - 1 else 0
        home.link.give(sent[i])
        yield home.value == wanted[i] and home.sent()


def commands_for_a_switch(proof):
    yield from _commands(b"pump", (b"ON", b"OFF"), (True, False))


def commands_for_a_light(proof):
    yield from _commands(b"lamp", (b"0", b"255", b"OFF"), (0, 255, 0))


def commands_for_a_number(proof):
    yield from _commands(b"target", (b"21.5", b"-50", b"0.499999999"), (215, -500, 5))


def bad_commands(proof):
    home = _Home()
    home.begin()
    sent = packets.publish(b"dev/proof/target/set", b"21.23")
    while True:
        refused = home.device.refused
        home.link.give(sent)
        home.device.poll()
        yield home.device.refused == refused + 1 and home.client.pending == 0
