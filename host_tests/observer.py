"""Somebody else at a broker: a client of another make that hears everything, and publishes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from paho.mqtt import client as paho

PATIENCE = 60.0  # seconds that any one step may take, on a loaded machine


def until(
    what: str, holds: Callable[[], object], turn: Callable[[], object] = lambda: time.sleep(0.02)
) -> None:
    """Wait until that holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come"
        turn()


class Heard(NamedTuple):
    """A message."""

    topic: str
    payload: bytes
    retained: bool = False


class Observer:
    """Subscribed to `topics`, or to everything, until `close`; use it as a context manager.

    `messages` has what was heard, in order; `changed` is notified of each. One with a `name` has
    a session that outlives its connections.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *topics: str,
        user: tuple[str, str] | None = None,
        qos: int = 1,
        name: str = "",
    ) -> None:
        self.port = port
        self.messages: list[Heard] = []
        self.changed = threading.Condition()
        version = paho.CallbackAPIVersion.VERSION2
        self._client = paho.Client(version, name, clean_session=not name)
        self._client.reconnect_delay_set(1, 1)
        self._client.on_message = self._take
        if user:
            self._client.username_pw_set(*user)
        subscribed = threading.Event()
        filters = [(topic, qos) for topic in topics or ("#",)]
        self._client.on_connect = lambda client, *_: client.subscribe(filters)
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect(host, port)
        self._client.loop_start()
        assert subscribed.wait(PATIENCE)

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self.changed:
            self.messages.append(Heard(message.topic, message.payload, message.retain))
            self.changed.notify_all()

    def payloads(self, topic: str) -> list[bytes]:
        """Return what was published to a topic while this client was there."""
        return [m.payload for m in self.messages if m.topic == topic and not m.retained]

    def until(
        self, condition: Callable[[], object], again: Callable[[], object] = lambda: None
    ) -> None:
        """Wait until a condition holds, and call `again` every now and then."""
        deadline = time.monotonic() + PATIENCE
        with self.changed:
            while not condition():
                assert time.monotonic() < deadline, self.messages
                again()
                self.changed.wait(0.05)

    def send(self, topic: str, payload: str | bytes) -> None:
        """Publish at QoS 0."""
        self._client.publish(topic, payload)

    def publish(
        self, topic: str, payload: str | bytes, qos: int = 1, retain: bool = False
    ) -> None:
        """Publish, and wait until the broker has it."""
        sent = self._client.publish(topic, payload, qos, retain)
        sent.wait_for_publish(PATIENCE)
        assert sent.is_published()

    def close(self) -> None:
        """End the connection."""
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def retain(host: str, port: int, topic: str, payload: str | bytes) -> None:
    """Have a broker keep a message of somebody who is there for no longer than that."""
    with Observer(host, port, topic) as somebody:
        somebody.publish(topic, payload, retain=True)


def retained(host: str, port: int, topic: str) -> bytes | None:
    """Return what a client that subscribes now receives on a topic; None for nothing."""
    probe = topic.rpartition("/")[0] + "/probe"
    with Observer(host, port, topic, probe) as late:
        late.publish(probe, b"")
        late.until(lambda: late.payloads(probe))
        first = late.messages[0]
    return first.payload if first.topic == topic else None
