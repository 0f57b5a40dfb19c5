"""A board and a bridge when one of them, or the line, does not do as it should."""

import itertools
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sizes
from flatmq import stream_uart
from flatmq.frames import CLOSE, DATA, OPEN, SMALL
from flatmq_tools.bridge.conversation import LEAST_ROOM, Conversation
from sizes import spread
from uart.simulation import DOWN, ROOM, TEXT, UP, WAYS, Struck, World
from uart.test_frames_on_a_line import decoded, encoded

HELLO = bytes((1, ROOM >> 8, ROOM & 255))


class Broker:
    """The upstream of a conversation by itself."""

    def __init__(self) -> None:
        self.opens = self.closes = 0
        self.got = b""

    def open(self) -> None:
        self.opens += 1

    def send(self, data: bytes) -> None:
        self.got += data

    def close(self) -> None:
        self.closes += 1


def frame(kind: int, who: int, payload: bytes = b"", seq: int = 0, ack: int = 0) -> bytes:
    return encoded(bytes((kind, who >> 8, who & 255, seq, ack)), payload)


def said(talk: Conversation) -> list[tuple[int, int]]:
    """Kind and connection of the frames that a bridge has sent."""
    found = [(head[0] - SMALL, head[1] << 8 | head[2]) for head, _ in decoded(bytes(talk.out))]
    talk.out.clear()
    return found


def opened(who: int) -> tuple[Broker, Conversation]:
    broker = Broker()
    talk = Conversation(broker)
    talk.receive(frame(OPEN, who, HELLO), 0)
    talk.opened(0)
    assert said(talk) == [(OPEN, who)]
    return broker, talk


def test_a_frame_of_an_old_connection_is_not_for_the_new_one() -> None:
    broker, talk = opened(7)
    talk.receive(frame(OPEN, 8, HELLO), 1)
    talk.opened(1)
    assert (broker.opens, broker.closes) == (2, 1)
    talk.out.clear()
    talk.receive(frame(DATA, 7, b"old"), 1)
    assert broker.got == b""
    assert said(talk) == [(CLOSE, 7)]
    talk.receive(frame(CLOSE, 7), 1)
    assert talk.state == "open"
    talk.receive(frame(DATA, 8, b"new"), 1)
    assert broker.got == b"new"


def test_what_was_on_its_way_to_the_board_on_an_old_connection_is_not_for_the_new_one() -> None:
    with World(is_new=True) as world:
        passed = bytearray()

        def note(data: bytes) -> bytes:
            passed.extend(data)
            return data

        world.line.harm[DOWN] = note
        world.broker.send(b"once")
        world.until("the message", lambda: world.got == [b"once"] and not world.broker.outgoing)
        old = bytes(passed[passed.index(b"\xfao") :])  # from OPENED on
        world.line.hang_up()
        world.until("the loss", lambda: world.client.stats.losses == 1)
        world.until("the next one", lambda: world.client.connected)
        world.until("quiet", lambda: not world.client.poll(10))
        world.line.ring += old
        world.until("all of it", lambda: not world.line.ring)
        world.until("quiet", lambda: not world.client.poll(10))
        assert (world.client.stats.losses, world.got) == (1, [b"once"])


def test_a_connection_that_this_bridge_did_not_make_is_ended() -> None:
    talk = Conversation(Broker())
    talk.receive(frame(DATA, 5, b"x"), 0)
    assert said(talk) == [(CLOSE, 5)]


def test_an_echo_of_what_it_sent_is_nothing_to_a_bridge() -> None:
    """As from a board that is at its prompt, or a line that is looped back."""
    broker, talk = opened(7)
    talk.send(b"MQTT", 0)
    echo = bytes(talk.out)
    talk.out.clear()
    talk.receive(echo, 0)
    assert (talk.state, bytes(talk.out), broker.got) == ("open", b"", b"")


@pytest.mark.parametrize(
    "hello", [b"", b"\x01", b"\x02\x01\x00", bytes((1, 0, LEAST_ROOM - 1)), HELLO + b"?"]
)
def test_a_board_that_is_not_understood_is_refused(hello: bytes) -> None:
    broker = Broker()
    talk = Conversation(broker)
    talk.receive(frame(OPEN, 7, hello), 0)
    assert said(talk) == [(CLOSE, 7)]
    assert not broker.opens
    assert b"another version" in talk.text


