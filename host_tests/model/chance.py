"""The life of a client under faults that a seed chooses, held to the model of the protocol.

`python -m model.chance SEED` shows what happens in one of them. What the client must keep:

- What `publish` accepted at QoS 1 and 2 reaches the broker, at QoS 2 once if the client saw the
  session all the time. At QoS 1 and 2 messages reach handlers in the same way.
- Nothing arrives that was not sent, and at each QoS the order stays.
- Every packet keeps the rules of the standard; see `judge`.
- `poll` raises nothing but what a handler or Ctrl-C raises.
- After the faults the client is online, has subscribed and has nothing pending.

In half of the lives it also sends messages in pieces, and drops messages by hand.
"""

import io
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import peer
from flatmq import Client
from flatmq.message import Message
from model.broker import Broker
from model.judge import Fault, Judge, hold
from model.network import BY_PEER, ENDS, Due, Link
from packets.strict import Packet
from unit.fake_link import Clock, fake_clock

STEPS = 80
SETTLE = 3600  # seconds that a client has, once the faults are over
TIMEOUT = 4  # seconds, of the client
OURS = b"unit"
ALWAYS, AT_TIMES = b"a/+", b"b/#"  # topic filters; the second one comes and goes


class Failure(Exception):
    """Raised by a handler."""


