"""The main operations over WebSocket, with a broker that listens for it."""

from flatmq import Client
from flatmq.port import ticks_diff, ticks_ms
from flatmq.setup import tcp
from flatmq.stream_websocket import WebSocket

TOPIC = b"proof/lamp"
LONG = bytes(200)  # too long for a frame with a short header
ANSWER_MS = 15000  # until an answer is given up; far above what a loaded machine needs


class _ZeroMask:
    """Has frames as they are over TLS."""

    link = staticmethod(tcp)


class _Echo:
    """A client that gets back what it publishes, and its handler."""

    def __init__(self, proof, qos, tls=None):
        host, port = proof.broker
        link = WebSocket(host, port, tls=tls)
        self.client = Client(b"proof", link=link, tx_size=768, rx_size=512)
        self.count = 0
        subscription = self.client.subscribe(TOPIC, self._take, qos)
        self.client.connect(ANSWER_MS)
        while subscription.granted is None:
            self.client.poll(ANSWER_MS)

    def _take(self, message):
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


def _rounds(echo, qos):
    while True:
        yield echo.round(qos) and echo.round(qos, LONG)


def there_and_back_at_qos0(proof):
    return _rounds(_Echo(proof, 0), 0)


def there_and_back_at_qos1(proof):
    return _rounds(_Echo(proof, 1), 1)


def there_and_back_at_qos2(proof):
    return _rounds(_Echo(proof, 2), 2)


def there_and_back_at_qos2_with_a_mask_of_zeros(proof):
    return _rounds(_Echo(proof, 2, _ZeroMask), 2)


def ping_and_its_pingresp(proof):
    client = _Echo(proof, 0).client
    while True:
        client.ping()
        yield client.poll(ANSWER_MS)


def idle_poll_that_waits(proof):
    client = _Echo(proof, 0).client
    while True:
        began = ticks_ms()
        came = client.poll(3)
        yield not came and ticks_diff(ticks_ms(), began) >= 2 and client.connected
