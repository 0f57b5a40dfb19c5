"""Logs over the broker: pieces of what is printed, while somebody listens."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import peer
from flatmq import log, stream_uart
from flatmq.log import Log
from flatmq_tools.remote_logs import Printed
from packets import build
from packets.properties import Id, properties
from unit.both_versions import VersionBench
from unit.fake_link import Clock
from unit.short import Short

TOPIC = b"dev/pico-1/log"


class Bench:
    """A board that prints, and who listens to it."""

    def __init__(self, make: Callable, size: int = 64, **options: Any) -> None:
        self.bench: VersionBench = make(**options)
        self.log = Log(self.bench.client, TOPIC, size)
        self.bench.online()
        self.bench.client.flush()
        (subscribe,) = self.bench.sent()
        self.bench.feed(peer.suback(int.from_bytes(subscribe.body[:2], "big"), 0))
        self.printed = Printed()

    def listen(self, seconds: bytes = b"30", retain: bool = False) -> None:
        self.bench.feed(peer.publish(TOPIC + b"/listen", seconds, retain=retain))

    def turn(self, ms: int = 200) -> str:
        """Let time pass; return what the listener shows."""
        self.bench.clock.now += ms
        self.log.poll()
        self.bench.client.flush()
        pieces = [p for p in self.bench.published() if p.topic == TOPIC]
        assert all(p.qos == 0 and not p.retain for p in pieces)
        return "".join(self.printed.text(p.payload) for p in pieces)


@pytest.fixture
def b(make: Callable) -> Bench:
    return Bench(make)


def test_nothing_leaves_until_somebody_listens(b: Bench) -> None:
    b.log.write(b"before\n")
    assert b.turn() == ""
    b.listen()
    assert b.turn() == "before\n"
    b.log.write(b"now")
    b.log.write(b"\r\n")
    assert b.turn() == "now\n"
    assert b.turn() == ""


def test_it_stops_by_itself_unless_it_is_asked_again(b: Bench) -> None:
    b.listen(b"5")
    b.turn(3000)
    b.listen(b"5")
    b.turn(3000)
    b.log.write(b"still there\n")
    assert b.turn() == "still there\n"
    b.turn(2000)
    b.log.write(b"alone\n")
    assert b.turn() == ""
    b.listen(b"1")
    assert b.turn() == "alone\n"


@pytest.mark.parametrize("seconds", [b"", b"0", b"-1", b"3601", b"9" * 99, b"x", b"\xff"])
def test_what_is_no_time_is_ignored(seconds: bytes, b: Bench) -> None:
    b.log.write(b"x")
    b.listen(seconds)
    assert b.turn() == ""


def test_a_retained_message_is_ignored(b: Bench) -> None:
    b.log.write(b"x")
    b.listen(retain=True)
    assert b.turn() == ""


def test_the_newest_is_kept_and_what_is_missing_is_counted(b: Bench) -> None:
    b.listen()
    b.log.write(b"first\n")
    assert b.turn() == "first\n"
    for i in range(20):
        b.log.write(b"line %02d\n" % i)
    text = b.turn()
    assert text.startswith("[96 bytes are missing]\n")  # 160 bytes were printed
    assert text.endswith("line 18\nline 19\n")
    b.log.write(bytes(range(48, 58)) * 30)
    assert b.turn() == "[236 bytes are missing]\n" + ("0123456789" * 7)[-64:]


def test_a_lost_piece_is_counted(b: Bench) -> None:
    b.listen()
    for text in (b"one\n", b"two\n"):
        b.log.write(text)
        b.bench.clock.now += 200
        b.log.poll()
        b.bench.client.flush()
    pieces = b.bench.published()
    assert b.printed.text(pieces[0].payload) == "one\n"
    b.log.write(b"three\n")
    assert b.turn() == "[4 bytes are missing]\nthree\n"


def test_a_board_that_was_reset_is_named(make: Callable) -> None:
    printed = Printed()
    assert printed.text(b"0000001000 old\n") == "old\n"
    assert printed.text(b"0000000000 new\n") == "[the board was reset]\nnew\n"
    assert printed.text(b"1073741820 ") == "[the board was reset]\n"
    assert printed.text(b"1073741820 four") == "four"
    assert printed.text(b"0000000000 over the wrap\n") == "over the wrap\n"


@pytest.mark.parametrize("payload", [b"", b"x", b"000000000 x", b"\xff" * 20])
def test_what_is_no_piece_is_shown_as_that(payload: bytes) -> None:
    assert Printed().text(payload).startswith("[not a piece of a log: ")


def test_a_piece_moves_no_cursor() -> None:
    assert Printed().text(b"0000000000 \x1b[2J\r\n\xff\tx") == "?[2J\n\ufffd    x"


def test_at_most_five_pieces_a_second(make: Callable) -> None:
    """A print for each packet that leaves, as of a debugging link, makes no storm."""
    b = Bench(make)
    b.listen()
    pieces = 0
    for _ in range(100):
        b.log.write(b"sent\n")
        pieces += b.turn(10) != ""
    assert 4 <= pieces <= 6


def test_offline_it_waits(b: Bench) -> None:
    b.listen(b"3600")
    b.bench.outage()
    b.log.write(b"offline\n")
    b.bench.clock.now += 1000
    b.log.poll()
    assert b.bench.client.pending == 0
    b.bench.online()
    b.bench.client.flush()
    b.bench.sent()
    assert b.turn() == "offline\n"


def test_a_broker_of_small_packets_gets_what_fits(clock: Clock) -> None:
    """Bytes that do not fit are missing, like those that were printed too fast."""
    b = Bench(partial(VersionBench, clock, 5), 512)
    b.listen()
    b.bench.outage()
    b.bench.greet()
    b.bench.feed_bytes(build.connack(0, 0, properties([(Id.MAXIMUM_PACKET_SIZE, 120)])))
    b.bench.client.flush()
    b.bench.sent()
    b.log.write(b"first\n")
    assert b.turn() == "first\n"
    for _ in range(3):
        b.log.write(b"too much " * 50 + b"and the end\n")
        text = b.turn()
        assert " bytes are missing]\n" in text
        assert text.endswith("too much and the end\n")


@pytest.mark.parametrize("size", [63, 4097, 1024])
def test_a_size_that_does_not_fit_is_an_error(size: int, make: Callable) -> None:
    with pytest.raises(ValueError, match="size must be 64 to"):
        Log(make(tx_size=1024).client, TOPIC, size)


def test_the_largest_piece_fits(make: Callable) -> None:
    with pytest.raises(ValueError, match="size must be 64 to") as error:
        Log(make(tx_size=200).client, TOPIC, 4096)
    most = int(str(error.value).split(",")[0].rpartition(" ")[2])
    b = Bench(make, most, tx_size=200)
    b.listen()
    b.log.write(b"x" * most)
    assert b.turn() == "x" * most


def test_a_link_that_is_the_terminal_is_refused(make: Callable) -> None:
    client = make().client
    client.link = object.__new__(stream_uart.USB)
    with pytest.raises(ValueError, match="link must not be the terminal"):
        Log(client, TOPIC)


def test_another_user_of_the_terminal_keeps_it(
    make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot: list[object] = [None]

    def dupterm(stream: object) -> object:
        slot[0], before = stream, slot[0]
        return before

    monkeypatch.setattr(log, "os", SimpleNamespace(dupterm=dupterm))
    first = Log(make().client, TOPIC)
    again = Log(make().client, TOPIC)  # the program was started again at the prompt
    assert slot == [again]
    assert first.readinto(bytearray(1)) is None
    assert again.ioctl(3, 1) == 0
    slot[0] = webrepl = object()
    with pytest.raises(OSError, match=r"os\.dupterm is in use"):
        Log(make().client, TOPIC)
    assert slot == [webrepl]


def test_without_memory_it_stays_the_terminal(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.dupterm` lets go of a stream that raises; what is missing is counted."""
    b.listen()
    b.log.write(b"before\n")
    assert b.turn() == "before\n"
    Short(monkeypatch, b.log, "_fill")
    assert b.log.write(b"x" * 100) == 100
    b.log.write(b"after\n")
    shown = b.turn()
    assert "100 bytes" in shown
    assert shown.endswith("after\n")
