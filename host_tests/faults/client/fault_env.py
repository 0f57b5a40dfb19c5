"""The environment of a fault scenario: a client that is watched, and a record of its promises.

Each message accepted and each one delivered is reported to the test in a line of its own, and the
test compares them with what the broker saw: see ledger.py. Both interpreters run this.
"""

import gc
import os
import random
import sys

import flatmq.port
from flatmq.port import drop, load, ticks_add, ticks_diff, ticks_ms
from scenario_env import ANSWER_MS, Env

if sys.implementation.name == "micropython":
    from time import ticks_us

    from flatmq.stream_tcp import TCP
else:
    import time

    from flatmq.stream_cpython import TCP

    def ticks_us():
        """Microseconds, for differences."""
        return time.monotonic_ns() // 1000


HANG_MS = 5000  # a poll(20) that takes longer has hung, however loaded the machine is
NUMBER = 6  # digits at the beginning of each payload
FILES = "/dev/fd"  # one name for each open file
# Code that a client at 3.1.1 loads when it is needed. All of it has been loaded before the heap is
# compared: of what is let go of, the names stay.
KEPT = ("dial", "subs", "rare.qos2", "alone", "reasons", "rare.strays")
LET_GO = ("reasons", "strays")


class Trouble(Exception):
    """The exception of a handler that was asked to raise."""


_last = (b"", 0, 0)
_large = bytearray()


