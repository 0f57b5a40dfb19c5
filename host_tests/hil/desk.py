"""The desk's end of the broker: a client of another make, which counts what a board sends."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from types import TracebackType

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

ANSWER = 30.0  # seconds that the broker may take


class DeskError(RuntimeError):
    """The broker cannot be reached from here."""


class Desk:
    """Counts the numbers that arrive under the topic `token`; use it as a context manager."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._token = token
        self._arrived: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._changed = threading.Condition()
        self._subscribed = threading.Event()
        self._client = client = paho.Client(CallbackAPIVersion.VERSION2)
        client.on_connect = lambda *_: client.subscribe(f"{token}/#", 2)
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_message = self._take
        try:
            client.connect(host, port)
        except OSError as error:
            raise DeskError(f"no broker answers here at {host}:{port} ({error})") from error

    def __enter__(self) -> Desk:
        self._client.loop_start()
        if not self._subscribed.wait(ANSWER):
            self._client.loop_stop()
            raise DeskError("the broker does not let this machine subscribe")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, client: object, userdata: object, message: paho.MQTTMessage) -> None:
        with self._changed:
            self._arrived[message.topic.removeprefix(f"{self._token}/")][int(message.payload)] += 1
            self._changed.notify_all()

    def missing(self, topic: str, count: int) -> list[int]:
        """Return which numbers below `count` have not arrived.

        It returns when nothing new has come for a while, or as soon as all are there.
        """
        with self._changed:
            while True:
                there = self._arrived[topic]
                left = [n for n in range(count) if not there[n]]
                if not left or not self._changed.wait(5):
                    return left

    def repeated(self, topic: str) -> int:
        """Messages that came more than once."""
        with self._changed:
            return sum(n - 1 for n in self._arrived[topic].values() if n > 1)
