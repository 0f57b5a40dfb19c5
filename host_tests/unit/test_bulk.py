"""Take messages in bulk, hold acknowledgements back, and handle what nobody subscribed to."""

import pytest

import peer
from flatmq import Client
from unit.fake_link import Bench, Clock


class Taker:
    """Takes whole PUBLISH packets at QoS 1 in bulk, and queues their acknowledgements."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.took: list[bytes] = []
        self.offered: list[bytes] = []
        client.bulk = self

    def __call__(self, buf: bytearray, at: int, end: int) -> int:
        data = bytes(buf[at:end])
        self.offered.append(data)
        packets, _ = peer.split(data)
        for packet in packets:
            if packet.first != 0x32:
                break
            message = peer.take_apart(packet)
            assert self.client.queue(peer.puback(message.pid))
            self.took.append(message.payload)
            at += 2 + len(packet.body)
        return at


def test_bulk_is_offered_what_begins_with_a_packet(clock: Clock) -> None:
    seen: list[bytes] = []
    bench = Bench(clock, on_message=lambda m: seen.append(m.payload))
    taker = Taker(bench.client)
    bench.online()
    data = [peer.publish(b"t", b"%d" % i, 1 + (i == 2), i + 1) for i in range(5)]
    bench.feed(*data[:4], data[4][:3])
    bench.feed(data[4][3:])
    assert (taker.took, seen) == ([b"0", b"1", b"3", b"4"], [b"2"])
    assert [(p.first, p.pid) for p in bench.sent()] == [
        (0x40, 1), (0x40, 2), (0x50, 3), (0x40, 4), (0x40, 5),
    ]  # fmt: skip
    assert taker.offered == [b"".join(data[:4]) + data[4][:3], data[3] + data[4][:3], data[4]]


@pytest.mark.parametrize("hook", ["bulk", "gate"])
def test_what_a_hook_raises_comes_out_of_poll_and_it_is_asked_again(
    hook: str, clock: Clock
) -> None:
    """Nothing is acknowledged before."""
    bench = Bench(clock).online()
    full = False

    def bulk(buf: bytearray, at: int, end: int) -> int:
        if full:
            raise OSError(28, "no space")
        return at

    def gate(same: bool | None) -> None:
        bulk(bytearray(), 0, 0)

    setattr(bench.client, hook, bulk if hook == "bulk" else gate)
    bench.lose()
    bench.online()
    bench.sent()
    full = True
    bench.stream.incoming.append(peer.publish(b"t", b"", 1, 1))
    for _ in range(3):
        with pytest.raises(OSError, match="no space"):
            bench.client.poll()
        assert bench.sent() == []
    full = False
    bench.drain()
    bench.client.poll()
    assert [p.pid for p in bench.sent()] == [1]
    assert bench.client.connected


def test_the_gate_holds_answers_and_nothing_else(clock: Clock) -> None:
    bench = Bench(clock)
    asked: list[bool | None] = []
    open_ = False

    def gate(same: bool | None) -> bool | None:
        asked.append(same)
        return open_ if same is None else None

    bench.client.gate = gate
    bench.online()
    assert asked == [False]
    bench.feed(peer.publish(b"t", b"", 1, 1), peer.publish(b"t", b"", 2, 2))
    bench.client.publish(b"out", b"x")
    bench.client.poll()
    assert [p.first for p in bench.sent()] == [0x30]
    assert asked[-1] is None
    open_ = True
    bench.client.poll()
    assert [(p.first, p.pid) for p in bench.sent()] == [(0x40, 1), (0x50, 2)]


def test_held_answers_go_with_their_connection(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False)
    asked: list[bool | None] = []
    bench.client.gate = lambda same: bool(asked.append(same))
    bench.online(present=True)
    bench.feed(peer.publish(b"t", b"", 1, 1))
    bench.lose()
    bench.online(present=True)
    bench.client.gate = None
    bench.client.poll()
    assert bench.sent() == []
    assert [same for same in asked if same is not None] == [True, True]


def test_queue_takes_all_or_nothing(clock: Clock) -> None:
    bench = Bench(clock, answers=64).online()
    client = bench.client
    one = peer.puback(1)
    assert client.queue(one * 15)
    assert not client.queue(one * 2)
    assert client.queue(one)
    assert not client.queue(b"\0")
    assert client.queue(b"")
    client.flush()
    assert len(bench.sent()) == 16
