"""The main operations over TCP, with a real broker."""

import packets
from flatmq import Client
from flatmq.port import ticks_diff, ticks_ms

TOPIC = b"proof/lamp"
LONG = bytes(200)  # an Echo takes it, too: over WebSocket it needs a longer header
ANSWER_MS = 15000  # until an answer is given up; far above what a loaded machine needs
_IDENTIFIER = 0x0B  # Subscription Identifier


class Echo:
    """A client that gets back what it publishes, and its handler: one over TCP unless given."""

    def __init__(self, proof, qos, client=None):
        self.client = client or _client(proof)
        self.count = 0
        subscription = self.client.subscribe(TOPIC, self.take, qos)
        self.client.connect(ANSWER_MS)
        while subscription.granted is None:
            self.client.poll(ANSWER_MS)

    def take(self, message):
        if (
            message.is_topic(TOPIC)
            and (message.is_payload(LONG) or message.number() == -1500)
            and (packets.properties is None or self._looked(message.properties))
        ):
            self.count += 1

    def _looked(self, p):
        return p.is_value(0x03, b"text") and p.is_user(b"two", b"bcd") and p.get(_IDENTIFIER)

    def round(self, qos, payload=b"-1500"):
        """Publish a message and poll until it is back and acknowledged. Returns whether it is."""
        self.count = 0
        return self.back(_publish(self.client, payload, qos))

    def back(self, accepted):
        """Poll until what was published is back and acknowledged. Returns whether it is."""
        began = ticks_ms()
        while self.client.pending or self.count == 0:
            self.client.poll(100)
            if ticks_diff(ticks_ms(), began) > ANSWER_MS:
                return False
        return accepted is not None and self.count == 1

    def rounds(self, qos):
        """The operation that has a message come back."""
        while True:
            yield self.round(qos)

    def pings(self):
        """The operation that pings the broker, and takes its answer."""
        while True:
            self.client.ping()
            yield self.client.poll(ANSWER_MS)

    def waits(self):
        """The operation that waits while nothing comes."""
        while True:
            began = ticks_ms()
            came = self.client.poll(3)
            yield not came and ticks_diff(ticks_ms(), began) >= 2 and self.client.connected


def _publish(client, payload, qos):
    """Publish with the properties that messages have; return the client's answer."""
    if packets.properties is None:
        return client.publish(TOPIC, payload, qos)
    return client.publish(TOPIC, payload, qos, properties=packets.properties)


def _client(proof):
    return Client(b"proof", *proof.broker, version=packets.version, tx_size=512, rx_size=256)


def _publisher(proof):
    client = _client(proof)
    client.connect(ANSWER_MS)
    return client


def _acknowledged(proof, qos):
    client = _publisher(proof)
    while True:
        began = ticks_ms()
        accepted = _publish(client, b"-1500", qos)
        while client.pending and ticks_diff(ticks_ms(), began) < ANSWER_MS:
            client.poll(100)
        yield bool(accepted) and client.pending == 0


def publish_qos0(proof):
    client = _publisher(proof)
    while True:
        accepted = _publish(client, b"-1500", 0)
        client.poll()
        yield accepted == 0 and client.pending == 0


def publish_qos1(proof):
    return _acknowledged(proof, 1)


def publish_qos2(proof):
    return _acknowledged(proof, 2)


def receive_qos0(proof):
    return Echo(proof, 0).rounds(0)


def receive_qos1(proof):
    return Echo(proof, 1).rounds(1)


def receive_qos2(proof):
    return Echo(proof, 2).rounds(2)


def wait_for_an_acknowledgement(proof):
    client = _publisher(proof)
    while True:
        _publish(client, b"-1500", 1)
        yield client.wait(ANSWER_MS)


def ping_and_its_pingresp(proof):
    return Echo(proof, 0).pings()


def idle_poll(proof):
    client = _publisher(proof)
    while True:
        yield not client.poll() and client.connected


def idle_poll_that_waits(proof):
    return Echo(proof, 0).waits()
