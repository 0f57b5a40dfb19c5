"""The tests that need a network: joining it, losing it, and messages in all directions.

Lines that begin with @ are for the desk.
"""

import os
import sys
from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

from flatmq import Client

STATE = "/hil/state"  # what is known of the burst, over a reset
ANSWER_MS = 120000  # of the board's clock, until a step is given up
ALIVE = 10  # turns between two signs of life


def station():
    import network

    return network.WLAN(network.STA_IF)


def join(ssid, password, ms):
    """Join the Wi-Fi, unless the board has; fail after so many milliseconds."""
    wlan = station()
    began = ticks_ms()
    wlan.active(True)
    if not wlan.isconnected():
        wlan.connect(ssid, password)
    while not wlan.isconnected():
        if ticks_diff(ticks_ms(), began) > ms:
            raise OSError("not joined, status " + str(wlan.status()))
        sleep_ms(20)
    print("@joined", ticks_diff(ticks_ms(), began))


class Patience:
    """Count the turns of a loop that waits for one thing, and give up after ANSWER_MS.

    It prints signs of life: where the board is slow, that is long on the desk's clock.
    """

    def __init__(self, what):
        self._what = what
        self._end = ticks_add(ticks_ms(), ANSWER_MS)
        self._turns = 0

    def turn(self, client):
        self._turns += 1
        if self._turns % ALIVE == 0:
            print("@alive")
        if ticks_diff(self._end, ticks_ms()) < 0:
            raise OSError(self._what + " did not come; " + client.state)


def reach(host, port):
    """Connect to the broker once; fail as the network does."""
    client = Client(b"", host, port)
    client.connect(20000)
    client.disconnect()
    print("@reached")


class Numbers:
    """A client that gets back the numbers it publishes."""

    def __init__(self, host, port, topic, qos, **options):
        self.count = self.next = self.wrong = 0
        self.qos = qos
        self.topic = topic
        self.client = Client(topic.replace(b"/", b"-")[-23:], host, port, **options)
        self.subscription = self.client.subscribe(topic, self._take, qos)
        self.client.connect(ANSWER_MS)
        self.until("SUBACK", self._granted)

    def _granted(self):
        return self.subscription.granted is not None

    def _take(self, message):
        n = message.number()
        if n != self.count:
            self.wrong += 1
        self.count = n + 1

    def offer(self):
        """Publish the next number if there is room."""
        if self.client.publish(self.topic, b"%d" % self.next, self.qos) is None:
            return False
        self.next += 1
        return True

    def until(self, what, holds):
        patience = Patience(what)
        while not holds():
            self.client.poll(20)
            patience.turn(self.client)

    def whole(self):
        """Return whether all messages are back and acknowledged."""
        return self.count == self.next and not self.client.pending


def exchange(host, port, token, qos, messages):
    """Numbered messages out and back."""
    numbers = Numbers(host, port, token + b"/exchange%d" % qos, qos)
    began = ticks_ms()
    patience = Patience("room for every message")
    while numbers.next < messages:
        while numbers.next < messages and numbers.offer():
            pass
        numbers.client.poll(5)
        patience.turn(numbers.client)
    numbers.until("every message", numbers.whole)
    print("@exchanged", qos, numbers.count, numbers.wrong, ticks_diff(ticks_ms(), began))
    numbers.client.disconnect()


def lose_wifi(host, port, token, ssid, password, keepalive):
    """Five messages, Wi-Fi away, five more, and Wi-Fi back."""
    options = {"keepalive": keepalive, "timeout": keepalive, "retry_max_ms": 2000}
    numbers = Numbers(host, port, token + b"/wifi", 1, **options)
    for _ in range(5):
        numbers.offer()
    numbers.until("the first five", numbers.whole)
    wlan = station()
    began = ticks_ms()
    wlan.disconnect()
    wlan.active(False)
    if wlan.isconnected():
        raise OSError("still joined")
    for _ in range(5):
        if not numbers.offer():
            raise OSError("not accepted while Wi-Fi was away")
    numbers.until("the loss", lambda: not numbers.client.connected)
    print("@noticed", ticks_diff(ticks_ms(), began))
    wlan.active(True)
    wlan.connect(ssid, password)
    numbers.until("Wi-Fi", wlan.isconnected)
    began = ticks_ms()
    numbers.until("every message", numbers.whole)
    print("@recovered", ticks_diff(ticks_ms(), began), numbers.count, numbers.wrong)
    numbers.client.disconnect()


def _note(acknowledged, accepted):
    with open(STATE, "w") as f:
        f.write(str(acknowledged) + " " + str(accepted))
    if hasattr(os, "sync"):
        os.sync()


def burst(host, port, token, messages):
    """Publish at QoS 1 as fast as it goes, and reset the board with messages on their way."""
    topic = token + b"/burst"
    client = Client(b"burst" + token[-16:], host, port)
    client.connect(ANSWER_MS)
    n = 0
    patience = Patience("so many acknowledgements")
    while True:
        while client.publish(topic, b"%d" % n, 1) is not None:
            n += 1
        if n - client.pending >= messages:
            break
        client.poll(20)
        patience.turn(client)
    client.flush()
    # They are acknowledged in the order of publishing (section 4.6).
    _reset(n - client.pending, n)


def spooled_burst(host, port, token, messages):
    """The same through a spool, of which everything that was accepted has to arrive.

    A fast broker acknowledges all that a slow board sends within the same poll. So the last
    messages are published after the last poll.
    """
    client, spool = _spool(host, port, token)
    topic = token + b"/spooled"
    n = 0
    patience = Patience("so many acknowledgements")
    while n - spool.pending < messages // 2:
        n += _publish_each(spool, topic, n, 4)
        spool.poll(20)
        patience.turn(client)
    n += _publish_each(spool, topic, n, 8)
    spool.poll()  # these are on their way, or acknowledged
    n += _publish_each(spool, topic, n, 4)
    _reset(n - spool.pending, n)


def _publish_each(spool, topic, first, count):
    """Publish so many numbers, and return how many of them were accepted."""
    n = first
    for _ in range(count):
        if spool.publish(topic, b"%d" % n, 1):
            n += 1
    return n - first


def _reset(acknowledged, accepted):
    import machine
    import micropython

    _note(acknowledged, accepted)
    micropython.kbd_intr(-1)  # the Ctrl-C of the next connection would stop this
    print("@reset")
    sleep_ms(50)  # so that the line gets out; nothing polls meanwhile
    machine.reset()


def _spool(host, port, token):
    from flatmq.spool import Spool

    client = Client(b"spool" + token[-16:], host, port, clean_session=False)
    # A head that littlefs keeps in the folder: four times its prog size.
    spool = Spool(client, "/hil/spool", head=512 if sys.platform == "rp2" else 128)
    client.start()
    patience = Patience("the connection")
    while not client.connected:
        spool.poll(20)
        patience.turn(client)
    return client, spool


def state():
    """Print what was noted before the reset."""
    with open(STATE) as f:
        print("@state", f.read())


def drain(host, port, token):
    """After the reset: sends what the spool still has."""
    client, spool = _spool(host, port, token)
    left = spool.pending
    patience = Patience("the last acknowledgement")
    while spool.pending:
        spool.poll(20)
        patience.turn(client)
    print("@drained", left)
    client.disconnect()
