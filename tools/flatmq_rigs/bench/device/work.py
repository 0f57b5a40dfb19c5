"""The interpreter's work alone: the same operations with flatmq and with umqtt.simple.

flatmq does them at MQTT 3.1.1, at MQTT 5, and over a WebSocket. Everything goes over a link in
memory. What the peer says is there before the clock starts, and what was written is taken away
after it has stopped.

A class below has one method per operation that it can do. It is given a clock and returns what
passed, for as many messages as OPERATIONS says.
"""

import gc

import memory

import packets
from packets import PAYLOAD, TOPICS, seen

BURST = 8
_SMALL = gc.mem_free() < 300_000  # a board
TURNS = 3 if _SMALL else 16  # of a loop that is clocked as a whole
_RING = 2048 if _SMALL else 8192
_PINGRESP = b"\xd0\0"
_SOME = 64  # messages of a mix, which are sent over and over

# Operation -> messages per call. What only MQTT 5 has is beside what stands in for it at 3.1.1.
OPERATIONS = (
    ("publish", TURNS),
    ("publish_burst", TURNS * BURST),
    ("publish_topics", TURNS * 2),
    ("publish_properties", TURNS),
    ("trip", 1),
    ("trip_burst", BURST),
    ("receive", 1),
    ("receive_bytes", 1),
    ("receive_burst", BURST),
    ("receive_tagged", 1),
    ("receive_tagged_burst", BURST),
    ("receive1", 1),
    ("receive1_tagged", 1),
    ("idle", TURNS),
    ("ping", 1),
    ("mix_one", BURST),
    ("mix_plus", BURST),
    ("mix_eight", BURST),
    ("mix_random", BURST),
)
_EIGHT = tuple(
    [b"sensors/pico-%d/temp%d" % (board, sensor) for board in (1, 2, 3, 4) for sensor in (1, 2)]
)
_TWO = _EIGHT[:2]  # those of packets.py
_FOUR = tuple([b"sensors/pico-%d/+" % board for board in (1, 2, 3, 4)])
_SHUFFLED = "1715017153331601023730270435253574107317457227160557641144074511"
# What is subscribed to, and the topics that messages go to, over and over.
_MIXES = {
    "one": (_TWO[:1], _TWO[:1]),
    "plus": (_FOUR[:1], _TWO),
    "eight": (_FOUR, _EIGHT),
    "random": (_FOUR, tuple([_EIGHT[int(i)] for i in _SHUFFLED])),
}


def count(message):
    seen[0] += 1


def count_payload(topic, payload):
    seen[0] += 1


class Common:
    """The part that the clients have in common: the source of their bytes."""

    twice = ("ping",)  # operations that start the clock twice
    only = ()  # the operations that it can do, if not all
    none = b""  # what a packet without properties has in their place: nothing before MQTT 5
    size = packets.SIZE  # of a QoS 0 message

    def __init__(self):
        self.one = packets.publish(TOPICS[0], PAYLOAD, 0, 0, self.none)
        self.burst = self.one * BURST
        self.into = bytearray(self.size)
        self.mixes = {}
        for name in _MIXES:
            order = _MIXES[name][1]
            flood = b""
            for i in range(_SOME):
                flood += packets.publish(order[i % len(order)], PAYLOAD, 0, 0, self.none)
            n = BURST * self.size
            self.mixes[name] = [flood[at : at + n] for at in range(0, len(flood), n)]
        self.turn = 0

    def patience(self, now, read, argument):
        """Return what as many reads of a patient stream as `idle` makes take more than others."""
        nothing = self.stream.setblocking
        t = now()
        for _ in range(TURNS):
            read(argument)
        t = now() - t
        u = now()
        for _ in range(TURNS):
            nothing(argument)
        return t - (now() - u)

    def does(self, operation):
        """Return whether it can do an operation."""
        if self.only:
            return operation in self.only
        return operation.startswith("mix_") or hasattr(self, operation)

    def next(self, name):
        self.turn += 1
        bursts = self.mixes[name]
        return bursts[self.turn % len(bursts)]


