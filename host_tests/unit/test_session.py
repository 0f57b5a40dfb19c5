"""Messages kept and sent again, against a simple model and a broker that keeps count.

The client is on a link without a network. The model is a list of messages; what it expects of
each connection is derived from that list alone.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import peer
import sizes
from unit.both_versions import VersionBench, at_4
from unit.fake_link import fake_clock

TOPIC = b"t"
FIRST_IDS = st.sampled_from([0, 65_530, 65_533, 65_535])
PLENTY = 4096  # bytes: more than there is to write at a time
PIECE = st.one_of(st.integers(1, 12), st.integers(1, 300))
ANSWERS = 2  # that wait before the test makes room for more
PUBACK, PUBREC, PUBCOMP = 0x40, 0x50, 0x70
ACKS = {PUBACK: peer.puback, PUBREC: peer.pubrec, PUBCOMP: peer.pubcomp}


class Driver:
    """The client, and a broker's end of its connection that takes as much as the test says."""

    def __init__(self, version: int, tx_size: int, inflight: int, last_id: int) -> None:
        self.stack = ExitStack()
        self.bench = VersionBench(
            self.stack.enter_context(fake_clock()),
            version,
            tx_size=tx_size,
            inflight=inflight,
            clean_session=False,
            keepalive=0,
            give_up=0,  # the model knows of no message that is set aside
            retry_ms=1,
            retry_max_ms=1,
        )
        self.client = self.bench.client
        self.client.last_id = last_id

    @property
    def wire(self) -> bytearray:
        return self.bench.stream.written

    def begin(self) -> None:
        """Have the client connect."""
        self.bench.greet()
        self.bench.stream.room = 0

    def write(self, room: int) -> None:
        """Let the client write at most `room` bytes."""
        self.bench.stream.room = room
        self.client.flush()
        self.bench.stream.room = 0

    def acknowledge(self, pid: int, wait: int) -> bool:
        """Acknowledge something; return whether the client expected that."""
        strays = self.client.stats.strays
        self.bench.feed(ACKS[wait](pid))
        return self.client.stats.strays == strays

    def lose(self) -> None:
        # Not by the peer: after that, messages go one at a time, which test_wedge.py looks at.
        self.bench.stream.raises["read"] = OSError(errno.EHOSTUNREACH, "read")
        self.bench.drain()
        assert not self.client.connected


@dataclass(eq=False)
class Message:
    """An accepted message, and what became of it."""

    qos: int
    retain: bool
    payload: bytes
    pid: int
    wait: int
    touched: bool = False  # some of it was written
    begun: bool = False  # the same, on an earlier connection
    written: bool = False  # all of it, on this connection
    settled: bool = False
    renewed: bool = False  # a broker forgot it
    received: int = 0  # whole copies that the broker has seen

    @property
    def open(self) -> bool:
        """Return whether it is still to be sent, or waits for an acknowledgement."""
        return not self.settled


