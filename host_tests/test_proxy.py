"""The proxy does to a connection what it was asked to, at the byte where it was asked to."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from flatmq_rigs.proxy import DOWN, UP, Direction, Fault, Proxy, Rules, Way
from flatmq_tools.ports import free_port

HOST = "127.0.0.1"
PATIENCE = 20  # seconds until what must come is given up
QUIET = 0.1  # seconds in which what must not come does not
BOTH: list[Direction] = [UP, DOWN]
FAULTS: list[Fault] = ["cut", "reset", "silence", "stall"]
BIG = bytes(range(256)) * 800  # three times what the proxy reads at once
RESET = b"\1\0\0\0\0\0\0\0"  # SO_LINGER with which close() resets

Ends = dict[Direction, socket.socket]


class Bench:
    """A broker's listener, and proxies and connections that are closed at the end of the test."""

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        self._listener = self._closing.enter_context(socket.create_server((HOST, 0), backlog=64))
        self._listener.settimeout(PATIENCE)
        self.port = self._listener.getsockname()[1]

    def proxy(self, rules: Callable[[int], Rules] | Rules = Rules()) -> Proxy:  # noqa: B008
        """A proxy whose links have these rules."""
        made = Proxy(HOST, self.port, (lambda count: rules) if isinstance(rules, Rules) else rules)
        self._closing.callback(made.stop)
        return made

    def client(self, proxy: Proxy) -> socket.socket:
        """A new connection to the proxy."""
        made = socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE)
        return self._closing.enter_context(made)

    def link(self, proxy: Proxy) -> Ends:
        """A new link: the end that writes in each direction."""
        client = self.client(proxy)
        accepted = self._closing.enter_context(self._listener.accept()[0])
        accepted.settimeout(PATIENCE)
        return {UP: client, DOWN: accepted}

    def stop(self) -> None:
        """Close everything."""
        self._closing.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.stop()


def other(way: Direction) -> Direction:
    """The opposite direction, whose writing end is the reading end of this one."""
    return DOWN if way == UP else UP


def rules(way: Direction, behaviour: Way) -> Rules:
    """Rules with that behaviour in one direction."""
    return Rules(up=behaviour) if way == UP else Rules(down=behaviour)


def write(end: socket.socket, data: bytes) -> None:
    """Send it from a thread: more than the buffers on the way hold would block."""

    def send() -> None:
        with contextlib.suppress(OSError):  # the link may end meanwhile, as it should
            end.sendall(data)

    threading.Thread(target=send, daemon=True).start()


def read(end: socket.socket, size: int = 1 << 30) -> bytes:
    """Exactly that many bytes; fewer only where the stream ends."""
    data = b""
    while len(data) < size:
        more = end.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def passes(link: Ends, way: Direction, data: bytes = b"x") -> bool:
    """Return whether bytes come out as they were."""
    write(link[way], data)
    return read(link[other(way)], len(data)) == data


def is_quiet(end: socket.socket) -> bool:
    """Return whether nothing comes, and not the end of the stream either."""
    end.settimeout(QUIET)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(PATIENCE)
    return False


def is_reset(end: socket.socket) -> bool:
    """Return whether the stream ends with a RST."""
    try:
        read(end)
    except ConnectionResetError:
        return True
    return False


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail when it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("way", BOTH)
def test_bytes_pass_unharmed_until_both_ends_have_closed(bench: Bench, way: Direction) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    assert passes(link, way, BIG)
    link[way].sendall(b"last words")
    link[way].shutdown(socket.SHUT_WR)
    assert read(link[other(way)]) == b"last words"
    link[other(way)].sendall(b"answer")
    assert proxy.open == 1
    link[other(way)].close()
    assert read(link[way]) == b"answer"
    link[way].close()
    until(lambda: proxy.open == 0)


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize(
    ("fault", "limit"),
    [
        *[("cut", limit) for limit in (0, 1, 65535, 65536, 65537, 200000)],
        *[(fault, limit) for fault in FAULTS[1:] for limit in (1, 65536, 100000)],
    ],
)
def test_a_fault_after_exactly_so_many_bytes(
    bench: Bench, way: Direction, fault: Fault, limit: int
) -> None:
    link = bench.link(bench.proxy(rules(way, Way(limit, fault))))
    writing, reading = link[way], link[other(way)]
    assert passes(link, other(way), b"the other direction does not count")
    write(writing, BIG[:limit] if fault == "reset" else BIG)
    if fault == "reset":
        assert is_reset(reading)
        assert is_reset(writing)
    elif fault == "cut":
        assert read(reading) == BIG[:limit]
        with pytest.raises(OSError):
            while True:
                writing.sendall(BIG)
    else:
        assert read(reading, limit) == BIG[:limit]
        assert is_quiet(reading)
        reading.sendall(b"is anybody there?")
        assert is_quiet(writing)


