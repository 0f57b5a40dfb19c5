"""The environment of a scenario: a client, and helpers that wait, compare and ask.

It works on both interpreters.

A line "@ask WORDS" on standard output gets one line on standard input from the test that started
the interpreter, when what was asked for is done: see scenario_child.py.
"""

import sys

from flatmq import Client, MQTTError
from flatmq.port import ticks_add, ticks_diff, ticks_ms

ANSWER_MS = 15000  # how long any one step may take; far above what a loaded machine needs


class Inbox:
    """A handler that keeps what it gets."""

    def __init__(self):
        self.messages = []

    def take(self, message):
        """Keep (topic, payload, qos, retain) of one message."""
        self.messages.append((message.topic, message.payload, message.qos, message.retain))

    def __len__(self):
        return len(self.messages)

    def payloads(self):
        """The payloads, in the order in which they came."""
        return [message[1] for message in self.messages]


class Reports:
    """Keeps what a client reports through `on_dropped`."""

    def __init__(self):
        self.seen = []
        self.reasons = []

    def take(self, packet_id, topic, reason):
        """Keep one report."""
        self.seen.append((packet_id, bytes(topic)))
        self.reasons.append(reason)


class Env:
    """The address of the broker, its known behaviour, and some helpers.

    `expected` is what the broker is known to do; `version` is that of the clients; `folder`
    is one for files of the scenario; `option` is what a scenario that is started by another one
    was given.
    """

    Inbox = Inbox
    Reports = Reports
    ticks_ms = staticmethod(ticks_ms)
    ticks_diff = staticmethod(ticks_diff)
    MQTTError = MQTTError

    def __init__(self, options, expected=None):
        self.host = options["host"]
        self.port = int(options["port"])
        self.token = options["token"].encode()
        self.expected = expected
        self.option = options.get("option")
        self.folder = options.get("folder")
        version = options.get("version", "4")
        self.version = None if version == "None" else int(version)

    def name(self, text):
        """A topic (bytes) that no other run uses."""
        return self.token + b"/" + text

    def client(self, name, kind=Client, **options):
        """A client that has not started, with buffers as small as the scenarios allow."""
        options.setdefault("tx_size", 512)
        options.setdefault("rx_size", 512)
        options.setdefault("retry_ms", 20)
        options.setdefault("retry_max_ms", 100)
        options.setdefault("version", self.version)
        return kind(self.token + b"-" + name, self.host, self.port, **options)

    def online(self, name, **options):
        """A client that is connected."""
        client = self.client(name, **options)
        client.connect(timeout_ms=ANSWER_MS)
        return client

    def until(self, what, condition, *clients):
        """Poll the clients in turn until the condition holds; fail naming `what`."""
        deadline = ticks_add(ticks_ms(), ANSWER_MS)
        while not condition():
            for client in clients:
                client.poll(2)
            if ticks_diff(deadline, ticks_ms()) < 0:
                names = ("state", "error", "pending", "stats")
                states = [[getattr(client, name, None) for name in names] for client in clients]
                raise AssertionError("waited for " + what + ": " + repr(states))

    def arrive(self, inbox, count, *clients):
        """Wait until an inbox holds that many messages."""
        self.until(f"message {count}", lambda: len(inbox) >= count, *clients)

    def arrives(self, inbox, payload, *clients):
        """Wait until an inbox holds a message with that payload."""
        self.until(repr(payload), lambda: payload in inbox.payloads(), *clients)

    def granted(self, subscription, *clients):
        """Wait for the SUBACK; return its codes."""
        self.until("SUBACK", lambda: subscription.granted is not None, *clients)
        return bytes(subscription.granted)

    def subscribed(self, client, filters, qos, **more):
        """Have a client subscribe and connect; return its Inbox when that is granted."""
        inbox = Inbox()
        subscription = client.subscribe(filters, inbox.take, qos, **more)
        client.start()
        self.granted(subscription, client)
        return inbox

    def unsubscribed(self, request, *clients):
        """Wait for the UNSUBACK; in MQTT 5 it has a code for each filter."""
        codes = self.granted(request, *clients)
        self.equal(codes, bytes(len(codes)) if self.version == 5 else b"", "UNSUBACK")
        self.equal(len(codes), len(request.asked) if self.version == 5 else 0, "codes")

    def published(self, client, topic, payload=b"", qos=0, retain=False, **more):
        """Publish and wait until the broker has it (QoS 1, 2) or the network has it (0)."""
        if client.publish(topic, payload, qos, retain, **more) is None:
            raise AssertionError("no room for " + repr(payload))
        self.until("acknowledgement", lambda: client.pending == 0, client)

    def equal(self, got, wanted, what):
        """Fail, showing both values, if they differ."""
        if got != wanted:
            raise AssertionError(what + ": got " + repr(got) + ", wanted " + repr(wanted))

    def raises(self, kind, call, *arguments):
        """Return the exception of that kind that a call raises."""
        try:
            call(*arguments)
        except kind as e:
            return e
        raise AssertionError("nothing was raised")

    def dropped(self, client, reports, wanted):
        """Fail unless the client has reported and counted these: (packet identifier, topic)."""
        self.equal(reports.seen, wanted, "dropped")
        self.equal(client.stats.dropped, len(wanted), "stats.dropped")
        for reason in reports.reasons:
            self.equal(isinstance(reason, str) and reason != "", True, "reason " + repr(reason))

    def fails_to_connect(self, client, code):
        """Check that the first attempt ends as it should.

        It is refused with that CONNACK return code, or, where it is None, closed by a
        broker that gives no reason.
        """
        client.start()
        self.until("the refusal", lambda: client.error is not None, client)
        wanted = ("closed", 0) if code is None else ("refused", code)
        self.equal((client.error.kind, client.error.code), wanted, "reason")
        self.equal(client.connected, False, "connected")
        client.disconnect()

    def ask(self, *words):
        """Have the test do something outside of this process; return what it answers."""
        print("@ask", *words)
        return sys.stdin.readline().strip()


def start(scenario, env):
    """Run a scenario; the last line says that it came to its end."""
    if hasattr(sys.stdout, "reconfigure"):  # CPython holds back what goes to a pipe
        sys.stdout.reconfigure(line_buffering=True)
    scenario(env)
    print("@end")
