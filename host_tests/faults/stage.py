"""The stage of a scenario: a broker, the proxy before it, and what is seen behind them.

The words that a scenario asks with are the methods whose names begin with `do_`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import cast

import paho.mqtt.client as paho

from brokers.fake import FakeBroker
from flatmq_rigs.links import Listening
from flatmq_rigs.proxy import Direction, Fault, Proxy, Rules, Way
from flatmq_tools.broker import LOOPBACK, Broker

from .catalogue import LINKS
from .ledger import Ledger, Message, payload, read

# What an observer who is away misses nothing with.
MOSQUITTO = "queue_qos0_messages true\nmax_queued_messages 0\n"
# One that waits for room in flight could be overtaken by the one that says that all have come.
UNBOUNDED = "max_inflight_messages 0\n"
# One that is killed sends messages at QoS 2 twice where there is no limit at all, and loses the
# first one above the limit: no scenario has so many.
ROOM = "max_inflight_messages 5000\n"
PATIENCE = 20.0  # seconds that a broker may take for anything that is asked of it here


class StageError(AssertionError):
    """A scenario asked for something that there is not, or the broker did not do its part."""


class Onlooker:
    """A client of mosquitto that is not ours."""

    def __init__(self, where: Broker, client_id: str, *, clean: bool) -> None:
        self.came: list[tuple[bytes, bytes, int]] = []
        self._where = where
        self._online = False
        self._done: set[int] = set()
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean
        )
        self._client.on_connect = self._connected
        self._client.on_message = self._take
        self._client.on_publish = self._finished
        self._client.on_subscribe = self._finished

    def _connected(self, _client, _data, _flags, reason, _properties) -> None:
        self._online = not reason.is_failure

    def _take(self, _client, _data, message: paho.MQTTMessage) -> None:
        self.came.append((message.topic.encode(), message.payload, message.qos))

    def _finished(self, _client, _data, mid: int, *_rest) -> None:
        self._done.add(mid)

    @contextlib.contextmanager
    def online(self) -> Iterator[None]:
        """Connected for as long as the block lasts."""
        self._online = False
        self._client.connect(self._where.host, self._where.port)
        self.until(lambda: self._online)
        yield
        self._client.disconnect()
        self._client.loop(0)

    def until(self, condition: Callable[[], object]) -> None:
        """Serve the connection until the condition holds.

        Raises StageError if that takes longer than PATIENCE, or if the connection ends
        first.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            code = self._client.loop(0.05)
            if code != paho.MQTT_ERR_SUCCESS or time.monotonic() > deadline:
                raise StageError(f"mosquitto: {paho.error_string(code)}")

    def subscribe(self, topic_filter: str) -> None:
        """Subscribe at QoS 2; it is done when this returns."""
        mid = self._client.subscribe(topic_filter, 2)[1]
        assert mid is not None
        self.until(lambda: mid in self._done)

    def publish(self, messages: list[tuple[str, bytes, int]], retain: bool = False) -> None:
        """Publishes; mosquitto has them when this returns."""
        mids = {self._client.publish(*message, retain=retain).mid for message in messages}
        self.until(lambda: mids <= self._done)

    def settle(self) -> None:
        """Have mosquitto write its file: in the turn of its loop after more than one change."""
        for _ in range(5):
            self.publish([("settle", b"a retained message is a change", 1)], retain=True)


