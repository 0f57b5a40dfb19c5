"""A real interpreter, a real terminal, the bridge, a real broker."""

import itertools
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from flatmq import Client
from flatmq_tools import broker
from observer import until
from uart.ptys import DOWN, PATIENCE_MS, UP, Board, Bridge, bench

DEADLINE = 60.0  # seconds for any one step; far above what a loaded machine needs
_names = (f"board{n}" for n in itertools.count())


@pytest.fixture(scope="module")
def target() -> Iterator[broker.Broker]:
    # In order, and without the 40 ms of a delayed acknowledgement.
    with broker.mosquitto(extra="max_inflight_messages 0\nset_tcp_nodelay true") as running:
        yield running


class Desk:
    """A client on the desk that talks to the board `name`."""

    def __init__(self, target: broker.Broker) -> None:
        self.name = next(_names)
        self.got: list[tuple[int, bytes]] = []
        self._everything: list[tuple[int, bytes]] = []
        self.wills = 0
        topic = self.name.encode()
        self._in = topic + b"/in"
        self.client = Client(
            topic + b"-desk", target.host, target.port, tx_size=1 << 20, rx_size=1 << 16,
            clean_session=False, inflight=64,
        )  # fmt: skip
        out = self.client.subscribe(topic + b"/out", self._take, 2)
        will = self.client.subscribe(topic + b"/will", self._count_will, 2)
        self.client.connect()
        self.until("subscriptions", lambda: None not in (out.granted, will.granted))

    def _take(self, message) -> None:
        self.got.append((message.qos, message.payload))
        self._everything.append(self.got[-1])

    def _count_will(self, message) -> None:
        self.wills += 1

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        until(what, condition, lambda: self.client.poll(10))

    def send(self, qos: int, payload: bytes) -> None:
        assert self.client.publish(self._in, payload, qos) is not None

    def answered(self) -> None:
        """Wait until the board answers."""
        count = len(self.got)

        def has() -> bool:
            self.send(0, b"there?")
            self.client.poll(50)
            return len(self.got) > count

        self.until("the board", has)

    def exchange(self, messages: list[tuple[int, bytes]]) -> None:
        """Send messages that were not sent before, and wait until they have come back."""
        self.got.clear()
        for qos, payload in messages:
            self.send(qos, payload)
        self.until(f"{len(messages)} messages", lambda: set(messages) <= set(self.got))
        for qos in (1, 2):
            wanted = [m for m in messages if m[0] == qos]
            assert [m for m in dict.fromkeys(self.got) if m in wanted] == wanted

    def twice(self) -> list[bytes]:
        """Return what came more than once so far, though it was sent at QoS 2."""
        counted = Counter(payload for qos, payload in self._everything if qos == 2)
        return [payload for payload, count in counted.items() if count > 1]

    def stop(self, board: Board) -> None:
        """Have the board end, and look at whether it ends well."""
        self.send(1, b"stop")
        self.until("the end", lambda: not board.running)
        assert board.wait(DEADLINE) == 0, board.told
        self.client.disconnect()
        assert not self.twice()


def test_every_qos_both_ways(target: broker.Broker) -> None:
    desk = Desk(target)
    with bench(target, "echo.py", desk.name, "1000") as (wire, board, bridge):
        desk.answered()
        every = bytes(range(256))
        messages = [(qos, b"%d" % qos + every) for qos in (0, 1, 2)]
        messages += [(qos, b"%d %d" % (qos, n)) for n in range(20) for qos in (1, 2)]
        desk.exchange(messages)
        desk.until("an end of the printing", lambda: "echo 42" in bridge.printed())
        desk.stop(board)
        # Nothing on the line that a console would take for a command.
        assert min(wire.seen[DOWN]) >= 32
        assert set(bytes(range(32))) & set(wire.seen[UP]) == {10, 13}, "of print() alone"
    assert "losses 1 errors 0" in board.told or "losses 0 errors 0" in board.told
    assert not desk.wills


def test_a_bridge_ends_and_comes_back(target: broker.Broker) -> None:
    """Also one that was killed, and could say nothing."""
    desk = Desk(target)
    messages = [(2, b"%s %d" % (when, n)) for n in range(6) for when in (b"1", b"2", b"3")]
    with bench(target, "echo.py", desk.name, str(PATIENCE_MS)) as (wire, board, first):
        bridge = first
        desk.answered()
        for n in range(6):
            desk.send(*messages[3 * n])
            desk.client.flush()
            if n % 2:
                wire.harm[DOWN] = lambda data: b""
            bridge.stop()
            wire.harm[DOWN] = bytes
            desk.send(*messages[3 * n + 1])
            bridge = Bridge(wire.port, target)
            desk.send(*messages[3 * n + 2])
        desk.until("all", lambda: set(messages) <= set(desk.got))
        assert [m for m in desk.got if m[0] == 2] == messages
        desk.stop(board)
        bridge.stop()


def test_a_port_is_unplugged(target: broker.Broker) -> None:
    desk = Desk(target)
    with bench(target, "echo.py", desk.name, str(PATIENCE_MS)) as (wire, board, bridge):
        desk.answered()
        before = desk.wills
        wire.unplug()
        desk.until("the will", lambda: desk.wills > before)
        desk.until("the word", lambda: any("waiting for it" in text for _, text in bridge.lines))
        wire.plug()
        desk.exchange([(1, b"one"), (2, b"two")])
        desk.stop(board)


def test_a_broker_goes_and_comes_back() -> None:
    with broker.mosquitto(persistence=True) as target:
        desk = Desk(target)
        with bench(target, "echo.py", desk.name, str(PATIENCE_MS)) as (_, board, bridge):
            desk.answered()
            target.kill()
            desk.until("a refusal", lambda: any("no connection to" in t for _, t in bridge.lines))
            target.restart()
            desk.until("the broker", lambda: desk.client.connected)
            desk.answered()
            desk.stop(board)


def test_messages_larger_than_the_buffers(target: broker.Broker) -> None:
    desk = Desk(target)
    topic = desk.name.encode() + b"/large"
    back: list[bytes] = []
    with bench(target, "echo.py", desk.name, str(PATIENCE_MS)) as (_, board, _):
        desk.answered()
        desk.client.subscribe(topic + b"/out", lambda m: back.append(m.payload), 1)
        payload = bytes(n * n >> 3 & 255 for n in range(20000))
        desk.client.publish(topic, payload, 1)
        desk.until("it", lambda: bool(back))
        desk.stop(board)
    assert back == [payload]


def test_somebody_types_ctrl_c(target: broker.Broker) -> None:
    """It stops the sketch, as without a bridge."""
    desk = Desk(target)
    with bench(target, "echo.py", desk.name, str(PATIENCE_MS)) as (wire, board, _):
        desk.answered()
        wire.type(b"\x03")
        assert board.wait(DEADLINE) in (128 + signal.SIGINT, -signal.SIGINT, 1)


def test_nothing_is_allocated(target: broker.Broker) -> None:
    """Over the console, with a bridge and a broker: see proof.py of ../device."""
    with bench(target, "prove.py", next(_names)) as (_, board, _):
        assert board.wait(DEADLINE) == 0, board.told
    assert board.told.split() == ["SEEN", "0", "0", "0"]