class Life:
    """A client and all that happens to it."""

    def __init__(self, seed: int, clock: Clock, version: int) -> None:
        self.chance = chance = random.Random(f"life {seed}")
        self.more = seed % 4 in (0, 3)  # than `publish` alone
        self.clock = clock
        self.calm = False
        self.log: list[str] = []
        self.number = 0  # of the next message, either way
        self.raises: dict[bytes, int] = {}  # how many times the handler of a message still raises
        self.raised = False  # by a handler in the last call
        self.interrupted = False
        self.leaves = False  # it disconnects
        self.got: list[bytes] = []
        self.given_up: set[bytes] = set()
        self.pieces: bytearray = bytearray()
        self.streams = 0
        self.level = chance.choice([0.0, 0.5, 1.0, 1.0, 2.0])  # of the faults
        self.refused: set[bytes] = set()  # payloads and topic filters on which the broker closes
        self.by_hand = b""  # the topic of the message that is being dropped
        self.failures: Counter[bytes] = Counter()  # of the handler, by payload
        self.give_up = chance.choice([0, 3])
        clean = chance.random() < 0.3
        options = {
            "clean_session": clean,
            "keepalive": chance.choice([5, 30, 60]),
            "tx_size": chance.choice([64, 100, 256, 1024]),
            "rx_size": chance.choice([64, 64, 128, 512]),
            "inflight": chance.choice([1, 2, 4, 8, 32]),
            "answers": chance.choice([8, 16, 64]),
            "incoming": chance.choice([1, 4, 32]),
            "give_up": self.give_up,
            "timeout": TIMEOUT,
            "retry_ms": 20,
            "retry_max_ms": 60_000,
            "ack_timeout": chance.choice([2, TIMEOUT, 3 * TIMEOUT]),
        }
        self.say(f"options {options}")
        self.judge = Judge(client_id=OURS, level=version, clean=clean)
        self.broker = Broker(self._send, version)
        self.broker.refuses = self._refuses
        self.broker.on_refusal = lambda: self.link.current.cut(chance.choice(BY_PEER))
        self.link = Link(self)
        self.client = Client(
            OURS,
            link=self.link,
            version=version,
            on_message=self._handle,
            chunks=True,
            on_dropped=self._dropped,
            **options,
        )
        self.client.subscribe(ALWAYS, self._handle, qos=2, chunks=True)
        self.filters = {ALWAYS: 2}

    def say(self, what: str) -> None:
        """Add a line to the log."""
        self.log.append(f"{self.clock.now:8} {what}")

    # Chance, which rests in the end

    def fails(self, share: float) -> bool:
        """Return whether a fault of this share comes now."""
        return not self.calm and self.chance.random() < share * self.level

    def cut_after(self) -> int | None:
        """Return after how many bytes a connection is cut."""
        if not self.fails(0.3):
            return None
        return self.chance.choice([3, 40, 200, 2000]) * self.chance.randrange(1, 9) // 4

    def end(self) -> str:
        """Return how a connection ends."""
        return self.chance.choice(ENDS)

    def delay(self) -> int:
        """Return the ms after which an answer of the broker comes."""
        return self.chance.choice([0, 0, 1, 50, 1000]) if self.fails(0.5) else 0

    def swallows(self, name: str) -> bool:
        """Return whether the broker never sends this answer."""
        return name not in ("PINGRESP", "PUBREL") and self.fails(0.02)

    def room(self, n: int) -> int:
        """Return how many of `n` bytes the network takes."""
        return self.chance.randrange(n + 1) if self.fails(0.2) else n

    def read(self, n: int) -> int:
        """Return how many of `n` bytes are read at once."""
        return self.chance.randrange(1, n + 1) if n and self.fails(0.3) else n

    def ctrl_c(self, where: str) -> None:
        """Raise KeyboardInterrupt at times."""
        if self.fails(0.01):
            self.say(f"Ctrl-C in {where}")
            self.interrupted = True
            raise KeyboardInterrupt

    def connects(self) -> None:
        """Begin with a connection; the broker may have lost the session."""
        if self.fails(0.1):
            self.say("the session is lost")
            self.broker.forget()
        self.judge.opened()
        self.broker.opened()
        self.streams += 1

    def waited(self, ms: int) -> None:
        """Let time pass in a wait."""
        coming = self.link.current.next_in() if self.link.current else None
        ms = ms if coming is None else max(min(ms, coming), 1)
        self.clock.now += self.chance.randrange(1, ms + 1) if self.fails(0.3) else ms

    def _send(self, packet: Packet, data: bytes) -> None:
        if self.link.current:
            self.link.current.send(packet, data)

    # The application

    def _handle(self, message: Message) -> None:
        payload = message.payload
        if message.offset == 0:
            self.pieces = bytearray()
        hold(len(self.pieces) == message.offset, "a piece is lost")
        self.ctrl_c("a handler")
        key = bytes(self.pieces) + payload
        if message.last and self.raises.get(key):
            self.raises[key] -= 1
            self.failures[key] += 1
            self.raised = True
            raise Failure
        self.pieces += payload
        if message.last:
            hold(len(self.pieces) == message.total, "total")
            self.say(f"handler got {self.name(bytes(self.pieces))}")
            self.got.append(bytes(self.pieces))
            self.judge.arrived.add(self.got[-1])

    def _dropped(self, packet_id: int, topic: bytes, reason: str) -> None:
        self.say(f"dropped {packet_id} {topic!r}: {reason}")
        for message in self.broker.messages:
            if message.topic == topic:
                failures = self.failures[message.payload]
                hold(failures >= self.give_up > 0, f"{message} dropped after {failures} failures")
                self.given_up.add(message.payload)
                self.judge.arrived.add(message.payload)
                return
        if not packet_id and topic in (ALWAYS, AT_TIMES):  # SUBSCRIBE or UNSUBSCRIBE, tried again
            return
        if topic == self.by_hand:
            return
        found = [m for m in self.judge.messages if m.topic == topic]
        hold(len(found) == 1, f"{topic!r} was dropped, and was not published")
        hold(self.give_up and found[0].closes >= self.give_up, f"no reason to drop {found[0]}")
        hold(found[0].proof, f"no proof for dropping {found[0]}")
        self.judge.dropped(found[0])

    @staticmethod
    def name(payload: bytes) -> str:
        """Return a payload in a form to be shown."""
        return f"{payload[:12].decode()}({len(payload)})"

    def _made(self, way: str) -> tuple[bytes, bytes]:
        """Return a topic and the payload of a message that there was not yet."""
        self.number += 1
        prefix = {"up": "up/", "a": "a/", "b": "b/x/"}[way]
        size = self.chance.choice([0, 5, 30, 60, 61, 200])
        payload = b"%s %d." % (way.encode(), self.number)
        return f"{prefix}{self.number}".encode(), payload + b"x" * size

    def publish(self) -> None:
        """Publish a message."""
        topic, payload = self._made("up")
        qos = self.chance.randrange(3)
        in_pieces = self.more and self.chance.random() < 0.3
        if in_pieces:
            payload += b"y" * self.chance.choice([0, 500, 3000])
            qos = min(qos, 1)
            source = self.chance.choice([bytes, io.BytesIO])(payload)
            pid = self.client.publish_from(topic, source, qos)
        else:
            try:
                pid = self.client.publish(topic, payload, qos)
            except ValueError:  # larger than tx_size
                return
        self.say(f"publish {self.name(payload)} at QoS {qos}: {pid}")
        if pid is not None:
            self.judge.published(topic, payload, qos, pid, in_pieces)
            if qos and self.fails(0.1):
                self.refused.add(payload)

    def drop(self) -> None:
        """Drop a message by hand."""
        if self.more and self.judge.unsettled:
            message = self.chance.choice(self.judge.unsettled)
            self.say(f"drop {message}")
            self.by_hand = message.topic
            losses = self.client.stats.losses
            done = self._call(self.client.drop, message.first)
            hold(done is not False or self.client.stats.losses > losses, f"no {message}")
            if done is not None or not self.client.awaits(message.first):
                stream = self.link.current
                self.judge.dropped(message, stream.offered if stream else b"")
            self.by_hand = b""

    def _refuses(self, packet: Packet) -> bool:
        if packet.name == "SUBSCRIBE":
            return not self.calm and any(each.topic in self.refused for each in packet.filters)
        return packet.payload in self.refused

    def receive(self) -> None:
        """Have the broker send messages."""
        for _ in range(self.chance.choice([1, 1, 2, 10])):
            way = self.chance.choice("aab")
            topic, payload = self._made(way)
            message = self.broker.publish(topic, payload, self.chance.randrange(3))
            if message:
                self.say(f"broker sends {self.name(payload)} at QoS {message.qos}")
                if self.fails(0.1):
                    always = 1_000_000 if self.give_up else 7 if self.more else 1
                    self.raises[payload] = self.chance.choice([1, 2, always])

    def subscribe(self) -> None:
        """Subscribe to the filter that comes and goes, or end the subscription."""
        if AT_TIMES in self.filters:
            self.client.unsubscribe(AT_TIMES)
            del self.filters[AT_TIMES]
        else:
            qos = self.chance.randrange(3)
            self.client.subscribe(AT_TIMES, self._handle, qos=qos, chunks=True)
            self.filters[AT_TIMES] = qos
            if self.fails(0.3):
                self.refused.add(AT_TIMES)
        self.say(f"filters {self.filters}")

    def disconnect(self) -> None:
        """Disconnect, and start again."""
        self.say("disconnect")
        self.leaves = True
        self._call(self.client.disconnect, 50)
        self.leaves = False
        self._call(self.client.start)

    # What happens

    def _call(self, call, *arguments: int) -> object:
        """Call the client, which may raise what a handler or Ctrl-C raises."""
        self.raised = self.interrupted = False
        try:
            return call(*arguments)
        except Failure:
            hold(self.raised, "a handler's exception again")
            if AT_TIMES in self.filters and self.fails(0.3):
                self.subscribe()
        except KeyboardInterrupt:
            hold(self.interrupted, "Ctrl-C again")
        return None

    def poll(self, ms: int) -> bool:
        """Poll the client, and compare what it says of itself with the model."""
        stream = self.link.current
        before = stream.gave if stream else 0
        self.clock.now += 1
        came = self._call(self.client.poll, ms)
        if came is None:
            return True
        client = self.client
        if self.link.current is stream and stream:
            hold(not came or stream.gave > before, "poll has returned True for nothing")
        if client.connected:
            hold(client.state == "online", "connected, and not online")
            hold(client.error is None, "online with an error")
            hold(client.session_present == self.judge.present, "session_present")
        if not came and client.connected and self.calm:
            least, most = self.judge.pending
            hold(least <= client.pending <= most, f"{client.pending} pending: {least} to {most}")
        return bool(came)

    def jump(self) -> None:
        """Let much time pass at once."""
        self.clock.now += self.chance.choice([10, 500, 5000, 70_000])

    def cut(self) -> None:
        """End the connection."""
        if self.link.current:
            self.link.current.cut(self.end())

    def block(self) -> None:
        """Have the network take nothing for a while."""
        if self.link.current and self.fails(1):
            self.link.current.blocked_until = self.clock.now + self.chance.choice([10, 1000])

    def stray(self) -> None:
        """Send PUBREC for a message that is not in flight."""
        stream = self.link.current
        if stream and stream.greeted and not stream.ended:
            pid = self.chance.randrange(1, 65536)
            if pid not in {m.pid for m in self.judge.unsettled}:
                stream.waiting.append(Due(self.clock.now, peer.pubrec(pid)))

    def live(self) -> None:
        """Have it all happen, and then calm down."""
        self.client.start()
        acts = [
            (self.publish, 25), (self.receive, 15), (self.subscribe, 2), (self.disconnect, 1),
            (self.jump, 3), (self.cut, 3 * self.level), (self.block, 3), (self.stray, 2),
            (self.drop, int(self.more)),
            (lambda: self.poll(0), 25), (lambda: self.poll(50), 25),
            (lambda: self._call(self.client.flush), 3), (lambda: self._call(self.client.ping), 1),
        ]  # fmt: skip
        calls, weights = zip(*acts, strict=True)
        for act in self.chance.choices(calls, weights, k=STEPS):
            act()
        self.calm = True
        self.say("calm")
        self._settle()
        self._judge()

    def _settled(self) -> bool:
        session, stream = self.broker.session, self.link.current
        return bool(
            self.client.connected
            and not self.client.pending
            and not self.broker.unsettled
            and session
            and session.subscriptions == self.filters
            and stream
            and not stream.ended
            and not stream.waiting
            and not self.judge.owes
        )

    def _settle(self) -> None:
        if self.link.current:
            self.link.current.in_left = self.link.current.out_left = None
        if not self.give_up:
            self.refused.clear()
        last = self.clock.now
        end = last + 1000 * SETTLE
        while not self._settled():
            if self.refused and self.clock.now - last > 60_000:
                last = self.clock.now
                self.publish()  # its acknowledgement is the proof that the others are refused
            if self.clock.now > end - 500 * SETTLE:
                self.refused.clear()  # they may fill the queue, and leave no room for a proof
            if self.clock.now > end:
                raise Fault(f"the client does not settle: {self._state()}")
            self.poll(500)

    def _state(self) -> str:
        session = self.broker.session
        return (
            f"{self.client!r}, {self.judge.pending} pending, owes {self.judge.owes}, broker: "
            f"{self.broker.unsettled}, {session and session.subscriptions}"
        )

    # What has come of it

    def _judge(self) -> None:
        taken, counts = self.broker.taken, self.broker.counts
        for m in self.judge.messages:
            if m.qos and not m.dropped:
                hold(counts[m.payload] >= 1, f"{m} is lost")
            if (m.qos == 2 and m.exact) or not m.qos:
                hold(counts[m.payload] <= 1, f"{m} has arrived {counts[m.payload]} times")
        hold(counts.keys() <= self.judge.by_payload.keys(), "something arrived from nowhere")
        got = Counter(self.got)
        sent = {m.payload: m for m in self.broker.messages}
        hold(got.keys() <= sent.keys(), "a handler got something from nowhere")
        for o in self.broker.messages:
            if o.qos and not o.lost and o.payload not in self.given_up:
                hold(got[o.payload] >= 1, f"no handler got {o}")
            if (o.qos == 2 and o.exact) or not o.qos:
                hold(got[o.payload] <= 1, f"handlers got {o} {got[o.payload]} times")
        for qos in range(3):
            ups = [self.judge.by_payload[payload] for payload in dict.fromkeys(taken)]
            numbers = [m.number for m in ups if m.qos == qos and m.closes < 2]
            hold(numbers == sorted(numbers), f"the broker's order at QoS {qos}: {numbers}")
            downs = [sent[payload].number for payload in got if sent[payload].qos == qos]
            hold(downs == sorted(downs), f"the handlers' order at QoS {qos}: {downs}")
        hold(not self.judge.pending[0], "settled, but a message is not acknowledged")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the chance that the client itself takes."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


def lived(seed: int, version: int = 4) -> Life:
    """Live one life; a Fault says what was wrong, and has the log as its notes."""
    with fake_clock() as clock, seeded(seed):
        life = Life(seed, clock, version)
        try:
            life.live()
        except (Exception, Fault) as e:
            e.args = ("\n".join([*life.log[-60:], f"seed {seed}: {type(e).__name__}: {e}"]),)
            raise
    return life


if __name__ == "__main__":
    for number in sys.argv[2:]:  # after the version
        print("\n".join(lived(int(number), int(sys.argv[1])).log))