class SessionRules(RuleBasedStateMachine):
    """The rules and the model; `driver` is what is tested."""

    version: int

    @initialize(
        tx_size=st.sampled_from([400, 150, 64, 24]),
        inflight=st.sampled_from([5, 2, 1]),
        last_id=FIRST_IDS,
    )
    def make(self, tx_size: int, inflight: int, last_id: int) -> None:
        self.driver = Driver(self.version, tx_size, inflight, last_id)
        self.fixed = len(TOPIC) + (2 if self.version == 4 else 3)  # of PUBLISH at QoS 0
        self.tx_size = tx_size
        self.inflight = inflight
        self.last_id = last_id
        self.serial = 0
        self.messages: list[Message] = []  # open ones, in the order of publishing
        self.online = False
        self.same = True
        self.answers: deque[bytes] = deque()  # what is to be answered on this connection
        self.to_send: deque[Message] = deque()  # PUBLISH packets expected on it, in order
        self.parsed = 0
        # Identifiers of QoS 2 that the broker has, and those of which it got the release.
        self.held: set[int] = set()
        self.released: set[int] = set()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        try:
            self._come_to_rest()
        finally:
            self.driver.stack.close()

    # Publishing

    @rule(qos=st.integers(0, 2), retain=st.booleans(), fill=st.just(0) | st.integers(0, 130))
    def publish(self, qos: int, retain: bool, fill: int) -> None:
        self._publish(qos, retain, fill)

    @rule(qos=st.integers(0, 2))
    def publish_to_the_brim(self, qos: int) -> None:
        """The largest message for which there is room now."""
        if qos and sum(m.qos > 0 for m in self.messages) >= self.inflight:
            return
        for fill in range(min(self.tx_size - 12, 128), -1, -1):
            if self._publish(qos, False, fill):
                break

    @precondition(lambda self: any(m.qos for m in self.messages))
    @rule(back=st.integers(1, 2))
    def identifiers_come_round(self, back: int) -> None:
        """As if so many had been given out that the next is one in flight."""
        pid = next(m.pid for m in self.messages if m.qos)
        self.last_id = self.driver.client.last_id = (pid - back) % 65_536

    def _size(self, m: Message) -> int:
        n = self.fixed + (2 if m.qos else 0) + len(m.payload)
        return 1 + (1 if n < 128 else 2) + n

    def _publish(self, qos: int, retain: bool, fill: int) -> bool:
        self.serial += 1
        payload = b"%d" % self.serial + b"." * fill
        message = Message(qos, retain, payload, 0, {0: 0, 1: PUBACK, 2: PUBREC}[qos])
        if (size := self._size(message)) > self.tx_size:
            with pytest.raises(ValueError, match=f"{self.tx_size} bytes, not {size}"):
                self.driver.client.publish(TOPIC, payload, qos, retain)
            return False
        pid = self.driver.client.publish(TOPIC, payload, qos, retain)
        waiting = [m for m in self.messages if m.qos and m.open]
        if pid is None:
            assert self.messages, "no room in an empty session"
            return False
        if qos:
            assert len(waiting) < self.inflight
            wanted = self.last_id % 65_535 + 1
            while any(m.pid == wanted for m in waiting):
                wanted = wanted % 65_535 + 1
            assert pid == wanted
            self.last_id = pid
        else:
            assert pid == 0
        message.pid = pid
        self.messages.append(message)
        self.to_send.append(message)
        return True

    # Connections

    @precondition(lambda self: not self.online)
    @rule(same=st.booleans())
    def connect(self, same: bool) -> None:
        self._connect(same)

    def _connect(self, same: bool) -> None:
        self.driver.begin()
        self.parsed = len(self.driver.wire)
        self.online = True
        self.same = same
        if not same:
            self.held.clear()
            self.released.clear()
            for m in self.messages:
                m.renewed = True
                if m.wait == PUBCOMP:
                    m.wait = PUBREC
        self.driver.bench.feed(peer.connack(present=same))
        assert self.driver.client.connected
        self._read()

    @precondition(lambda self: self.online)
    @rule()
    def lose(self) -> None:
        self._read()
        self.driver.lose()
        self.online = False
        self.answers.clear()
        self.to_send = deque(self.messages)
        for m in self.messages:
            m.begun = m.touched
            m.written = False

    @precondition(lambda self: not self.online)
    @rule(room=PIECE)
    def lose_while_greeting(self, room: int) -> None:
        """The connection ends before it is accepted: nothing must be sent on it."""
        self.driver.begin()
        hello = len(self.driver.wire)
        self.driver.write(room)
        assert len(self.driver.wire) == hello
        self.driver.lose()

    @precondition(lambda self: self.online)
    @rule(room=PIECE | st.just(PLENTY))
    def write(self, room: int) -> None:
        self._write(room)

    def _write(self, room: int) -> None:
        before = len(self.driver.wire)
        self.driver.write(room)
        assert len(self.driver.wire) - before <= room
        self._read()

    # What the broker sends

    @precondition(lambda self: self.online and any(m.written for m in self.messages))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """Any message that the broker has got, in any order."""
        there = [m for m in self.messages if self._answerable(m)]
        if there:
            m = data.draw(st.just(there[0]) | st.sampled_from(there), "message")
            self._acknowledge(m, m.wait)

    def _answerable(self, m: Message) -> bool:
        """Return whether the broker has got what it is to acknowledge."""
        return m.qos > 0 and m.written and (m.wait != PUBCOMP or m.pid in self.released)

    def _acknowledge(self, m: Message, wait: int) -> None:
        self._make_room_to_answer()
        assert self.driver.acknowledge(m.pid, wait)
        if wait == PUBREC:
            self.answers.append(peer.pubrel(m.pid))
            m.wait = PUBCOMP
            return
        assert m.received, "settled, and never sent"
        m.settled = True
        self.messages.remove(m)

    @precondition(lambda self: self.online and any(m.wait == PUBCOMP for m in self.messages))
    @rule()
    def second_pubrec(self) -> None:
        """PUBREC comes again: it is answered again."""
        m = next(m for m in self.messages if m.wait == PUBCOMP)
        self._make_room_to_answer()
        assert self.driver.acknowledge(m.pid, PUBREC)
        self.answers.append(peer.pubrel(m.pid))

    @precondition(lambda self: self.online)
    @rule(pid=st.integers(1, 65_535), wait=st.sampled_from([PUBACK, PUBREC, PUBCOMP]))
    def unknown_acknowledgement(self, pid: int, wait: int) -> None:
        if all(m.pid != pid for m in self.messages):
            self._make_room_to_answer()
            assert not self.driver.acknowledge(pid, wait)

    @precondition(lambda self: self.online and any(m.qos for m in self.messages))
    @rule(data=st.data())
    def wrong_acknowledgement(self, data: st.DataObject) -> None:
        """One of another kind than the message waits for changes nothing."""
        m = data.draw(st.sampled_from([m for m in self.messages if m.qos]), "message")
        allowed = {PUBCOMP: {PUBREC}, PUBREC: {PUBACK}}  # PUBACK: a broker without QoS 2
        self._make_room_to_answer()
        wrong = {PUBACK, PUBREC, PUBCOMP} - {m.wait} - allowed.get(m.wait, set())
        assert not self.driver.acknowledge(m.pid, data.draw(st.sampled_from(sorted(wrong))))

    @precondition(lambda self: self.online)
    @rule(pid=st.integers(1, 65_535))
    def answer(self, pid: int) -> None:
        """A message comes in, and is answered."""
        self._make_room_to_answer()
        self.driver.bench.feed(peer.publish(TOPIC, b"", 1, pid))
        self.answers.append(peer.puback(pid))

    def _make_room_to_answer(self) -> None:
        """Have some answers leave: without room for another one, reading waits."""
        if len(self.answers) >= ANSWERS:
            self._write(PLENTY)

    # What the broker reads

    def _read(self) -> None:
        """Check all whole packets that were written since the last time."""
        data = bytes(self.driver.wire[self.parsed :])
        packets, rest = peer.split(data)
        self.parsed = len(self.driver.wire) - len(rest)
        if self.version == 5:
            packets = [at_4(packet) for packet in packets]
        for packet in packets:
            if packet.first >> 4 == 3:
                self._read_publish(peer.take_apart(packet))
                continue
            raw = peer.packet(*packet)
            if self.answers and raw == self.answers[0]:
                self.answers.popleft()
            else:
                self._read_pubrel_again(packet)
            if raw[0] == 0x62:
                mine = [m for m in self.messages if m.pid == packet.pid]
                assert not mine or packet.pid in self.held or packet.pid in self.released
                if packet.pid in self.held:
                    self.held.discard(packet.pid)
                    self.released.add(packet.pid)
        if rest and rest[0] >> 4 == 3:
            m = self._next_to_send()
            assert m is not None
            m.touched = True

    def _next_to_send(self) -> Message | None:
        for m in self.to_send:
            if not (m.settled or m.wait == PUBCOMP):
                return m
        return None

    def _read_pubrel_again(self, packet: peer.Packet) -> None:
        """After a reconnect, in the place of a message that is past PUBREC."""
        while self.to_send and self.to_send[0].settled:
            self.to_send.popleft()
        assert self.to_send, f"no answer to anything: {packet}"
        m = self.to_send.popleft()
        assert packet == (0x62, m.pid.to_bytes(2, "big"))
        assert (m.wait, self.same) == (PUBCOMP, True)
        m.written = True

    def _read_publish(self, packet: peer.Publish) -> None:
        while True:
            assert self.to_send, f"not to be sent: {packet}"
            m = self.to_send.popleft()
            if m.payload == packet.payload:
                break
            assert m.settled, f"{m} was left out, or {packet} is out of order"
        again = m.begun and m.qos > 0 and self.same
        assert packet == (again, m.qos, m.retain, TOPIC, m.pid, m.payload)
        m.touched = m.written = True
        if not m.qos:
            m.received += 1
            m.settled = True
            self.messages.remove(m)
            assert m.received == 1
            return
        if m.qos == 2:
            if m.pid in self.held:
                assert packet.dup
            else:
                m.received += 1
                self.held.add(m.pid)
                self.released.discard(m.pid)
            if not m.renewed:
                assert m.received == 1, "exactly once"
        else:
            m.received += 1

    # What holds at any time

    @invariant()
    def pending_is_what_is_open(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.client.pending == len(self.messages)

    def _come_to_rest(self) -> None:
        """A broker that acknowledges everything gets everything, and the ring is empty then."""
        if not self.online:
            self._connect(True)
        for _ in range(1000):
            self._write(PLENTY)
            there = [m for m in self.messages if self._answerable(m)]
            for m in there:
                self._acknowledge(m, m.wait)
            if not there and not self.messages:
                break
        assert not self.messages, "something is never sent"
        self._write(PLENTY)
        assert not self.answers
        assert not any(m.qos and m.open for m in self.to_send)
        # No room is lost: one message of exactly tx_size fits, at each QoS.
        for qos in (0, 1, 2):
            payload = self.tx_size - 1 - self.fixed - (2 if qos else 0)
            payload -= 1 if self.tx_size - 2 < 128 else 2
            assert self._publish(qos, False, payload - len(b"%d" % (self.serial + 1)))
            assert self._size(self.messages[-1]) == self.tx_size
            self._write(PLENTY)
            while self.messages:
                self._acknowledge(self.messages[0], self.messages[0].wait)
                self._write(PLENTY)


def test_against_the_model() -> None:
    """MQTT 5; host_tests/model has 3.1.1."""

    class Rules(SessionRules):
        version = 5

    examples = settings().max_examples
    if examples <= 1000:  # not a search
        examples = 800 if sizes.whole() else 120
    run_state_machine_as_test(
        Rules, settings=settings(max_examples=examples, stateful_step_count=60)
    )


def test_a_message_past_pubrec_is_not_lost_when_a_broker_forgets_and_the_next_remembers(
    make: Callable,
) -> None:
    bench = make(clean_session=False).online()
    pid = bench.client.publish(TOPIC, b"X", 2)
    bench.drain()
    bench.feed(peer.pubrec(pid))
    bench.outage()
    bench.greet()
    bench.stream.room = 0
    bench.feed(peer.connack())
    bench.outage()  # before the message goes again
    bench.online(present=True)
    bench.drain()
    (packet,) = bench.published()
    assert packet.payload == b"X", "not its release, of which the broker knows nothing"