class Flatmq(Common):
    name = "flatmq"
    twice = ("ping", "trip", "trip_burst", "receive1", "receive1_tagged")
    version = 4
    tag = b""  # properties with a subscription identifier

    def __init__(self):
        super().__init__()
        self.stream, self.client = self.online("one", count)
        self.acknowledged, self.client1 = self.online("one", count, qos=1)
        self.reading, self.reader = self.online("one", self._bytes)
        self.idling, self.idler = self.online("one", count, True)
        # By the name of the mix.
        self.mixed = {name: self.online(name, count) for name in _MIXES}
        self.tagged = packets.publish(TOPICS[0], PAYLOAD, 0, 0, self.tag)
        self.one1 = packets.publish(TOPICS[0], PAYLOAD, 1, 7, self.none)
        self.tagged1 = packets.publish(TOPICS[0], PAYLOAD, 1, 7, self.tag)

    def online(self, mix, handler, patient=False, qos=0):
        """Return a stream, and a client that is connected by it and subscribed."""
        from flatmq import Client

        stream = memory.Stream(_RING, patient)
        client = Client(b"work", link=memory.Link(stream), version=self.version)
        wanted = [client.subscribe(topic, handler, qos) for topic in _MIXES[mix][0]]
        memory.connect(client, stream)
        memory.grant(client, stream)
        for subscription in wanted:
            if subscription.granted != bytes((qos,)):
                raise RuntimeError("not granted")
        return stream, client

    def _bytes(self, message):
        if message.payload:
            seen[0] += 1

    def publish(self, now):
        c = self.client
        t = now()
        for _ in range(TURNS):
            c.publish(TOPICS[0], PAYLOAD)
            c.flush()
        t = now() - t
        self.take(TURNS * self.size)
        return t

    def publish_burst(self, now):
        c = self.client
        t = now()
        for _ in range(TURNS):
            for _ in range(BURST):
                c.publish(TOPICS[0], PAYLOAD)
            c.flush()
        t = now() - t
        self.take(TURNS * BURST * self.size)
        return t

    def publish_topics(self, now):
        c = self.client
        t = now()
        for _ in range(TURNS):
            c.publish(TOPICS[0], PAYLOAD)
            c.flush()
            c.publish(TOPICS[1], PAYLOAD)
            c.flush()
        t = now() - t
        self.take(2 * TURNS * self.size)
        return t

    def publish_properties(self, now):
        return self.publish(now)

    def take(self, n):
        if len(self.stream.taken()) != n:
            raise RuntimeError("not written")

    def trip(self, now):
        c = self.client
        s = self.stream
        t = now()
        identifier = c.publish(TOPICS[0], PAYLOAD, 1)
        c.flush()
        t = now() - t
        self.take(self.size + 2)
        s.feed(bytes((0x40, 2, identifier >> 8, identifier & 255)))
        u = now()
        while c.pending:
            c.poll()
        return t + (now() - u)

    def trip_burst(self, now):
        c = self.client
        s = self.stream
        identifiers = list(range(BURST))
        t = now()
        for i in range(BURST):
            identifiers[i] = c.publish(TOPICS[0], PAYLOAD, 1)
        c.flush()
        t = now() - t
        self.take(BURST * (self.size + 2))
        for identifier in identifiers:
            s.feed(bytes((0x40, 2, identifier >> 8, identifier & 255)))
        u = now()
        while c.pending:
            c.poll()
        return t + (now() - u)

    def receive(self, now):
        return self.get(now, self.client, self.stream, self.one, 1)

    def receive_bytes(self, now):
        return self.get(now, self.reader, self.reading, self.one, 1)

    def receive_burst(self, now):
        return self.get(now, self.client, self.stream, self.burst, BURST)

    def receive_tagged(self, now):
        return self.get(now, self.client, self.stream, self.tagged, 1)

    def receive_tagged_burst(self, now):
        return self.get(now, self.client, self.stream, self.tagged * BURST, BURST)

    def receive1(self, now):
        return self.answered(now, self.one1)

    def receive1_tagged(self, now):
        return self.answered(now, self.tagged1)

    def answered(self, now, packet):
        c = self.client1
        t = self.get(now, c, self.acknowledged, packet, 1)
        u = now()
        c.flush()
        u = now() - u
        if self.acknowledged.taken() != b"\x40\x02\0\7":
            raise RuntimeError("not acknowledged")
        return t + u

    def get(self, now, c, stream, data, n):
        seen[0] = 0
        stream.feed(data)
        t = now()
        while seen[0] < n:
            c.poll()
        t = now() - t
        if seen[0] != n or stream.incoming.any():
            raise RuntimeError("received otherwise")
        return t

    def idle(self, now):
        c = self.idler
        t = now()
        for _ in range(TURNS):
            c.poll()
        t = now() - t
        return t - self.patience(now, self.idling.readinto, self.into)

    def ping(self, now):
        c = self.client
        t = now()
        c.ping()
        c.flush()
        t = now() - t
        self.take(2)
        self.stream.feed(_PINGRESP)
        u = now()
        c.poll()
        return t + (now() - u)

    def mix(self, now, name):
        stream, client = self.mixed[name]
        return self.get(now, client, stream, self.next(name), BURST)


class Flatmq5(Flatmq):
    """flatmq at MQTT 5. Its subscription has the identifier 1."""

    name = "mqtt5"
    version = 5
    none = b"\0"
    tag = b"\2\x0b\1"
    size = Flatmq.size + 1

    def publish_properties(self, now):
        from flatmq.properties import Properties

        c = self.client
        p = Properties(content_type=b"text/plain")
        t = now()
        for _ in range(TURNS):
            c.publish(TOPICS[0], PAYLOAD, properties=p)
            c.flush()
        t = now() - t
        self.take(TURNS * (self.size + 13))
        return t


