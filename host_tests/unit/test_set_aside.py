"""A message or subscription that the broker closes the connection on blocks no other.

It is set aside only with a proof: it was alone in flight when the broker closed, `give_up` times,
and the broker has acknowledged another message since the first of them. A subscription is never
given up. What a broker does for a while to everybody costs nothing.
"""

import builtins
import errno
from collections.abc import Callable
from itertools import pairwise

import pytest

import peer
from brokers.scripted import PUBLISH, SUBSCRIBE, Connection, ScriptedBroker
from packets.strict import Packet, Raw
from unit.both_versions import VersionBench
from unit.fake_link import Clock, raises

GIVE_UP = 3
BAD = b"bad"
MINUTE = 60
HOUR = 60 * MINUTE
PATIENCE = 11 * MINUTE  # a little more than the longest pause
STEP = 100  # ms, less than the shortest wait before a try

Made = Callable[..., "Broker"]


class Broker(ScriptedBroker):
    """Has time pass as it does on a desk.

    `wrong` are the return codes in the answer to a SUBSCRIBE for "secret", if there are any.
    """

    wrong = b""

    def __init__(self, clock: Clock, **options) -> None:
        self.clock = clock
        super().__init__(clock, **{"retry_ms": 500, "retry_max_ms": 60_000, **options})

    def run(self, seconds: float, until: Callable[[], object] = lambda: False) -> bool:
        """Poll the client and answer it for this time. Returns whether the condition held."""
        self.client.start()
        end = self.clock.now + 1000 * seconds
        while self.clock.now < end:
            self.serve()
            if until():
                return True
            self.client.poll(STEP)
        return bool(until())

    def settles(self, seconds: float = PATIENCE) -> None:
        """Assert that nothing is pending any more within this time."""
        assert self.run(seconds, lambda: self.client.pending == 0 and self.client.connected), (
            f"{self.client!r}, {self.client.error}"
        )

    def _handle(self, connection: Connection, raw: Raw) -> None:
        packet = connection.decoded(raw)
        if self.wrong and [each.topic for each in packet.filters] == [b"secret"]:
            self.requests.append((raw.first >> 4, b"secret"))
            properties = b"\0" if self.level == 5 else b""
            pid = packet.pid.to_bytes(2, "big")
            connection.send(peer.packet(raw.first + 14 & 0xF0, pid + properties + self.wrong))
        else:
            super()._handle(connection, raw)

    def refuses_bad(self) -> None:
        """Close the connection on each message to BAD."""
        self.refuses = lambda message: message.topic == BAD

    @property
    def tries(self) -> list[Packet]:
        """The PUBLISH to BAD, of all connections."""
        return [p for c in self.connections for p in c.published if p.topic == BAD]

    @property
    def taken(self) -> list[bytes]:
        """The payloads of the messages that it took, in order; duplicates once."""
        return list(dict.fromkeys(message.payload for message in self.onward))


@pytest.fixture
def made(clock: Clock, version: int) -> Made:
    """A function that makes a broker and its client, with these options of the client."""

    def make(**options) -> Broker:
        return Broker(clock, version=version, **{"give_up": GIVE_UP, **options})

    return make