def test_silence_takes_everything_and_a_stall_nothing(bench: Bench) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike("silence")
    link[UP].sendall(BIG * 100)  # 20 MB: more than any buffer on the way holds
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike("stall")
    link[UP].settimeout(QUIET)
    with pytest.raises(TimeoutError):
        link[UP].sendall(BIG * 100)
    proxy.resume()
    assert read(link[DOWN], len(BIG)) == BIG


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("fault", ["silence", "stall"])
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_quiet_link_hides_the_end_of_one_from_the_other(
    bench: Bench, fault: Fault, way: Direction, is_reset: bool
) -> None:
    """As with a cable that was pulled; the link ends when both have gone."""
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike(fault)
    link[way].sendall(b"unread")
    if is_reset:
        link[way].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    link[way].close()
    assert is_quiet(link[other(way)])
    if not is_reset:
        assert proxy.open == 1
        link[other(way)].close()
        until(lambda: proxy.open == 0)


@pytest.mark.parametrize("before", ["silence", "stall"])
@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_a_quiet_link_can_still_be_ended(bench: Bench, before: Fault, fault: Fault) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike(before)
    write(link[UP], BIG)
    proxy.strike(fault)
    assert is_reset(link[DOWN]) == (fault == "reset")


def test_cut_is_in_order_though_bytes_are_unread(bench: Bench) -> None:
    """Closing with bytes unread would be a reset, which takes back what was on its way."""
    proxy = bench.proxy(Rules(up=Way(delay=PATIENCE)))
    link = bench.link(proxy)
    proxy.strike("stall")
    for end in link.values():
        end.sendall(b"unread")
    time.sleep(0.05)  # that they are there is likely, not needed
    proxy.strike("cut")
    assert read(link[UP]) == read(link[DOWN]) == b""


def test_strike_has_happened_when_it_returns(bench: Bench) -> None:
    proxy = bench.proxy()
    proxy.strike("reset")  # without a link
    links = [bench.link(proxy) for _ in range(5)]
    until(lambda: proxy.open == 5)
    proxy.strike("cut")
    assert proxy.open == 0
    for link in links:
        assert read(link[UP]) == read(link[DOWN]) == b""
    assert passes(bench.link(proxy), UP)
    assert proxy.accepted == 6


def test_a_reset_of_one_end_ends_the_other(bench: Bench) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    link[UP].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    link[UP].close()
    assert read(link[DOWN]) == b""
    until(lambda: proxy.open == 0)


@pytest.mark.parametrize("way", BOTH)
def test_one_direction_is_late_or_changed_and_not_the_other(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy(rules(way, Way(delay=0.2, change=bytes.upper))))
    began = time.monotonic()
    link[way].sendall(b"late")
    assert read(link[other(way)], 4) == b"LATE"
    assert time.monotonic() - began >= 0.2
    assert passes(link, other(way), b"as it is")


def test_an_idle_link_is_cut(bench: Bench) -> None:
    link = bench.link(bench.proxy(Rules(idle=QUIET)))
    link[UP].sendall(b"something")
    assert read(link[DOWN]) == b"something"
    assert read(link[UP]) == b""


@pytest.mark.parametrize("way", BOTH)
def test_trickle_sends_every_byte_by_itself(
    bench: Bench, way: Direction, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    proxy = bench.proxy(rules(way, Way(1500, trickle=True)))
    loop = proxy._loop
    sendall = loop.sock_sendall

    async def noted(end: socket.socket, data: bytes) -> None:
        sizes.append(len(data))
        await sendall(end, data)

    monkeypatch.setattr(loop, "sock_sendall", noted)
    link = bench.link(proxy)
    write(link[way], BIG)
    assert read(link[other(way)]) == BIG[:1500]
    assert sizes == [1] * 1500


def test_refuse_and_accept_again(bench: Bench) -> None:
    proxy = bench.proxy()
    port = proxy.port
    link = bench.link(proxy)
    for _ in range(3):
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            bench.client(proxy)
        proxy.refuse(False)
        proxy.refuse(False)
        assert proxy.port == port
        assert passes(bench.link(proxy), UP)
    assert passes(link, UP, b"still there")  # a link that is open is not refused


def takes(port: int) -> bool:
    """Return whether a server can have that port, as servers bind theirs."""
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            thief.bind((HOST, port))
        except OSError:
            return False
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="no socket refuses and keeps its port")
def test_nobody_takes_the_port_of_a_proxy_that_refuses(bench: Bench) -> None:
    """A server tries all the time."""
    proxy = bench.proxy()
    tries: list[bool] = []
    over = threading.Event()

    def steal() -> None:
        while not over.is_set():
            tries.append(takes(proxy.port))

    link = bench.link(proxy)  # whose ends have the port as well
    thief = threading.Thread(target=steal)
    thief.start()
    try:
        for _ in range(200):
            proxy.refuse()
            proxy.refuse(False)
        proxy.refuse()
        for end in link.values():
            end.close()
        until(lambda: proxy.open == 0)
        before = len(tries)
        until(lambda: len(tries) > before + 100)
    finally:
        over.set()
        thief.join()
    assert not any(tries)
    proxy.refuse(False)
    assert passes(bench.link(proxy), UP)