@pytest.mark.parametrize("room", [LEAST_ROOM, 200, 256, 512, 2000])
def test_a_board_that_does_not_read_gets_no_more_than_it_takes(room: int) -> None:
    """Whatever the bytes are, and though the bridge asks whether it is there."""
    broker = Broker()
    talk = Conversation(broker)
    talk.receive(frame(OPEN, 7, bytes((1, room >> 8, room & 255))), 0)
    talk.opened(0)
    talk.send(bytes(5000), 0)
    talk.receive(frame(DATA, 7, b"1", 0), 0)
    talk.receive(frame(DATA, 7, b"2", 1), 0)
    ended = 0.0
    while talk.due is not None:
        ended = talk.due if talk.state == "open" else ended
        talk.tick(talk.due)
    assert talk.state == "closed"
    assert 50 < ended < 100
    assert LEAST_ROOM - 100 < len(talk.out) <= room


def test_a_broker_that_does_not_read_has_the_board_wait() -> None:
    broker, talk = opened(7)
    talk.hold = True
    talk.receive(frame(DATA, 7, b"1", 0) + frame(DATA, 7, b"2", 1), 0)
    assert broker.got == b"12"
    assert not talk.out
    talk.hold = False
    talk.tick(0)
    ((head, _),) = decoded(bytes(talk.out))
    assert head[4] == 2


@pytest.mark.parametrize(("room", "patience"), [(127, 300), (65536, 300), (256, 0)])
def test_limits_of_a_link(room: int, patience: int) -> None:
    class Nothing(stream_uart.Link):
        def _attach(self, uart: object) -> None:
            pass

    with pytest.raises(ValueError, match=r"room|patience"):
        Nothing(None, room, patience)


def test_a_board_connects_at_once_however_long_it_has_been_up() -> None:
    world = World(is_new=True)
    world.line.now += 7 * 24 * 3600 * 1000  # the board's clock is in its upper half
    began = world.line.now
    with world:
        world.until("the bridge", lambda: world.client.connected, seconds=10)
        assert world.line.now - began < 100


def test_two_frames_may_be_unacknowledged() -> None:
    """The line is not idle while an acknowledgement is on its way."""
    with World(keepalive=0) as world:
        world.until("silence", lambda: world.link._seq == world.link._acked)
        world.line.delay[UP] = 1000
        assert [world.link.write(memoryview(b"\xc0\0"), 0, 2) for _ in range(3)] == [2, 2, None]


def test_a_bridge_that_is_gone_is_noticed() -> None:
    """Within ten seconds of the next message, whatever the keep alive."""
    with World(keepalive=0) as world:
        world.until("the acknowledgement", lambda: not world.client.pending)
        world.line.harm = {UP: lambda data: b"", DOWN: lambda data: b""}
        world.client.publish(b"t", b"x", 1)
        began = world.line.now
        world.until("the loss", lambda: not world.client.connected)
        assert world.line.now - began <= 10_000


def test_noise_without_end_does_not_keep_poll_from_returning() -> None:
    """A board decodes more slowly than a fast line, or a terminal that pastes, sends bytes."""
    with World() as world:
        quiet = world.line.now + 10_000

        def babble(buf: bytearray) -> int | None:
            if world.line.now >= quiet:
                return None
            world.line.now += 5
            buf[:] = b"~" * len(buf)
            return len(buf)

        with mock.patch.object(world.link, "_read", babble):
            for ms in (0, 20, 0, 20):
                began = world.line.now
                world.client.publish(b"t", b"x")
                world.client.poll(ms)
                assert world.line.now - began < 500
        world.broker.send(b"heard")
        world.until("the message", lambda: world.got == [b"heard"])


def test_a_board_that_waits_for_its_next_try_sleeps() -> None:
    """Though something was under way when the connection ended."""
    with World(retry_ms=60_000) as world:
        world.line.harm[DOWN] = lambda data: b""
        world.client.publish(b"t", b"x", 1)
        world.client.poll(0)
        world.line.harm[DOWN] = bytes
        world.line.restart()
        world.until("the loss", lambda: not world.client.connected)
        with mock.patch.object(world.line, "sleep", wraps=world.line.sleep) as sleep:
            world.client.poll(20_000)
        assert sleep.call_count < 100


def test_a_bridge_that_began_anew_says_so() -> None:
    """Though the board has nothing to send, from which it would learn it."""
    with World(keepalive=0) as world:
        world.until("quiet", lambda: not world.client.poll(1000))
        world.line.restart()
        world.client.poll(0)
        assert world.client.stats.losses == 1
        world.until("the bridge", lambda: world.client.connected)


def burst(world: World) -> None:
    """More acknowledgements come in at once than the client can answer before it writes.

    What it waits for, to write on, may lie behind what it cannot take in.
    """
    client, broker = world.client, world.broker
    for n in range(60):
        assert client.publish(b"t", b"%d" % n, 2)
    for n in range(4):
        broker.send(b"%d" % n)
    world.until("the end", lambda: not client.pending and not broker.outgoing)
    assert broker.taken == [(b"t", 2, b"%d" % n) for n in range(60)]
    assert world.got == [b"%d" % n for n in range(4)]


