"""Short programs: texts of payloads, the first failure, room that is waited for, times."""

import errno
from collections.abc import Callable

import pytest

import peer
from flatmq import MQTTError
from flatmq.every import Every
from unit.both_versions import VersionBench
from unit.fake_link import Clock


@pytest.mark.parametrize(
    ("payload", "text", "json"),
    [(b'{"on": 1}', '{"on": 1}', {"on": 1}), ("é".encode(), "é", None), (b"\xff", None, None)],
)
def test_a_payload_as_text_and_as_json(
    payload: bytes, text: str | None, json: object, make: Callable
) -> None:
    seen: list[object] = []

    def handler(message) -> None:
        for method in (message.text, message.json):
            try:
                seen.append(method())
            except ValueError:  # UnicodeError is one
                seen.append(None)

    bench = make(on_message=handler).online()
    bench.feed(peer.publish(b"t", payload))
    assert seen == [text, json]


def test_three_messages_at_the_start_need_no_loop(make: Callable) -> None:
    bench: VersionBench = make(tx_size=60)
    client = bench.client
    client.start()
    published: list[int | None] = []
    big = bytes(40)

    def broker() -> None:
        if not bench.link.made:
            return
        stream = bench.stream
        for packet in bench.sent():
            if packet.first == 0x10:
                stream.incoming.append(bench.wire(peer.connack()))
            elif packet.first & 0xF6 == 0x32:
                pid = peer.take_apart(packet).pid
                stream.incoming.append(bench.wire(peer.puback(pid)))
                published.append(pid)

    bench.link.on_wait = [broker] * 50
    ids = [client.publish_wait(b"t", big, 1, True) for _ in range(3)]
    assert None not in ids
    assert client.wait(1000)
    assert published == ids


def test_room_that_does_not_come_is_given_up(clock: Clock, make: Callable) -> None:
    client = make(tx_size=60).client
    assert client.publish(b"t", bytes(40), 1)
    began = clock.now
    assert client.publish_wait(b"t", bytes(40), 1, timeout_ms=700) is None
    assert 700 <= clock.now - began < 800
    assert client.pending == 1
    with pytest.raises(ValueError, match="tx_size"):
        client.publish_wait(b"t", bytes(400))


@pytest.mark.parametrize("start", [1000, (1 << 30) - 400])
def test_every(start: int, clock: Clock) -> None:
    clock.now = start
    every = Every(1000)
    assert [every.due(), every.due()] == [True, False]
    clock.now += 999
    assert not every.due()
    clock.now += 1
    assert [every.due(), every.due()] == [True, False]
    clock.now += 4500  # the program was busy: once, and then a whole second later
    assert [every.due(), every.due()] == [True, False]
    clock.now += 999
    assert not every.due()
    clock.now += 1
    assert every.due()


@pytest.mark.parametrize("ms", [0, -1, 268435456, 1.5, "1"])
def test_a_time_of_every_that_is_none(ms: object) -> None:
    with pytest.raises(ValueError, match="ms must be an int from 1 to 268435455, not"):
        Every(ms)  # type: ignore[arg-type]


def refused(bench: VersionBench) -> None:
    bench.greet()
    bench.feed(peer.connack(5))


def unreachable(bench: VersionBench) -> None:
    bench.link.fails = "connect"
    bench.client.start()
    for _ in range(3):
        bench.client.poll()


@pytest.mark.parametrize("fails", [refused, unreachable])
def test_the_first_failure_is_printed(
    fails: Callable, make: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    bench: VersionBench = make(host="broker.example")
    fails(bench)
    said = capsys.readouterr().out
    assert said == f"flatmq: {bench.client.error}; trying again\n"
    if fails is refused:
        assert said.startswith("flatmq: refused: CONNACK: ")
        assert "not authorized" in said.lower()
    else:
        assert said.startswith("flatmq: closed: connect: ")
        assert str(errno.EHOSTUNREACH) in said
    for _ in range(3):
        bench.clock.now += 60000
        bench.client.poll()
    assert capsys.readouterr().out == ""


def test_nothing_is_printed_if_the_application_learns_of_it(
    make: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    unreachable(make(quiet=True))
    bench = make(on_disconnect=lambda c: None).online()
    bench.stream.ended = True
    bench.drain()
    assert bench.client.stats.losses == 1
    bench = make().online()
    bench.client.disconnect(0)
    bench = make()
    bench.link.fails = "connect"
    with pytest.raises(MQTTError, match="closed: connect"):
        bench.client.connect(100)
    assert capsys.readouterr().out == ""
