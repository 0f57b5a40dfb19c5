"""The proxy does to a connection what it was asked to, at the byte where it was asked to."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from flatmq_rigs.proxy import DOWN, UP, Direction, Fault, Proxy, Rules, Way

HOST = "127.0.0.1"
PATIENCE = 20  # seconds until what must come is given up
QUIET = 0.1  # seconds in which what must not come does not
BOTH: list[Direction] = [UP, DOWN]
BIG = bytes(range(256)) * 800  # three times what the proxy reads at once
PACKETS = [b"\x10\3abc", b"\xc0\0", b"\x30\x80\x01" + bytes(128), b"\x40\2\x30\x30", b"\x62\2\0\1"]

Ends = dict[Direction, socket.socket]


class Bench:
    """A broker's listener, and proxies and connections that are closed at the end of the test."""

    def __init__(self) -> None:
        self._closing = contextlib.ExitStack()
        self._listener = self._closing.enter_context(socket.create_server((HOST, 0), backlog=64))
        self._listener.settimeout(PATIENCE)
        self.port = self._listener.getsockname()[1]

    def proxy(self, rules: Rules = Rules()) -> Proxy:  # noqa: B008
        """A proxy whose links have these rules."""
        made = Proxy(HOST, self.port, lambda count: rules)
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


def shows(end: socket.socket, fault: Fault, before: bytes) -> bool:
    """Return whether what came `before` a fault arrives, and then the fault."""
    if fault == "cut":
        return read(end) == before
    if fault == "reset":  # what came before may be lost with it
        with pytest.raises(ConnectionResetError):
            read(end)
        return True
    return read(end, len(before)) == before and is_quiet(end)


@pytest.mark.parametrize(("way", "fault", "limit"), [
    (UP, "cut", 0),
    (DOWN, "cut", 1),
    (UP, "cut", 65535),
    (DOWN, "cut", 65536),
    (UP, "cut", 65537),
    (UP, "reset", 1),
    (DOWN, "reset", 100000),
    (UP, "silence", 65536),
    (DOWN, "silence", 1),
    (UP, "stall", 1),
    (DOWN, "stall", 65536),
])  # fmt: skip
def test_a_fault_after_exactly_so_many_bytes(
    bench: Bench, way: Direction, fault: Fault, limit: int
) -> None:
    link = bench.link(bench.proxy(rules(way, Way(limit, fault))))
    assert passes(link, other(way), b"the other direction does not count")
    write(link[way], BIG[:limit] if fault == "reset" else BIG)
    assert shows(link[other(way)], fault, BIG[:limit])
    if fault in ("silence", "stall"):
        link[other(way)].sendall(b"is anybody there?")
        assert is_quiet(link[way])


@pytest.mark.parametrize("fault", ["cut", "reset", "silence", "stall"])
@pytest.mark.parametrize("way", BOTH)
def test_watch_has_a_fault_happen_instead_of_a_packet(
    bench: Bench, way: Direction, fault: Fault
) -> None:
    seen: list[int] = []

    def watch(which: Direction, first: int) -> Fault | None:
        seen.append(first)
        return fault if (which, first) == (way, 0x62) else None

    link = bench.link(bench.proxy(Rules(watch=watch)))
    for byte in b"".join(PACKETS[:-1]):
        link[way].sendall(bytes([byte]))
    link[way].sendall(PACKETS[-1])
    assert shows(link[other(way)], fault, b"".join(PACKETS[:-1]))
    assert seen == [packet[0] for packet in PACKETS]


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
    proxy.strike("stall")
    proxy.strike("cut")  # has happened when it returns
    assert proxy.open == 0


@pytest.mark.parametrize("way", BOTH)
def test_one_direction_is_late_or_changed_and_not_the_other(bench: Bench, way: Direction) -> None:
    behaviour = Way(4, delay=0.2, change=bytes.upper, trickle=True)
    link = bench.link(bench.proxy(rules(way, behaviour)))
    assert passes(link, other(way), b"as it is")
    began = time.monotonic()
    link[way].sendall(b"late and more")
    assert read(link[other(way)]) == b"LATE"
    assert time.monotonic() - began >= 0.2