class Masked(Flatmq):
    """flatmq over a WebSocket that is open from the start. It only publishes."""

    name = "websocket"
    only = ("publish", "publish_burst")

    def __init__(self):
        Common.__init__(self)
        memory.Sockets(None)  # the port to WebAssembly has none, and none is used
        from flatmq import Client
        from flatmq.stream_websocket import WebSocket, websocket

        self.stream = stream = memory.Stream(_RING)

        class Open(WebSocket):
            def connect(self):
                s = self._link.stream()
                self._mask = websocket(self._ring).readinto
                self._read = s.readinto
                self._write = s.write

            def stream(self):
                return self

        self.client = client = Client(b"work", link=Open("host", link=memory.Link(stream)))
        stream.feed(b"\x82\4" + memory.CONNACK)
        client.start()
        while not client.connected:
            client.poll()
            if client.error:
                raise client.error
        stream.taken()

    def take(self, n):
        if len(self.stream.taken()) < n + 6:  # with the header of a frame at least
            raise RuntimeError("not written")


class Umqtt(Common):
    """umqtt.simple, whose operations on several messages are those on one, over and over.

    It subscribes to nothing here: it hands every message to one callback.
    """

    name = "umqtt.simple"
    take = Flatmq.take

    def __init__(self):
        super().__init__()
        self.sockets = memory.Sockets(None)
        self.stream, self.client = self._online(False)
        self.idling, self.idler = self._online(True)

    def _online(self, patient):
        from umqtt.simple import MQTTClient

        self.sockets.to = stream = memory.Stream(_RING, patient)
        client = MQTTClient(b"work", "host", keepalive=60)
        client.set_callback(count_payload)
        stream.feed(memory.CONNACK)
        client.connect()
        stream.taken()
        return stream, client

    def publish(self, now):
        return self.publishes(now, TURNS)

    def publish_burst(self, now):
        return self.publishes(now, TURNS * BURST)

    def trip(self, now):
        return self.trips(now, 1)

    def trip_burst(self, now):
        return self.trips(now, BURST)

    def receive(self, now):
        return self.get(now, self.one, 1)

    receive_bytes = receive

    def receive_burst(self, now):
        return self.get(now, self.burst, BURST)

    def mix(self, now, name):
        return self.get(now, self.next(name), BURST)

    def publishes(self, now, n):
        c = self.client
        t = now()
        for _ in range(n):
            c.publish(TOPICS[0], PAYLOAD)
        t = now() - t
        self.take(n * self.size)
        return t

    def trips(self, now, n):
        """Each message waits for its own acknowledgement: the client has no other way."""
        c = self.client
        c.pid &= 0x3FFF
        for i in range(c.pid + 1, c.pid + 1 + n):
            self.stream.feed(bytes((0x40, 2, i >> 8, i & 255)))
        t = now()
        for _ in range(n):
            c.publish(TOPICS[0], PAYLOAD, False, 1)
        t = now() - t
        self.take(n * (self.size + 2))
        return t

    def get(self, now, data, n):
        c = self.client
        seen[0] = 0
        self.stream.feed(data)
        t = now()
        while seen[0] < n:
            c.check_msg()
        t = now() - t
        if seen[0] != n or self.stream.incoming.any():
            raise RuntimeError("received otherwise")
        return t

    def idle(self, now):
        c = self.idler
        t = now()
        for _ in range(TURNS):
            c.check_msg()
        t = now() - t
        return t - self.patience(now, self.idling.read, 1)

    def ping(self, now):
        c = self.client
        t = now()
        c.ping()
        t = now() - t
        self.take(2)
        self.stream.feed(_PINGRESP)
        u = now()
        c.check_msg()
        return t + (now() - u)


def once(client, operation, now):
    """Do an operation once and return what the clock says."""
    if operation.startswith("mix_"):
        return client.mix(now, operation[4:])
    return getattr(client, operation)(now)


def clock():
    """Return a clock, and how many microseconds its unit has."""
    try:
        import js  # where the interpreter's own clock has steps of 1 ms

        return js.performance.now, 1000
    except ImportError:
        import time

        return time.ticks_us, 1


def measure_round(clients, messages):
    """Print "@us CLIENT OPERATION MICROSECONDS" for every operation, clients taking turns.

    An operation is done for so many messages at least. What the clock takes is subtracted.
    """
    now, unit = clock()
    gc.collect()
    started = 0
    for _ in range(messages):
        t = now()
        started += now() - t
    started /= messages
    for operation, per_call in OPERATIONS:
        calls = max(1, messages // per_call)
        for client in clients:
            if not client.does(operation):
                continue
            total = 0
            for _ in range(calls):
                total += once(client, operation, now)
            total -= started * calls * (2 if operation in client.twice else 1)
            print("@us", client.name, operation, total * unit / (calls * per_call))


def measure_heap(clients):
    """Print "@heap CLIENT OPERATION BYTES": what a message leaves on the heap."""
    for client in clients:
        for operation, per_call in OPERATIONS:
            if not client.does(operation):
                continue
            gc.collect()
            # The first time settles what is made once.
            left = min([once(client, operation, gc.mem_alloc) for _ in range(4)][1:])
            print("@heap", client.name, operation, left / per_call)