@pytest.fixture
def every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other load of the code for what a broker refuses finds no memory."""
    real = builtins.__import__
    loaded = {"alone": 0, "strays": 0}

    def load(name, globals=None, locals=None, fromlist=(), level=0):
        module = name.rpartition(".")[2]
        if level and module in loaded:
            loaded[module] += 1
            if loaded[module] % 2:
                raise MemoryError(f"memory allocation failed for {name}")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", load)


# Messages


def test_it_goes_behind_the_others_when_identifiers_begin_anew(made: Made) -> None:
    """The queue is looked through for one that is free, and the message must be in it then."""
    broker = made(give_up=100)
    broker.refuses_bad()
    client = broker.client
    client.publish(BAD, b"x", 1)
    for number in range(3):
        client.publish(b"good", b"%d" % number, 1)
    client.stop = client.last_id + 1
    assert broker.run(MINUTE, lambda: broker.taken == [b"0", b"1", b"2"])
    broker.refuses = lambda message: False
    broker.settles()
    assert broker.taken[3:] == [b"x"]


@pytest.mark.parametrize(("give_up", "closed", "memory"), [
    (None, None, "enough"),
    (1, errno.ECONNRESET, "enough"),
    (2, errno.EPIPE, "enough"),
    (3, None, "short"),
    (10, errno.ECONNABORTED, "enough"),
])  # fmt: skip
@pytest.mark.parametrize("forgets", [False, True], ids=["kept", "forgotten"])
@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_set_aside_with_a_proof(
    qos: int,
    forgets: bool,
    give_up: int | None,
    closed: int | None,
    memory: str,
    clock: Clock,
    version: int,
    request: pytest.FixtureRequest,
) -> None:
    """After as many tries as were asked for, however the peer closes."""
    if memory == "short":
        request.getfixturevalue("every_other")
    broker = Broker(clock, version=version, **({"give_up": give_up} if give_up else {}))
    give_up = give_up or 5
    broker.forgets = forgets
    broker.error = OSError(closed, "closed") if closed else None
    broker.refuses_bad()
    client = broker.client
    client.publish(BAD, b"x", qos)
    for number in range(3):
        client.publish(b"good", b"%d" % number, 1)
    broker.settles()
    assert [topic for _, topic in broker.reports] == [BAD]
    assert isinstance(broker.reasons[0], str) and broker.reasons[0]
    assert client.stats.dropped == 1
    assert broker.taken == [b"0", b"1", b"2"]
    assert give_up <= len(broker.tries) <= give_up + 4
    client.publish(b"good", b"end", qos)
    broker.settles()
    assert (broker.taken[-1], client.stats.dropped) == (b"end", 1)


@pytest.mark.parametrize("qos", [1, 2])
def test_alone_it_is_tried_for_ever_with_growing_pauses(qos: int, made: Made) -> None:
    broker = made()
    broker.refuses_bad()
    client = broker.client
    client.publish(BAD, b"x", qos)
    broker.run(HOUR)
    assert (broker.reports, client.stats.dropped, client.pending) == ([], 0, 1)
    # The longest pause is retry_max_ms, of which at least a half is kept, or ten minutes.
    assert HOUR / PATIENCE <= len(broker.tries) < HOUR / 30 + 20
    broker.refuses = lambda message: False
    broker.settles()
    assert (broker.taken, broker.reports) == ([b"x"], [])


@pytest.mark.parametrize("qos", [1, 2])
def test_once_it_is_dropped_the_others_need_not_wait_for_each_other(qos: int, made: Made) -> None:
    broker = made(give_up=0)
    broker.refuses_bad()
    client = broker.client
    pid = client.publish(BAD, b"x", qos)
    assert broker.run(PATIENCE, lambda: client.stats.losses >= GIVE_UP and not client.connected)
    assert client.drop(pid)
    client.publish(b"good", b"0", 1)
    broker.settles()
    broker.mute = {PUBLISH}
    for payload in (b"1", b"2", b"3"):
        client.publish(b"good", payload, 1)
    broker.serve()
    client.poll()
    broker.serve()
    assert [p.payload for p in broker.connections[-1].published] == [b"0", b"1", b"2", b"3"]


def test_a_message_at_qos_0_goes_behind_the_others_and_no_other_in_its_place(clock: Clock) -> None:
    """The broker has closed on it twice, and before on the release of one at QoS 2."""
    bench = VersionBench(clock, 4, clean_session=False).online()
    client = bench.client
    released = client.publish(b"released", b"", 2)
    client.poll()
    bench.feed(peer.pubrec(released))
    for _ in range(3):
        bench.lose()
        bench.online(present=True)
        bench.feed(peer.PINGRESP)
    bench.lose()
    client.publish(b"zero", bytes(20))
    last = client.publish(b"last", b"", 1)
    for _ in range(2):
        bench.online(present=True)
        bench.stream.room = 3  # of the message
        bench.feed(peer.PINGRESP)
        assert bytes(bench.stream.written).endswith(b"\x30\x1a\0")
        bench.stream.ended = True
        bench.drain()
    bench.online(present=True)
    bench.feed(peer.PINGRESP)
    sent = [peer.take_apart(p) for p in bench.sent() if p.first >> 4 == 3]
    assert [p.pid for p in sent] == [last]


# Subscriptions


# How a broker refuses a SUBSCRIBE for "secret": it closes the connection, or answers with return
# codes of which there must be one, and which must be allowed, or with more than fit in `rx_size`.
WAYS = pytest.mark.parametrize(
    ("wrong", "reason"),
    [(b"", "closed"), (b"\0\0", "rule"), (b"\5", "rule"), (bytes(600), "rule")],
    ids=["closes", "two codes", "code 5", "too large"],
)


def secretive(made: Made, wrong: bytes = b"", **options) -> Broker:
    """Return a broker that refuses a SUBSCRIBE for "secret"."""
    broker = made(**options)
    broker.wrong = wrong
    broker.forbidden = {b"secret"}
    return broker


def asked(broker: Broker, topic: bytes = b"secret") -> int:
    """Return how many times a topic filter was asked for."""
    return broker.requests.count((SUBSCRIBE, topic))


@pytest.mark.parametrize("clean", [True, False])
def test_access_control_that_is_ill_for_a_while_costs_no_subscription(
    clean: bool, made: Made
) -> None:
    """It closes on every SUBSCRIBE for 20 seconds."""
    broker = made(give_up=5, clean_session=clean)
    names = [b"a", b"b", b"c"]
    broker.forbidden = set(names)
    subscriptions = [broker.client.subscribe(name, print, 1) for name in names]
    broker.run(20)
    broker.forbidden = set()
    assert broker.run(PATIENCE, lambda: broker.filters == dict.fromkeys(names, 1))
    broker.run(1)
    assert [s.granted for s in subscriptions] == [b"\1"] * 3
    # The broker forgets: all of them are in force, so all are asked for again.
    broker.core.forget(b"unit")
    assert broker.run(PATIENCE, lambda: broker.filters == dict.fromkeys(names, 1))


@WAYS
def test_a_subscription_that_is_refused_blocks_nothing(
    wrong: bytes, reason: str, made: Made
) -> None:
    broker = secretive(made, wrong, inflight=64, tx_size=4096)
    client = broker.client
    secret = client.subscribe(b"secret", print, 1)
    public = client.subscribe(b"public", print, 1)
    sent = []
    for number in range(600):
        if client.publish(b"t", b"%d" % number, 1 + number % 2) is not None:
            sent.append(b"%d" % number)
        broker.run(1)
    broker.settles()
    assert broker.taken == sent
    assert len(sent) == 600, "publish had room each time"
    assert public.granted == b"\1"
    assert secret.granted != b"\1"
    assert client.stats.losses <= asked(broker)


@WAYS
@pytest.mark.parametrize("memory", ["enough", "short"])
def test_a_refused_subscription_is_reported_once_and_tried_with_growing_pauses(
    memory: str, wrong: bytes, reason: str, made: Made, request: pytest.FixtureRequest
) -> None:
    broker = secretive(made, wrong)
    if memory == "short":
        request.getfixturevalue("every_other")
    client = broker.client
    secret = client.subscribe(b"secret", print, 1)
    moments: list[float] = []

    def watch() -> bool:
        moments.extend([broker.clock.now / 1000] * (asked(broker) - len(moments)))
        return False

    broker.run(3 * HOUR, watch)
    assert broker.reports == [(0, b"secret")]
    assert reason in broker.reasons[0]
    gaps = [after - before for before, after in pairwise(moments)]
    assert all(5 * MINUTE * 0.9 < gap < 11 * MINUTE for gap in gaps[-5:]), gaps
    assert sum(gap < MINUTE for gap in gaps) < 25
    assert broker.run(MINUTE, lambda: client.connected), "it is online in between"
    assert client.stats.losses <= len(moments)
    broker.wrong = b""
    broker.forbidden = set()
    assert broker.run(PATIENCE, lambda: secret.granted == b"\1")
    assert broker.filters == {b"secret": 1}
    assert len(broker.reports) == 1


def test_a_subscription_that_was_refused_is_asked_for_at_once_after_a_new_start(
    made: Made,
) -> None:
    broker = secretive(made)
    client = broker.client
    secret = client.subscribe(b"secret", print, 1)
    broker.run(HOUR)
    broker.forbidden = set()
    client.disconnect()
    client.start()
    assert broker.run(5, lambda: secret.granted == b"\1")


def test_a_dropped_message_is_reported_even_if_another_hook_raises(clock: Clock) -> None:
    reports = []
    bench = VersionBench(clock, 4, on_dropped=lambda *report: reports.append(report)).online()
    client = bench.client
    pid = client.publish(b"t", b"x", 1)
    client.ping()
    client.gate = raises(RuntimeError("the flash is full"))
    with pytest.raises(RuntimeError):
        client.drop(pid)
    assert reports == [(pid, b"t", "dropped by the application")]