class Stage:
    """The broker of one scenario, with a proxy before it and a ledger behind it.

    `token` is what its topics begin with. An `own` mosquitto keeps its files, so that it can be
    killed; else it is `shared`. `port` and `ca` are those of the client's link; all others use
    plain TCP. As a context manager it is stopped at the end of the block.
    """

    def __init__(self, kind: str, token: str, shared: Listening | None) -> None:
        self.ledger = Ledger()
        self.saw: list[str] = []
        self.after = 0  # ms until the application saw it
        self.longest = 0  # µs of the longest poll(20)
        self.heap: list[int] = []  # bytes more than before
        self._token = token
        self._echo = False
        self._often = False
        self._numbers = 0
        self._watched: tuple[Direction, int, str] | None = None
        self._after_watch: list[str] = []
        self._next_rules = Rules()
        self._always = Rules()
        self._blackholes: list[socket.socket] = []
        self._own: Broker | Listening | None = None
        self._fake: FakeBroker | None = None
        self._collector: Onlooker | None = None
        self._clear = LINKS[kind] == "tcp"
        self.ca = ""
        self.broker: Broker
        if kind.startswith("fake"):
            self.broker = self._own = self._fake = FakeBroker()
            port = self.broker.port
        else:
            if shared is None:
                shared = self._own = Listening(
                    LINKS[kind], persistence=True, extra=MOSQUITTO + ROOM
                )
            self.broker, port, self.ca = shared.broker, shared.port, shared.ca
            # Away until the end, so that nothing that happens to the broker disturbs it.
            self._collector = Onlooker(self.broker, f"{token}-collector", clean=False)
            with self._collector.online():
                self._collector.subscribe(f"{token}/up/#")
        self.proxy = Proxy(self.broker.host, port, self._rules)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self.proxy.stop()
        finally:
            for hole in self._blackholes:
                hole.close()
            if self._own:
                self._own.stop()

    def hear(self, words: list[str]) -> None:
        """Handle a line that the scenario printed."""
        match words:
            case ["@accepted", topic, number, size, qos]:
                message = Message(topic, int(number), int(size), int(qos))
                self.ledger.up.promised.append(message)
                if self._echo:
                    self.ledger.down.promised.append(message)
            case ["@twice", topic, number, size, qos]:
                if self._often:
                    message = Message(topic, int(number), int(size), int(qos))
                    self.ledger.up.twice.add(message)
            case ["@doubted", topic, number, size, qos]:
                if self._often:
                    message = Message(topic, int(number), int(size), int(qos))
                    self.ledger.up.doubted.add(message)
            case ["@got", topic, number, size, qos, ok]:
                message = Message(topic, int(number), int(size), int(qos))
                self.ledger.down.came.append(message if ok == "1" else None)
            case ["@saw", ms, *what]:
                self.after = self.after or int(ms)
                self.saw.append(" ".join(what))
            case ["@longest", us]:
                self.longest = max(self.longest, int(us))
            case ["@heap", more]:
                self.heap.append(int(more))
            case ["@end"]:
                pass
            case _:
                raise StageError(f"the scenario printed something unknown: {words}")

    def carry_out(self, words: list[str]) -> str:
        """Does what the scenario asks for, and returns the answer."""
        act = getattr(self, f"do_{words[0]}", None)
        if act is None:
            raise StageError(f"the scenario asks for something unknown: {words}")
        return act(*words[1:]) or "done"

    def problems(self) -> list[str]:
        """Return what went wrong that the client could not see; call it at the end."""
        if self._fake:
            came = [read(m.topic, m.payload, m.qos) for m in self._fake.onward]
            self.ledger.up.came = came
            return self.ledger.problems() + self._fake.complaints
        assert self._collector is not None
        end = f"{self._token}/up/end"
        with self._collector.online():
            self._collector.publish([(end, b"", 2)])
            self._collector.until(lambda: any(m[0] == end.encode() for m in self._collector.came))
            # More than may be in flight are overtaken by that.
            with contextlib.suppress(StageError):
                self._collector.until(lambda: not self._missing(end))
        self._missing(end)
        return self.ledger.problems()

    def _missing(self, end: str) -> list[Message]:
        """Return what has not come to the collector, apart from `end`."""
        assert self._collector is not None
        self.ledger.up.came = [read(*m) for m in self._collector.came if m[0] != end.encode()]
        return self.ledger.up.missing()

    # What happens to the connection

    def _rules(self, _count: int) -> Rules:
        rules, self._next_rules = self._next_rules, Rules()
        rules.up.delay = self._always.up.delay
        rules.down.delay = self._always.down.delay
        rules.up.trickle = rules.down.trickle = self._always.up.trickle
        # Over TLS the bytes are not packets.
        rules.watch = self._watch if self._clear else None
        return rules

    def do_strike(self, fault: Fault) -> None:
        self.proxy.strike(fault)

    def do_resume(self) -> None:
        self.proxy.resume()

    def do_refuse(self) -> None:
        self.proxy.refuse()

    def do_accept(self) -> None:
        self.proxy.refuse(False)

    def do_limit(self, way: Direction, limit: str, fault: Fault) -> None:
        """Of the next connection, after so many bytes."""
        behaviour = Way(limit=int(limit), then=fault)
        self._next_rules = Rules(**{way: behaviour})

    def do_delay(self, ms: str) -> None:
        """Of every connection from now on, in both directions."""
        self._always.up.delay = self._always.down.delay = int(ms) / 1000

    def do_trickle(self, on: str) -> None:
        """Of every connection from now on, in both directions."""
        self._always.up.trickle = on == "1"

    def do_passed(self) -> str:
        """Bytes that passed on the last connection, up and down."""
        passed = self.proxy.passed[-1]
        return f"{passed['up']} {passed['down']}"

    def do_watch(self, way: Direction, kind: str, *what: str) -> None:
        """Act once, when a packet of that type is about to pass.

        The action is a fault, or "kill" for the broker, "forget" or "intrude" with the
        client's identifier.
        """
        self._after_watch = list(what)
        self._watched = (way, int(kind), what[0])

    def _watch(self, way: Direction, first: int) -> Fault | None:
        watched = self._watched
        if watched is None or (way, first >> 4) != watched[:2]:
            return None
        self._watched = None
        what, *client_id = self._after_watch
        if what in ("kill", "forget", "intrude"):
            getattr(self, f"do_{what}")(*client_id)
            return "cut"
        return cast(Fault, what)

    def do_blackhole(self) -> str:
        """The port of a listener whose queue is full: nobody answers there."""
        listener = socket.create_server((LOOPBACK, 0), backlog=0)
        self._blackholes.append(listener)
        for _ in range(4):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
            self._blackholes.append(waiting)
        return str(listener.getsockname()[1])

    # What happens to the broker

    def do_kill(self) -> None:
        """SIGKILL, once its file says what it has answered."""
        if self._collector:
            settler = Onlooker(self.broker, f"{self._token}-settler", clean=True)
            with settler.online():
                settler.settle()
        self.broker.kill()

    def do_restart(self) -> None:
        self.broker.restart()

    def do_forget(self, client_id: str) -> None:
        """The session of a client."""
        if self._fake:
            self._fake.forget(client_id.encode())
        else:
            with Onlooker(self.broker, client_id, clean=True).online():
                pass

    def do_intrude(self, client_id: str) -> None:
        """Another client takes the session over, and goes."""
        if self._fake:
            self._fake.end()
        else:
            with Onlooker(self.broker, client_id, clean=False).online():
                pass

    def do_publish(self, qos: str, count: str = "1", size: str = "16") -> None:
        """Messages for the client, which its session gets."""
        topic = f"{self._token}/down/{qos}"
        messages = []
        for _ in range(int(count)):
            self._numbers += 1
            messages.append(Message(topic, self._numbers, int(size), int(qos)))
        self.ledger.down.promised += messages
        self._publish(messages)

    def do_publish_and_end(self, qos: str) -> None:
        """A message, and the end of the connection once it has passed."""
        before = self.proxy.passed[-1]["down"]
        size = 200  # far more than any acknowledgement that is still on its way
        self.do_publish(qos, "1", str(size))
        self._until_passed(before + size)
        self.proxy.strike("cut")

    def _until_passed(self, size: int) -> None:
        """So many bytes have gone down the last connection, and the client's system has them."""
        deadline = time.monotonic() + PATIENCE
        while self.proxy.passed[-1]["down"] < size or self.proxy.unsent():
            if time.monotonic() > deadline:
                raise StageError("the message does not come")
            time.sleep(0.001)

    def do_publish_unseen(self, qos: str, size: str) -> None:
        """A message that the client is not to see."""
        self._numbers += 1
        self._publish([Message(f"{self._token}/down/{qos}", self._numbers, int(size), int(qos))])

    def _publish(self, messages: list[Message]) -> None:
        data = [(m.topic, payload(m.number, m.size), m.qos) for m in messages]
        if self._fake:
            for topic, text, qos in data:
                self._fake.publish(topic.encode(), text, qos)
            return
        publisher = Onlooker(self.broker, f"{self._token}-publisher", clean=True)
        with publisher.online():
            publisher.publish(data)

    # How the ledger counts

    def do_echo(self) -> None:
        """Send what the client publishes back to it."""
        self._echo = True

    def do_forgotten(self) -> None:
        """The broker forgot the session: QoS 2 is no longer exactly once."""
        self.ledger.up.again = self.ledger.down.again = True

    def do_often(self) -> None:
        """The broker closes often: see `twice` and `doubted` of a Way."""
        self._often = True

    def do_intact(self) -> None:
        """No connection is lost: nothing may be, at QoS 0 either."""
        self.ledger.up.intact = True
