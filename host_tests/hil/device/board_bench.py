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
        """Wait until what is on its way is here."""
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


def nothing():
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


def flatmq(host, port, token, arrive_ms):
    from flatmq import Client

    meter = Meter(arrive_ms)
    arrive = meter.arrive
    back = token + b"/b"
    got = [0]

    def take(message):
        got[0] += 1

    c = Client(token + b"q", host, port)
    subscription = c.subscribe(back, take)
    c.connect(30000)
    end = time.ticks_add(time.ticks_ms(), 30000)
    while subscription.granted is None:
        c.poll(50)
        if time.ticks_diff(end, time.ticks_ms()) < 0:
            raise OSError("no SUBACK")

    def publish():
        c.publish(TOPIC, PAYLOAD)
        c.flush()

    def publish_burst():
        for _ in range(BURST):
            c.publish(TOPIC, PAYLOAD)
        c.flush()

    def settle():
        while c.pending:
            c.poll(20)

    def trip():
        c.publish(TOPIC, PAYLOAD, 1)
        c.flush()
        while c.pending:
            c.poll(20)

    def trip_burst():
        for _ in range(BURST):
            c.publish(TOPIC, PAYLOAD, 1)
        c.flush()
        while c.pending:
            c.poll(20)

    def come(n=1):
        got[0] = 0
        for _ in range(n):
            c.publish(back, PAYLOAD)
        c.flush()
        arrive(n)

    def receive():
        while not got[0]:
            c.poll()

    def receive_burst():
        while got[0] < BURST:
            c.poll()

    def drain():
        settle()
        arrive()
        while c.poll():
            pass

    def ping():
        c.ping()
        c.flush()

    def pong():
        drain()
        ping()
        arrive()

    meter.measure("publish", publish, drain)
    meter.measure("publish_burst", publish_burst, drain, BURST)
    meter.measure("trip", trip, drain)
    meter.measure("trip_burst", trip_burst, drain, BURST)
    drain()
    meter.measure("receive", receive, come)
    drain()
    meter.measure("receive_burst", receive_burst, lambda: come(BURST), BURST)
    drain()
    meter.measure("idle", c.poll, nothing)
    meter.measure("ping", ping, drain)
    meter.measure("pong", c.poll, pong)
    c.disconnect()


def umqtt(host, port, token, arrive_ms):
    from umqtt.simple import MQTTClient

    meter = Meter(arrive_ms)
    arrive = meter.arrive
    back = token + b"/b"
    got = [0]

    def take(topic, payload):
        got[0] += 1

    c = MQTTClient(token + b"u", host, port, keepalive=600)
    c.set_callback(take)
    c.connect()
    c.subscribe(back)

    def publish():
        c.publish(TOPIC, PAYLOAD)

    def publish_burst():
        for _ in range(BURST):
            c.publish(TOPIC, PAYLOAD)

    def trip():
        c.publish(TOPIC, PAYLOAD, False, 1)

    def trip_burst():
        for _ in range(BURST):
            c.publish(TOPIC, PAYLOAD, False, 1)

    def come(n=1):
        got[0] = 0
        for _ in range(n):
            c.publish(back, PAYLOAD)
        arrive(n)

    def receive():
        while not got[0]:
            c.check_msg()

    def receive_burst():
        while got[0] < BURST:
            c.check_msg()

    def pong():
        c.check_msg()
        c.ping()
        arrive()

    def ready():
        arrive()
        c.check_msg()

    meter.measure("publish", publish, arrive)
    meter.measure("publish_burst", publish_burst, arrive, BURST)
    meter.measure("trip", trip, arrive)
    meter.measure("trip_burst", trip_burst, arrive, BURST)
    meter.measure("receive", receive, come)
    meter.measure("receive_burst", receive_burst, lambda: come(BURST), BURST)
    meter.measure("idle", c.check_msg, nothing)
    meter.measure("ping", c.ping, ready)
    ready()
    meter.measure("pong", c.check_msg, pong)
    c.disconnect()