def payload(number, size):
    """The payload of message `number`, `size` bytes long, at least NUMBER, until the next one.

    The last one is kept: a message for which there is no room yet is asked for again and again,
    and large ones, which are all in one buffer, would leave the heap in pieces.
    """
    global _last, _large
    if _last[1:] != (number, size):
        text = f"{number:06d}".encode()
        if len(_large) != (size if size > 1000 else 0):
            _last, _large = (b"", 0, 0), bytearray()  # the one before goes first
        if size > 1000:
            made = _large = _large or bytearray(size)
            for at in range(0, size, NUMBER):
                made[at : at + NUMBER] = text[: size - at]
        else:
            made = (text * (size // NUMBER + 1))[:size]
        _last = (made, number, size)
    return _last[0]


class Link:
    """The client's own link, with what it is asked to wait for counted.

    `failing` has every name lookup fail. `room` None lets a stream take what it takes, else it
    takes at most so many bytes, and every fourth time none.
    """

    def __init__(self, inner):
        self.inner = inner
        self.waited = 0  # ms, in the poll under way
        self.looked_up = False  # in the poll under way
        self.failing = False
        self.room = None
        self.unsettled = []  # messages, each with the number of closes since it was accepted
        self._writes = 0
        self._stream = None

    @property
    def address(self):
        """None until the name is looked up."""
        return self.inner.address

    @address.setter
    def address(self, value):
        self.inner.address = value

    def resolve(self):
        """Look the name up."""
        self.looked_up = True
        if self.failing:
            raise OSError(-3, "name lookup")
        self.inner.resolve()

    def connect(self):
        self.inner.connect()

    def stream(self):
        """The stream once it is connected."""
        self._stream = self.inner.stream()
        return self if self.room and self._stream else self._stream

    def why(self, error):
        """Return the link's reason for an error before CONNACK."""
        why = getattr(self.inner, "why", None)
        return why(error) if why else None

    def wait(self, ms, out):
        self.waited += ms
        self.inner.wait(ms, out)

    def close(self):
        self._stream = None
        self.inner.close()

    def readinto(self, into):
        return self._stream.readinto(into)

    def write(self, buf, at, n):
        self._writes += 1
        if self._writes % 4 == 0:
            return None
        return self._stream.write(buf, at, min(n, self.room))


class FaultEnv(Env):
    """Its topics are `up` and `down`, one for each QoS; a handler `take` notes what comes.

    `long` is whether this is the long version of the scenario, `option` the variant of it.
    """

    TCP = TCP
    Trouble = Trouble

    def __init__(self, options):
        super().__init__(options)
        if self.version == 5:
            # As KEPT below, and before the heap is in pieces.
            for name in ("carry", "flow", "pieces", "reasons"):
                load(name, "v5.")
        self.over = options["link"]
        self.long = options["long"] == "1"
        self.often = 100 if self.long else 15  # outages in a row
        self._way = TCP
        if self.over == "tls":
            from flatmq.stream_tls import TLS

            # As after a failed handshake on top of other losses: what is kept of that is kept now.
            __import__("flatmq.stream_tls_errors")
            drop("stream_tls_errors")
            self._way = TLS(ca=options["ca"]).link
        elif self.over == "websocket":
            from flatmq.stream_websocket import WebSocket

            self._way = WebSocket
        self.up = [self.name(b"up/" + q) for q in (b"0", b"1", b"2")]
        self.down = [self.name(b"down/" + q) for q in (b"0", b"1", b"2")]
        self.got = [0, 0, 0]  # messages delivered, by QoS
        self.raising = 0  # messages at which the handler raises, from the next one on
        self.longest = 0  # µs of the longest poll(20), without name lookups
        self.files = -1  # open files when all was well
        self.heap = -1  # bytes in use when all was well
        self._links = []
        self._number = 0
        self._ticks = self._since = ticks_ms()
        self._speed = 1
        flatmq.port.ticks_ms = self.ticks
        self._began = ticks_ms()

    # A client

    def way(self, host, port):
        """A link of the kind that the table names."""
        return self._way(host, port)

    def client(self, name, **options):
        """A client that has not started, on a link that is watched."""
        options.setdefault("clean_session", False)
        port = options.pop("port", self.port)
        options["link"] = link = Link(self.way(options.pop("host", self.host), port))
        client = super().client(name, **options)
        for method in ("ping", "awaits"):
            getattr(client, method)  # loads it
        for module in KEPT:
            load(module, "")
        # Room for what else is loaded at the same time: else a table of names grows at some loss.
        rare = sys.modules["flatmq.rare"]
        spare = [f"spare{i}" for i in range(6)]
        for module in spare:
            sys.modules[module] = sys
            setattr(rare, module, sys)
            setattr(flatmq, module, sys)
        for module in spare:
            del sys.modules[module]
            delattr(rare, module)
            delattr(flatmq, module)
        drop(*LET_GO)
        for i in range(9):  # as many topic names as it remembers, and one: so much memory it keeps
            client.address(b"%064d" % i, 0)
        del self._links[:-1]  # no scenario polls more than two
        self._links.append((client, link))
        return client

    def let_go(self, client):
        """Keep this client, and let go of all others."""
        self._links = [pair for pair in self._links if pair[0] is client]

    def link(self, client):
        for owner, link in self._links:
            if owner is client:
                return link
        raise ValueError("a client from elsewhere")

    def poll(self, client):
        """poll(20), watched."""
        link = self.link(client)
        link.waited = 0
        link.looked_up = False
        losses = client.stats.losses
        online = client.connected
        began = ticks_us()
        moved = client.poll(20)
        took = ticks_diff(ticks_us(), began)
        if client.stats.losses != losses:
            self._lost(client, link, online)
        self.equal(link.waited <= 20, True, f"waited {link.waited} ms in poll(20)")
        self.equal(took < HANG_MS * 1000, True, f"poll(20) took {took} us")
        if took > self.longest and not link.looked_up:
            self.longest = took
        return moved

    def _lost(self, client, link, online):
        """Report what a lost connection may do to the messages that are not settled."""
        link.unsettled = [each for each in link.unsettled if client.awaits(each[0])]
        for each in link.unsettled:
            each[1] += online
            if each[1] == 2:
                print("@twice", *each[2:])
            if not online:
                print("@doubted", *each[2:])

    def until(self, what, condition, *clients, ms=ANSWER_MS):
        """Poll the clients in turn until the condition holds; fail naming `what`."""
        deadline = ticks_add(ticks_ms(), ms)
        while not condition():
            for client in clients:
                self.poll(client)
            if ticks_diff(deadline, ticks_ms()) < 0:
                states = [(client.state, client.error, client.pending) for client in clients]
                raise AssertionError("waited for " + what + ": " + repr(states))

    def clock(self, ahead=0, speed=1):
        """Have the clients' clock go `ahead` ms, and `speed` times as fast, from now on."""
        self._ticks = ticks_add(self.ticks(), ahead // 2)
        self._ticks = ticks_add(self._ticks, ahead - ahead // 2)  # it takes half of the period
        self._since = ticks_ms()
        self._speed = speed

    def ticks(self):
        """The clients' clock."""
        return ticks_add(self._ticks, ticks_diff(ticks_ms(), self._since) * self._speed)

    def wraps(self, after):
        """Have the clients' clock come round `after` ms from now, and go four times as fast."""
        self.clock(ticks_add(0, -1) - ticks_ms() - after, 4)

    def came_round(self):
        """Return whether the clock has wrapped."""
        return self.ticks() < ticks_add(0, -1) // 2

    # Messages

    def publish(self, client, qos, size=16, topic=None):
        """Publish the next message; return what `publish` does."""
        n = self._number + 1
        topic = topic or self.up[qos]
        result = client.publish(topic, payload(n, size), qos)
        if result is not None:
            self._number = n
            print("@accepted", topic.decode(), n, size, qos)
            if qos:
                link = self.link(client)
                link.unsettled.append([result, 0, topic.decode(), n, size, qos])
        return result

    def accepted(self, client, *qos):
        """Publish a message at each of these, for which there must be room."""
        for q in qos:
            if self.publish(client, q) is None:
                raise AssertionError(f"no room at QoS {q}")

    def take(self, message):
        """Report a message, or raise if the handler is to raise."""
        if self.raising:
            self.raising -= 1
            raise Trouble
        number = int(message.payload[:NUMBER])
        ok = message.payload == payload(number, len(message))
        print("@got", message.topic.decode(), number, len(message), message.qos, int(ok))
        self.got[message.qos] += 1

    def warm(self, client):
        """Have whatever is loaded or claimed once loaded and claimed, for a loss too."""
        for _ in range(2):
            self.recovers(client)
            self.accepted(client, 1, 2)
            self.ask("strike", "cut")
            self.until("the loss", lambda: not client.connected, client)
        self.recovers(client)

    def traffic(self, client):
        """Publish up to 31 messages, as chance has it, once the client is online."""
        self.until("the broker", lambda: client.connected, client)
        for _ in range(random.getrandbits(5)):
            self.publish(client, random.getrandbits(8) % 3)
            self.poll(client)

    def exchange(self, client, each=1):
        """Move messages both ways and wait until they are there."""
        for q in range(3):
            for _ in range(each):
                self.until("room", lambda q=q: self.publish(client, q) is not None, client)
        self.until("acknowledgements", lambda: client.pending == 0, client)
        for q in range(3):
            wanted = self.got[q] + each
            self.ask("publish", q, each)
            self.until(f"QoS {q}", lambda q=q, wanted=wanted: self.got[q] >= wanted, client)

    # What the application sees

    def fault(self):
        """Now the fault begins."""
        self._began = ticks_ms()

    def saw(self, what):
        """Report what the application sees for the first time, and when it did."""
        print("@saw", ticks_diff(ticks_ms(), self._began), what)

    def loses(self, client, kind):
        """Wait until the connection has ended, or could not be made, for that reason."""
        losses = client.stats.losses
        self.until(
            "a loss: " + kind,
            lambda: client.stats.losses > losses and client.error and client.error.kind == kind,
            client,
        )
        self.saw(self.reason(client))

    def reason(self, client):
        """Return why the last connection ended.

        What the system and the network say differs from one run to the next, so of that
        only what was done is reported.
        """
        error = client.error
        if error is None:
            return "online again"
        if error.kind == "refused":
            return f"refused, code {error.code}"
        if error.kind in ("closed", "resource"):
            return f"{error.kind}: {error.detail.split()[0]}"
        return f"{error.kind}: {error.detail}"

    def recovers(self, client):
        """Wait until the client is online and has settled everything it accepted.

        Then exchange messages each way: SUBSCRIBE goes out before they do.
        """
        self.until("the broker", lambda: client.connected, client)
        self.until("acknowledgements", lambda: client.pending == 0, client)
        self.exchange(client)
        self.equal((client.state, client.error, client.pending), ("online", None, 0), "client")

    def compare(self):
        """Note open files and heap the first time, compare them later."""
        files = len(os.listdir(FILES))
        for _, link in self._links:
            link.unsettled = []
        gc.collect()
        gc.collect()  # what the first one let go of
        heap = gc.mem_alloc() if hasattr(gc, "mem_alloc") else 0
        if self.files < 0:
            self.files = files
            self.heap = heap
        else:
            self.equal(files, self.files, "open files")
            print("@heap", heap - self.heap)


def number(text):
    """(name, value) of "name:value", as a client takes it."""
    name, value = text.split(":")
    return name, int(value)


def main():
    """Run one scenario: MODULE FUNCTION key=value ...

    Heap and files are compared from here, where nothing of the scenario itself is on the stack.
    """
    module, function = sys.argv[1:3]
    options = dict(argument.split("=", 1) for argument in sys.argv[3:])
    scenario = getattr(__import__(module), function)
    env = FaultEnv(options)
    if options["wraps"]:
        env.wraps(int(options["wraps"]))
    client = None
    if options["client"] != "none":
        settings = dict(number(text) for text in options["client"].split(",") if text)
        room = settings.pop("room", None)
        client = env.client(b"c", **settings)
        env.link(client).room = room
        client.subscribe(env.down, env.take, 2)
        client.start()
        env.warm(client)
        settings = room = None
        env.compare()
    if options["twice"] == "1":
        scenario(env, client)
        env.let_go(client)
        env.recovers(client)
        env.files = env.heap = -1
        env.compare()
    scenario(env, client)
    if client:
        env.let_go(client)
        env.recovers(client)
        env.equal(client.stats.dropped, 0, "stats.dropped")
        env.compare()
        client.disconnect()
    print("@longest", env.longest)
    print("@end")


if __name__ == "__main__":
    if hasattr(sys.stdout, "reconfigure"):  # CPython holds back what goes to a pipe
        sys.stdout.reconfigure(line_buffering=True)
    main()
