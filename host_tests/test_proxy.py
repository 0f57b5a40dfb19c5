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
QUIET = 0.2  # seconds in which what must not come does not
BOTH: list[Direction] = [UP, DOWN]
BIG = bytes(range(256)) * 800  # three times what the proxy reads at once
CONNECT, PUBLISH, PUBREL = 0x10, 0x30, 0x62


class Peer:
    """The broker's side: a listener from which the test takes one connection after another."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self._listener.settimeout(PATIENCE)
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    def accept(self) -> socket.socket:
        """The next connection that the proxy makes."""
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE)
        self._open.append(connection)
        return connection

    def forget(self) -> None:
        """Leave it to the test to close what was accepted."""
        self._open.clear()

    def stop(self) -> None:
        """Close everything."""
        for end in (self._listener, *self._open):
            end.close()


class Bench:
    """A peer, and proxies and connections that are closed at the end of the test."""

    def __init__(self) -> None:
        self.peer = Peer()
        self._proxies: list[Proxy] = []
        self._clients: list[socket.socket] = []

    def proxy(self, rules: Callable[[int], Rules] | Rules | None = None) -> Proxy:
        """A proxy in front of the peer, whose links have these rules."""
        if isinstance(rules, Rules):
            always = rules
            proxy = Proxy(HOST, self.peer.port, lambda count: always)
        else:
            proxy = Proxy(HOST, self.peer.port, rules) if rules else Proxy(HOST, self.peer.port)
        self._proxies.append(proxy)
        return proxy

    def client(self, proxy: Proxy) -> socket.socket:
        """A new connection to the proxy."""
        client = socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE)
        self._clients.append(client)
        return client

    def link(self, proxy: Proxy) -> dict[Direction, socket.socket]:
        """A new link: the end that writes in each direction."""
        return {UP: self.client(proxy), DOWN: self.peer.accept()}

    def stop(self) -> None:
        """Close everything."""
        for client in self._clients:
            client.close()
        for proxy in self._proxies:
            proxy.stop()
        self.peer.stop()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.stop()


def other(way: Direction) -> Direction:
    """The opposite direction, whose writing end is the reading end of this one."""
    return DOWN if way == UP else UP


def write(end: socket.socket, data: bytes) -> None:
    """Send it from a thread: more than the buffers on the way hold would block."""

    def send() -> None:
        with contextlib.suppress(OSError):  # the link may end meanwhile, as it should
            end.sendall(data)

    threading.Thread(target=send, daemon=True).start()


def read(end: socket.socket, size: int) -> bytes:
    """Exactly that many bytes; fewer only where the stream ends."""
    data = b""
    while len(data) < size:
        more = end.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def rest(end: socket.socket) -> bytes:
    """Everything up to the end of the stream."""
    return read(end, 1 << 30)


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
        rest(end)
    except ConnectionResetError:
        return True
    return False


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail when it does not come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def rules(way: Direction, behaviour: Way) -> Rules:
    """Rules with that behaviour in one direction."""
    return Rules(up=behaviour) if way == UP else Rules(down=behaviour)


def open_files() -> int:
    """File descriptors of this process."""
    return len(os.listdir("/dev/fd"))


@pytest.mark.parametrize("way", BOTH)
def test_bytes_pass_unharmed(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy())
    write(link[way], BIG)
    assert read(link[other(way)], len(BIG)) == BIG


@pytest.mark.parametrize("way", BOTH)
def test_one_end_may_close_and_still_read(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy())
    link[way].sendall(b"last words")
    link[way].shutdown(socket.SHUT_WR)
    assert rest(link[other(way)]) == b"last words"
    link[other(way)].sendall(b"answer")
    link[other(way)].close()
    assert rest(link[way]) == b"answer"


@pytest.mark.parametrize("way", BOTH)
def test_a_link_ends_when_both_ends_have_closed(bench: Bench, way: Direction) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    assert proxy.open == 1
    link[way].close()
    assert rest(link[other(way)]) == b""
    assert proxy.open == 1
    link[other(way)].close()
    until(lambda: proxy.open == 0)


@pytest.mark.parametrize("limit", [1, 2, 1000, 65535, 65536, 65537, 131072, 200000])
@pytest.mark.parametrize("way", BOTH)
def test_cut_after_exactly_so_many_bytes(bench: Bench, way: Direction, limit: int) -> None:
    link = bench.link(bench.proxy(rules(way, Way(limit))))
    write(link[way], BIG)
    assert rest(link[other(way)]) == BIG[:limit]
    with pytest.raises(OSError):  # the end that wrote is closed as well
        while True:
            link[way].sendall(BIG)


@pytest.mark.parametrize("way", BOTH)
def test_cut_after_so_many_bytes_that_came_one_by_one(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy(rules(way, Way(3))))
    for i in range(3):
        link[way].sendall(BIG[i : i + 1])
        assert read(link[other(way)], 1) == BIG[i : i + 1]
    assert rest(link[other(way)]) == b""
    assert rest(link[way]) == b""


@pytest.mark.parametrize("way", BOTH)
def test_a_limit_of_nothing_passes_nothing(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy(rules(way, Way(0))))
    link[way].sendall(b"x")
    assert rest(link[other(way)]) == b""


@pytest.mark.parametrize("way", BOTH)
def test_the_other_direction_does_not_count(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy(rules(way, Way(4))))
    link[other(way)].sendall(b"123456")
    assert read(link[way], 6) == b"123456"
    link[way].sendall(b"123456")
    assert rest(link[other(way)]) == b"1234"


@pytest.mark.parametrize("limit", [1, 65536, 100000])
@pytest.mark.parametrize("way", BOTH)
def test_reset_after_so_many_bytes(bench: Bench, way: Direction, limit: int) -> None:
    link = bench.link(bench.proxy(rules(way, Way(limit, "reset"))))
    write(link[way], BIG[:limit])
    assert is_reset(link[other(way)])
    assert is_reset(link[way])


@pytest.mark.parametrize("limit", [1, 65536, 100000])
@pytest.mark.parametrize("fault", ["silence", "stall"])
@pytest.mark.parametrize("way", BOTH)
def test_quiet_after_so_many_bytes(bench: Bench, way: Direction, fault: Fault, limit: int) -> None:
    link = bench.link(bench.proxy(rules(way, Way(limit, fault))))
    write(link[way], BIG)
    assert read(link[other(way)], limit) == BIG[:limit]
    assert is_quiet(link[other(way)])
    link[other(way)].sendall(b"is anybody there?")
    assert is_quiet(link[way])


def test_silence_takes_everything(bench: Bench) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike("silence")
    link[UP].sendall(BIG * 100)  # 20 MB: more than any buffer on the way holds


def test_stall_takes_no_more(bench: Bench) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike("stall")
    link[UP].settimeout(QUIET)
    with pytest.raises(TimeoutError):
        link[UP].sendall(BIG * 100)


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("fault", ["silence", "stall"])
def test_a_quiet_link_tells_no_end_of_the_other(
    bench: Bench, fault: Fault, way: Direction
) -> None:
    """As with a cable that was pulled; the link ends when both have gone."""
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike(fault)
    link[way].sendall(b"unread")
    link[way].close()
    assert is_quiet(link[other(way)])
    assert proxy.open == 1
    link[other(way)].close()
    until(lambda: proxy.open == 0)


@pytest.mark.parametrize("fault", ["silence", "stall"])
def test_a_quiet_link_keeps_a_reset_to_itself(bench: Bench, fault: Fault) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike(fault)
    link[UP].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    link[UP].close()
    assert is_quiet(link[DOWN])


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
    proxy = bench.proxy()
    link = bench.link(proxy)
    proxy.strike("stall")
    for end in link.values():
        end.sendall(b"unread")
    time.sleep(0.05)  # that they are there is likely, not needed
    proxy.strike("cut")
    assert rest(link[UP]) == rest(link[DOWN]) == b""


def test_strike_has_happened_when_it_returns(bench: Bench) -> None:
    proxy = bench.proxy()
    links = [bench.link(proxy) for _ in range(5)]
    until(lambda: proxy.open == 5)
    proxy.strike("cut")
    assert proxy.open == 0
    for link in links:
        assert rest(link[UP]) == rest(link[DOWN]) == b""
    again = bench.link(proxy)
    again[UP].sendall(b"x")
    assert read(again[DOWN], 1) == b"x"
    assert proxy.accepted == 6


def test_strike_without_links(bench: Bench) -> None:
    bench.proxy().strike("reset")


def test_a_reset_of_one_end_ends_the_other(bench: Bench) -> None:
    proxy = bench.proxy()
    link = bench.link(proxy)
    link[UP].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    link[UP].close()
    assert rest(link[DOWN]) == b""
    until(lambda: proxy.open == 0)


@pytest.mark.parametrize("way", BOTH)
def test_delay_holds_each_chunk(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy(rules(way, Way(delay=0.2))))
    began = time.monotonic()
    link[way].sendall(b"late")
    assert read(link[other(way)], 4) == b"late"
    assert time.monotonic() - began >= 0.2
    began = time.monotonic()
    link[other(way)].sendall(b"at once")  # that it takes less than 0.2 s is not for a test
    assert read(link[way], 7) == b"at once"


def test_what_is_delayed_is_lost_with_a_cut(bench: Bench) -> None:
    proxy = bench.proxy(Rules(up=Way(delay=PATIENCE)))
    link = bench.link(proxy)
    link[UP].sendall(b"never seen")
    time.sleep(0.05)
    proxy.strike("cut")
    assert rest(link[DOWN]) == b""


@pytest.mark.parametrize("way", BOTH)
def test_trickle_keeps_bytes_and_limit(bench: Bench, way: Direction) -> None:
    link = bench.link(bench.proxy(rules(way, Way(1500, trickle=True))))
    write(link[way], BIG)
    assert rest(link[other(way)]) == BIG[:1500]


def test_trickle_sends_every_byte_by_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    proxy = bench.proxy(Rules(up=Way(trickle=True)))
    loop = proxy._loop
    sendall = loop.sock_sendall

    async def noted(end: socket.socket, data: bytes) -> None:
        sizes.append(len(data))
        await sendall(end, data)

    monkeypatch.setattr(loop, "sock_sendall", noted)
    link = bench.link(proxy)
    link[UP].sendall(BIG[:100])
    assert read(link[DOWN], 100) == BIG[:100]
    assert sizes == [1] * 100


@pytest.mark.parametrize("fault", ["silence", "stall"])
def test_a_fault_comes_between_two_bytes_of_a_trickle(bench: Bench, fault: Fault) -> None:
    proxy = bench.proxy(Rules(up=Way(trickle=True)))
    link = bench.link(proxy)
    write(link[UP], BIG)
    read(link[DOWN], 10)
    proxy.strike(fault)
    link[DOWN].settimeout(QUIET)
    got = 0
    with pytest.raises(TimeoutError):
        while True:
            got += len(link[DOWN].recv(4096))
    assert got < len(BIG) - 10


@pytest.mark.parametrize("way", BOTH)
def test_change_passes_something_else(bench: Bench, way: Direction) -> None:
    changing = Way(change=bytes.upper)
    rules = Rules(up=changing) if way == UP else Rules(down=changing)
    link = bench.link(bench.proxy(rules))
    link[way].sendall(b"changed")
    assert read(link[other(way)], 7) == b"CHANGED"
    link[other(way)].sendall(b"as it is")
    assert read(link[way], 8) == b"as it is"


def test_an_idle_link_is_cut(bench: Bench) -> None:
    link = bench.link(bench.proxy(Rules(idle=QUIET)))
    link[UP].sendall(b"something")
    assert rest(link[DOWN]) == b"something"
    assert rest(link[UP]) == b""


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
        again = bench.link(proxy)
        again[UP].sendall(b"x")
        assert read(again[DOWN], 1) == b"x"
    link[UP].sendall(b"still there")  # a link that is open is not refused
    assert read(link[DOWN], 11) == b"still there"


def takes(port: int) -> bool:
    """Return whether a server can have that port, as servers bind theirs."""
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            thief.bind((HOST, port))
        except OSError:
            return False
        return True


def test_nobody_takes_the_port_of_a_proxy_that_refuses(bench: Bench) -> None:
    proxy = bench.proxy()
    links = [bench.link(proxy) for _ in range(3)]  # whose ends have the port as well
    proxy.refuse()
    assert not takes(proxy.port)
    for link in links:
        for end in link.values():
            end.close()
    until(lambda: proxy.open == 0)
    assert not takes(proxy.port)


def test_nobody_takes_the_port_while_it_begins_to_refuse(bench: Bench) -> None:
    """A server tries all the time."""
    proxy = bench.proxy()
    tries = 0
    taken = []
    over = threading.Event()

    def steal() -> None:
        nonlocal tries
        while not over.is_set():
            tries += 1
            if takes(proxy.port):
                taken.append(tries)

    thief = threading.Thread(target=steal)
    thief.start()
    try:
        for _ in range(200):
            proxy.refuse()
            proxy.refuse(False)
        until(lambda: tries > 100)
    finally:
        over.set()
        thief.join()
    assert taken == []
    link = bench.link(proxy)
    link[UP].sendall(b"x")
    assert read(link[DOWN], 1) == b"x"


if sys.platform != "linux":  # elsewhere no socket both refuses and keeps its port
    del test_nobody_takes_the_port_of_a_proxy_that_refuses
    del test_nobody_takes_the_port_while_it_begins_to_refuse


def test_a_broker_that_is_not_there_closes_the_client() -> None:
    with Proxy(HOST, free_port()) as proxy:
        with socket.create_connection((proxy.host, proxy.port), timeout=PATIENCE) as client:
            assert rest(client) == b""
        until(lambda: proxy.open == 0)
        assert proxy.accepted == 1


def test_rules_are_made_for_each_connection_by_its_number(bench: Bench) -> None:
    proxy = bench.proxy(lambda count: Rules(up=Way(count + 1)))
    for count in range(4):
        link = bench.link(proxy)
        link[UP].sendall(b"123456")
        assert rest(link[DOWN]) == b"123456"[: count + 1]


PACKETS = [
    (CONNECT, bytes([CONNECT, 3]) + b"abc"),
    (0xC0, bytes([0xC0, 0])),
    (PUBLISH, bytes([PUBLISH, 0x80, 0x01]) + bytes(128)),
    (0x40, bytes([0x40, 2, 0x30, 0x30])),
    (PUBLISH, bytes([PUBLISH, 0xFF, 0x80, 0x04]) + b"0" * 65663),
    (PUBREL, bytes([PUBREL, 2, 0, 1])),
]


@pytest.mark.parametrize("step", [1, 2, 3, 1 << 20], ids=lambda n: f"by {n}")
@pytest.mark.parametrize("way", BOTH)
def test_watch_sees_the_beginning_of_each_packet(bench: Bench, way: Direction, step: int) -> None:
    seen: list[tuple[Direction, int]] = []
    link = bench.link(bench.proxy(Rules(watch=lambda way, first: seen.append((way, first)))))
    packets = [packet for packet in PACKETS if step > 3 or len(packet[1]) < 1000]
    data = b"".join(packet for _, packet in packets)
    if step > 3:
        write(link[way], data)
        assert read(link[other(way)], len(data)) == data
    else:
        for at in range(0, len(data), step):
            link[way].sendall(data[at : at + step])
            assert read(link[other(way)], len(data[at : at + step])) == data[at : at + step]
    assert seen == [(way, first) for first, _ in packets]


@pytest.mark.parametrize("fault", ["cut", "reset", "silence", "stall"])
@pytest.mark.parametrize("way", BOTH)
def test_watch_has_a_fault_happen_in_place_of_a_packet(
    bench: Bench, way: Direction, fault: Fault
) -> None:
    def watch(seen: Direction, first: int) -> Fault | None:
        return fault if (seen, first) == (way, 0x40) else None

    link = bench.link(bench.proxy(Rules(watch=watch)))
    before = b"".join(packet for _, packet in PACKETS[:3])
    link[way].sendall(before + PACKETS[3][1] + PACKETS[5][1])
    reading = link[other(way)]
    if fault == "reset":
        assert is_reset(reading)
    elif fault == "cut":
        assert rest(reading) == before
    else:
        assert read(reading, len(before)) == before
        assert is_quiet(reading)


@pytest.mark.parametrize("fault", ["cut", "reset", "silence", "stall"])
def test_tap_sees_what_the_broker_sends_before_a_fault_takes_it(
    bench: Bench, fault: Fault
) -> None:
    seen = bytearray()
    link = bench.link(bench.proxy(Rules(down=Way(3, fault), tap=seen.extend)))
    link[UP].sendall(b"not this")
    assert read(link[DOWN], 8) == b"not this"
    link[DOWN].sendall(b"123456")
    if fault in ("silence", "stall"):
        assert read(link[UP], 3) == b"123"
    elif fault == "cut":
        assert rest(link[UP]) == b"123"
    else:
        assert is_reset(link[UP])
    assert seen == b"123456"


def test_what_watch_raises_comes_out_of_stop(bench: Bench) -> None:
    def watch(way: Direction, first: int) -> None:
        raise KeyError(first)

    proxy = Proxy(HOST, bench.peer.port, lambda count: Rules(watch=watch))
    link = bench.link(proxy)
    link[UP].sendall(b"\xc0\0")
    assert rest(link[DOWN]) == b""
    with pytest.raises(KeyError, match=str(0xC0)):
        proxy.stop()


def test_what_rules_raise_comes_out_of_stop(bench: Bench) -> None:
    def spoiled(count: int) -> Rules:
        raise KeyError(count)

    proxy = Proxy(HOST, bench.peer.port, spoiled)
    client = bench.client(proxy)
    client.sendall(b"x")
    assert rest(client) == b""
    with pytest.raises(KeyError):
        proxy.stop()


def test_watch_cannot_wait_for_the_proxy_that_waits_for_it(bench: Bench) -> None:
    proxy = Proxy(HOST, bench.peer.port)
    proxy.rules = lambda count: Rules(watch=lambda way, first: proxy.strike("cut"))
    link = bench.link(proxy)
    link[UP].sendall(b"\xc0\0")
    assert rest(link[DOWN]) == b""
    with pytest.raises(RuntimeError, match="waits for them"):
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
        assert rest(link[UP]) == rest(link[DOWN]) == b""
    with pytest.raises(ConnectionRefusedError):
        bench.client(proxy)
    assert not proxy._thread.is_alive()


def test_stop_does_not_wait_for_a_connection_that_is_not_made(bench: Bench) -> None:
    """A listener whose queue is full answers no SYN: the connection stays half made."""
    with socket.socket() as full:
        full.bind((HOST, 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            end = socket.socket()
            end.setblocking(False)
            end.connect_ex(full.getsockname())
            waiting.append(end)
        proxy = Proxy(HOST, full.getsockname()[1])
        client = bench.client(proxy)
        until(lambda: proxy.open == 1)
        stopping = threading.Thread(target=proxy.stop, daemon=True)
        stopping.start()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
        assert rest(client) == b""
        for end in waiting:
            end.close()


def test_hundreds_of_connections_leave_no_file_open() -> None:
    faults: list[Fault] = ["cut", "reset", "silence", "stall"]
    before = open_files()
    made = Bench()
    proxy = made.proxy(lambda count: Rules(up=Way(5, faults[count % 4])))
    standing = open_files()
    for count in range(400):
        address = (HOST, proxy.port)
        with socket.create_connection(address, PATIENCE) as client, made.peer.accept() as peer:
            client.sendall(b"hello")
            if count % 4 == 1:
                assert is_reset(peer)
            else:
                assert read(peer, 5) == b"hello"
            made.peer.forget()
    until(lambda: proxy.open == 0)
    assert proxy.accepted == 400
    assert open_files() == standing
    made.stop()
    assert open_files() == before
