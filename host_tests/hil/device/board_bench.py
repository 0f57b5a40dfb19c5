"""Heap held, and heap and microseconds per operation, of one client on this board.

Prints "@held STEP BYTES", and "@operation NAME MICROSECONDS BYTES" for one message: a median, and
the least that was left on the heap. The clock is the board's. What is received is in the network
stack's buffers before the clock starts, except in a round trip.
"""

import gc
import time
from array import array

TOPIC = b"t/out"
ROUNDS = 9
BURST = 8
PAYLOAD = b"0123456789abcdef"


class Meter:
    """Does operations over and over. `arrive_ms` is how long bytes take to come."""

    def __init__(self, arrive_ms):
        self._arrive_ms = arrive_ms
        self._us = array("i", [0] * ROUNDS)
        self._left = array("i", [0] * 2)

    def arrive(self, factor=1):
        time.sleep_ms(self._arrive_ms * factor)

    def measure(self, name, operation, prepare, messages=1):
        """Print the figures of an operation; `prepare` is called before each time."""
        gc.collect()
        for i in range(len(self._left)):
            prepare()
            before = gc.mem_alloc()
            operation()
            self._left[i] = gc.mem_alloc() - before
        for i in range(ROUNDS):
            prepare()
            began = time.ticks_us()
            operation()
            self._us[i] = time.ticks_diff(time.ticks_us(), began)
        middle = sorted(self._us)[ROUNDS // 2]
        print("@operation", name, middle / messages, min(self._left) / messages)


def nothing(*_):
    pass


def _free():
    gc.collect()
    gc.collect()  # what the first one finalized
    return gc.mem_free()


def held_flatmq(host, port, online):
    """flatmq is subscribed before it is connected: that is when it claims its memory."""
    start = _free()
    start = _free()
    from flatmq import Client

    print("@held import", start - _free())
    client = Client(b"bench", host, port)
    print("@held made", start - _free())
    client.subscribe(b"t/back", nothing)
    print("@held subscribed", start - _free())


def held_umqtt(host, port, online):
    """umqtt.simple subscribes when it is connected; without a broker that is left out."""
    start = _free()
    start = _free()
    from umqtt.simple import MQTTClient

    print("@held import", start - _free())
    client = MQTTClient(b"bench", host, port, keepalive=60)
    print("@held made", start - _free())
    if online:
        client.set_callback(nothing)
        client.connect()
        client.subscribe(b"t/back")
        print("@held subscribed", start - _free())
        client.disconnect()


def floor(host, port, token, arrive_ms):
    """Measure what a socket takes by itself."""
    import socket

    meter = Meter(arrive_ms)
    arrive = meter.arrive
    s = socket.socket()
    s.connect(socket.getaddrinfo(host, port)[0][-1])
    s.setblocking(False)
    name = token + b"f"
    s.write(bytes((0x10, 12 + len(name))) + b"\0\4MQTT\4\2\0\0" + bytes((0, len(name))) + name)
    arrive(4)
    back = token + b"/b"
    into = bytearray(512)
    s.readinto(into)
    s.write(bytes((0x82, 5 + len(back), 0, 1, 0, len(back))) + back + b"\0")
    arrive(4)
    s.readinto(into)
    out = b"\x30\x17\0\5" + TOPIC + PAYLOAD
    again = bytes((0x30, 2 + len(back) + len(PAYLOAD), 0, len(back))) + back + PAYLOAD

    def come():
        s.write(again)
        arrive()

    meter.measure("clock", nothing, nothing)
    meter.measure("publish", lambda: s.write(out), arrive)
    meter.measure("receive", lambda: s.readinto(into), come)
    meter.measure("idle", lambda: s.readinto(into), nothing)
    s.write(b"\xe0\0")
    s.close()


class Flatmq:
    """flatmq, connected and subscribed to `back`."""

    def __init__(self, host, port, token, back):
        from flatmq import Client

        self.got = 0
        self._back = back
        self._client = client = Client(token + b"q", host, port)
        subscription = client.subscribe(back, self._take)
        client.connect(30000)
        end = time.ticks_add(time.ticks_ms(), 30000)
        while subscription.granted is None:
            client.poll(50)
            if time.ticks_diff(end, time.ticks_ms()) < 0:
                raise OSError("no SUBACK")
        self.poll = client.poll
        self.disconnect = client.disconnect

    def _take(self, message):
        self.got += 1

    def publish(self, n):
        for _ in range(n):
            self._client.publish(TOPIC, PAYLOAD)
        self._client.flush()

    def trip(self, n):
        for _ in range(n):
            self._client.publish(TOPIC, PAYLOAD, 1)
        self._client.flush()
        self._settle()

    def send_back(self, n):
        for _ in range(n):
            self._client.publish(self._back, PAYLOAD)
        self._client.flush()

    def ping(self):
        self._client.ping()
        self._client.flush()

    def drain(self, arrive):
        """Take everything that is on its way."""
        self._settle()
        arrive()
        while self.poll():
            pass

    def _settle(self):
        while self._client.pending:
            self.poll(20)


class Umqtt:
    def __init__(self, host, port, token, back):
        from umqtt.simple import MQTTClient

        self.got = 0
        self._back = back
        self._client = client = MQTTClient(token + b"u", host, port, keepalive=600)
        client.set_callback(self._take)
        client.connect()
        client.subscribe(back)
        self.poll = client.check_msg
        self.ping = client.ping
        self.disconnect = client.disconnect

    def _take(self, topic, payload):
        self.got += 1

    def publish(self, n):
        for _ in range(n):
            self._client.publish(TOPIC, PAYLOAD)

    def trip(self, n):
        for _ in range(n):
            self._client.publish(TOPIC, PAYLOAD, False, 1)

    def send_back(self, n):
        for _ in range(n):
            self._client.publish(self._back, PAYLOAD)

    def drain(self, arrive):
        """Take a PINGRESP that is on its way."""
        arrive()
        self.poll()


def _measured(client, arrive_ms):
    meter = Meter(arrive_ms)
    arrive = meter.arrive

    def ready():
        client.drain(arrive)

    def pong():
        ready()
        client.ping()
        arrive()

    _measure_messages(meter, client, ready, "", 1)
    _measure_messages(meter, client, ready, "_burst", BURST)
    meter.measure("idle", client.poll, nothing)
    meter.measure("ping", client.ping, ready)
    meter.measure("pong", client.poll, pong)
    client.disconnect()


def _measure_messages(meter, client, ready, end, n):
    def come():
        client.got = 0
        client.send_back(n)
        meter.arrive(n)

    def receive():
        while client.got < n:
            client.poll()

    meter.measure("publish" + end, lambda: client.publish(n), ready, n)
    meter.measure("trip" + end, lambda: client.trip(n), ready, n)
    ready()
    meter.measure("receive" + end, receive, come, n)
    ready()


def flatmq(host, port, token, arrive_ms):
    _measured(Flatmq(host, port, token, token + b"/b"), arrive_ms)


def umqtt(host, port, token, arrive_ms):
    _measured(Umqtt(host, port, token, token + b"/b"), arrive_ms)