@spread("delay", (0, 1, 20), room=(256, 1024))
def test_a_burst_both_ways_does_not_stop_the_line(delay: int, room: int) -> None:
    with World(room, keepalive=0, inflight=64, tx_size=4096) as world:
        world.line.delay = {UP: delay, DOWN: delay}
        began = world.line.now
        burst(world)
        assert world.client.stats.losses == world.link.errors == world.line.bridge.bad == 0
        assert world.line.printed == b""
        assert world.line.now - began < 5000
        assert world.line.fullest <= room


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_loss_in_a_burst_is_noticed_within_seconds(direction: str) -> None:
    """Wherever it is, and though no keep alive looks for it."""
    for at in itertools.count(0, 11 if sizes.whole() else 67):
        harm = Struck("lose a byte", at)
        with World(keepalive=0, inflight=64, tx_size=4096) as world:
            world.line.delay = {UP: 2, DOWN: 2}
            world.line.harm[direction] = harm
            began = world.line.now
            burst(world)
            assert world.line.now - began < 10_000
        if not harm.done:
            break
    assert at > 1000


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_reset_of_the_board_at_every_byte(direction: str) -> None:
    """The next life has a connection of its own, and nothing of the former one gets into it."""
    for at in itertools.count(0, 1 if sizes.whole() else 11):
        harm = Struck("tear", at)
        with World(is_new=True, keepalive=0, inflight=64, tx_size=4096) as world:
            world.line.harm[direction] = harm
            client, broker = world.client, world.broker
            for n in range(60):
                assert client.publish(b"t", b"%d" % n, 2)
            for n in range(4):
                broker.send(b"%d" % n)
            world.until("the end", lambda h=harm, c=client: h.done or not c.pending)
            world.line.harm[direction] = bytes
            taken = len(broker.taken)
            world.got.clear()
            world.boot()
            world.client.publish(b"t", b"second life", 2)
            world.until("the end", lambda w=world: not w.client.pending and not w.broker.outgoing)
            assert broker.taken[taken:] == [(b"t", 2, b"second life")]
            assert set(world.got) <= {b"%d" % n for n in range(4)}
            assert world.client.stats.losses == 0
        if not harm.done:
            break
    assert at > 1000


payloads = st.binary(max_size=70)
steps = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 2), payloads),
    st.tuples(st.just("send"), payloads),
    st.tuples(st.just("poll"), st.integers(0, 400)),
    st.tuples(st.just("harm"), st.sampled_from([UP, DOWN]), st.sampled_from(WAYS),
              st.integers(0, 150)),
    st.tuples(st.just("noise"), st.sampled_from([UP, DOWN]), st.binary(max_size=20)),
    st.tuples(st.just("takes"), st.integers(0, 40)),
    st.tuples(st.just("delay"), st.sampled_from([UP, DOWN]), st.integers(0, 50)),
    st.tuples(st.sampled_from(["restart", "hang up", "print"])),
)  # fmt: skip


@settings(max_examples=500 if sizes.whole() else 150)
@given(st.lists(steps, min_size=5, max_size=40))
def test_nothing_is_lost_or_doubled_whatever_happens(todo: list) -> None:
    with World(inflight=16, tx_size=2048) as world:
        client, line, broker = world.client, world.line, world.broker
        sent: list = []
        wanted: list[bytes] = []
        for i, (what, *how) in enumerate(todo):
            match what, how:
                case "publish", [qos, payload]:
                    message = (b"t", qos, b"%d " % i + payload)
                    if client.publish(b"t", message[2], qos) is not None:
                        sent.append(message)
                case "send", [payload] if len(broker.outgoing) < 4:
                    wanted.append(b"%d " % i + payload)
                    broker.send(wanted[-1])
                case "poll", [ms]:
                    client.poll(ms)
                case "harm", [direction, way, at]:
                    line.harm[direction] = Struck(way, at)
                case "noise", [direction, data]:
                    if direction == UP:
                        line.to_bridge(data)
                    else:
                        line.ring += data
                case "takes", [n]:
                    line.takes = n
                case "delay", [direction, ms]:
                    line.delay[direction] = ms
                case "restart", _:
                    line.restart()
                case "hang up", _:
                    line.hang_up()
                case "print", _:
                    line.to_bridge(TEXT)
        line.takes = 1 << 20
        line.harm = {UP: bytes, DOWN: bytes}
        world.until("the end", lambda: not client.pending and not broker.outgoing)
        assert world.got == wanted
        assert [m for m in broker.taken if m[1] == 2] == [m for m in sent if m[1] == 2]
        firsts = list(dict.fromkeys(m for m in broker.taken if m[1] == 1))
        assert firsts == [m for m in sent if m[1] == 1]