PACKETS = {
    0x10: b"\x10\3abc",
    0xC0: b"\xc0\0",
    0x30: b"\x30\x80\x01" + bytes(128),
    0x40: b"\x40\2\x30\x30",
    0x62: b"\x62\2\0\1",
    0x32: b"\x32\xff\x80\x04" + b"0" * 65663,
}


@pytest.mark.parametrize("step", [1, 3, 1 << 20], ids=lambda n: f"by {n}")
@pytest.mark.parametrize("way", BOTH)
def test_watch_sees_the_beginning_of_each_packet(bench: Bench, way: Direction, step: int) -> None:
    seen: list[tuple[Direction, int]] = []
    link = bench.link(bench.proxy(Rules(watch=lambda way, first: seen.append((way, first)))))
    packets = list(PACKETS.items())[: 5 if step < 4 else None]
    data = b"".join(packet for _, packet in packets)
    assert all(passes(link, way, data[at : at + step]) for at in range(0, len(data), step))
    assert seen == [(way, first) for first, _ in packets]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("way", BOTH)
def test_watch_has_a_fault_happen_instead_of_a_packet(
    bench: Bench, way: Direction, fault: Fault
) -> None:
    def watch(seen: Direction, first: int) -> Fault | None:
        return fault if (seen, first) == (way, 0x40) else None

    tapped = bytearray()
    link = bench.link(bench.proxy(Rules(watch=watch, tap=tapped.extend)))
    *before, _struck, _after = list(PACKETS.values())[:5]
    link[way].sendall(b"".join(list(PACKETS.values())[:5]))
    reading = link[other(way)]
    if fault == "reset":
        assert is_reset(reading)
    elif fault == "cut":
        assert read(reading) == b"".join(before)
    else:
        assert read(reading, len(b"".join(before))) == b"".join(before)
        assert is_quiet(reading)
    # What the broker sends is seen before a fault takes it.
    assert tapped == (b"".join(list(PACKETS.values())[:5]) if way == DOWN else b"")


def test_what_rules_and_watch_raise_comes_out_of_stop(bench: Bench) -> None:
    def watch(way: Direction, first: int) -> None:
        raise KeyError(first)

    def waits(way: Direction, first: int) -> None:
        proxy.strike("cut")

    def spoiled(count: int) -> Rules:
        raise IndexError(count)

    for made, error in (
        (lambda count: Rules(watch=watch), KeyError),
        (lambda count: Rules(watch=waits), RuntimeError),
        (spoiled, IndexError),
    ):
        proxy = Proxy(HOST, bench.port, made)
        link = bench.client(proxy)
        link.sendall(b"\xc0\0")
        assert read(link) == b""
        with pytest.raises(error):
            proxy.stop()


@pytest.mark.parametrize("fault", [None, "silence", "stall"])
def test_stop_closes_everything(bench: Bench, fault: Fault | None) -> None:
    proxy = bench.proxy()
    links = [bench.link(proxy) for _ in range(3)]
    if fault:
        proxy.strike(fault)
    proxy.stop()
    proxy.stop()
    for link in links:
        assert read(link[UP]) == read(link[DOWN]) == b""
    with pytest.raises(ConnectionRefusedError):
        bench.client(proxy)
    assert not proxy._thread.is_alive()


def test_a_broker_that_does_not_answer(bench: Bench) -> None:
    with Proxy(HOST, free_port()) as proxy:
        assert read(bench.client(proxy)) == b""
        until(lambda: proxy.open == 0)
    # A listener whose queue is full answers no SYN: the connection stays half made.
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind((HOST, 0))
        full.listen(0)
        for _ in range(4):
            end = waiting.enter_context(socket.socket())
            end.setblocking(False)
            end.connect_ex(full.getsockname())
        proxy = Proxy(HOST, full.getsockname()[1])
        client = bench.client(proxy)
        until(lambda: proxy.open == 1)
        stopping = threading.Thread(target=proxy.stop, daemon=True)
        stopping.start()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        assert read(client) == b""


def test_many_connections_leave_no_file_open() -> None:
    def open_files() -> int:
        return len(os.listdir("/dev/fd"))

    before = open_files()
    for count in range(40):
        made = Bench()
        link = made.link(made.proxy(Rules(up=Way(5, FAULTS[count % 4]))))
        link[UP].sendall(b"hello")
        assert is_reset(link[DOWN]) if count % 4 == 1 else read(link[DOWN], 5) == b"hello"
        made.stop()
    assert open_files() == before
