"""The main operations over TCP, with a real broker."""

import packets
from flatmq import Client
from flatmq.port import ticks_diff, ticks_ms

TOPIC = b"proof/lamp"
LONG = bytes(200)  # an Echo takes it, too: over WebSocket it needs a longer header
ANSWER_MS = 15000  # until an answer is given up; far above what a loaded machine needs


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
        if message.is_topic(TOPIC) and (message.is_payload(LONG) or message.number() == -1500):
            self.count += 1

    def round(self, qos, payload=b"-1500"):
        """Publish a message and poll until it is back and acknowledged. Returns whether it is."""
        self.count = 0
        began = ticks_ms()
        accepted = self.client.publish(TOPIC, payload, qos)
        while self.client.pending or self.count == 0:
            self.client.poll(100)
            if ticks_diff(ticks_ms(), began) > ANSWER_MS:
                return False
        return accepted is not None and self.count == 1


def _client(proof):
    return Client(b"proof", *proof.broker, version=packets.version, tx_size=512, rx_size=256)


def _publisher(proof):
    client = _client(proof)
    client.connect(ANSWER_MS)
    return client


def _acknowledged(client, qos):
    began = ticks_ms()
    if not client.publish(TOPIC, b"-1500", qos):
        return False
    while client.pending:
        client.poll(100)
        if ticks_diff(ticks_ms(), began) > ANSWER_MS:
            return False
    return True


def publish_qos0(proof):
    client = _publisher(proof)
    while True:
        accepted = client.publish(TOPIC, b"-1500")
        client.poll()
        yield accepted == 0 and client.pending == 0


def publish_qos1(proof):
    client = _publisher(proof)
    while True:
        yield _acknowledged(client, 1)


def publish_qos2(proof):
    client = _publisher(proof)
    while True:
        yield _acknowledged(client, 2)


def receive_qos0(proof):
    echo = Echo(proof, 0)
    while True:
        yield echo.round(0)


def receive_qos1(proof):
    echo = Echo(proof, 1)
    while True:
        yield echo.round(1)


def receive_qos2(proof):
    echo = Echo(proof, 2)
    while True:
        yield echo.round(2)


def wait_for_an_acknowledgement(proof):
    client = _publisher(proof)
    while True:
        client.publish(TOPIC, b"-1500", 1)
        yield client.wait(ANSWER_MS)


def ping_and_its_pingresp(proof):
    client = _publisher(proof)
    while True:
        client.ping()
        yield client.poll(ANSWER_MS)


def idle_poll(proof):
    client = _publisher(proof)
    while True:
        yield not client.poll() and client.connected


def idle_poll_that_waits(proof):
    client = _publisher(proof)
    while True:
        began = ticks_ms()
        came = client.poll(3)
        yield not came and ticks_diff(ticks_ms(), began) >= 2 and client.connected
