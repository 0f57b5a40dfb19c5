"""The desk's end of the soak: paho-mqtt, straight at the broker.

It has nothing in common with flatmq, so that no mistake of ours can undo itself at the other end.
"""

from __future__ import annotations

from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from . import plan
from .books import Books

BURST = 30  # messages published between two looks at what came in
LOOK = 0.02  # seconds to wait for something to come in


class PeerError(RuntimeError):
    """The broker does not serve the desk; the text says why."""


class Peer:
    """A client that publishes `messages` below `prefix`/down.

    It keeps `books` on what comes from /up.
    """

    def __init__(self, host: str, port: int, prefix: str, messages: int) -> None:
        self.books = Books(messages)
        self.sent = 0
        self.ready = False  # subscribed
        self.ended = False  # the device's last message came
        self._messages = messages
        self._up = f"{prefix}/up"
        self._topics = [f"{prefix}/down{subject.decode()}" for subject in plan.SUBJECTS]
        self._expected = {
            self._up + subject.decode(): qos for qos, subject in enumerate(plan.SUBJECTS)
        }
        self._payloads = [plan.template(number) for number in range(8)]
        self._why = ""  # the broker is lost
        self._client = client = paho.Client(
            CallbackAPIVersion.VERSION2, reconnect_on_failure=False
        )
        client.max_inflight_messages_set(plan.LEAD)
        client.max_queued_messages_set(0)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        try:
            client.connect(host, port)
        except OSError as error:
            raise PeerError(f"no connection to the broker: {error}") from error

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, more: Any) -> None:
        if reason.is_failure:
            self._why = str(reason)
        else:
            client.subscribe(f"{self._up}/+", 2)

    def _on_subscribe(self, client: Any, data: Any, mid: int, reasons: Any, more: Any) -> None:
        if reasons[0].value != 2:
            self._why = f"it grants {reasons[0]} for {self._up}/+"
        self.ready = True

    def _on_disconnect(self, client: Any, data: Any, flags: Any, reason: Any, more: Any) -> None:
        self._why = self._why or str(reason)

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        expected = self._expected.get(message.topic)
        if expected is None:
            self.ended = True
        else:
            self.books.take(expected, message.qos, message.payload)

    def turn(self, publish: bool) -> None:
        """Publish a burst, if it may, and take what came in. PeerError without the broker."""
        for _ in range(BURST if publish else 0):
            lead = self.sent - 3 * self.books.arrivals[2].next
            if self.sent == self._messages or lead >= plan.LEAD:
                break
            number, qos = divmod(self.sent, 3)
            payload = self._payloads[number & 7]
            payload[:4] = number.to_bytes(4, "big")
            self._client.publish(self._topics[qos], bytes(payload), qos)
            self.sent += 1
        code = self._client.loop(LOOK)
        if self._why or code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise PeerError(f"the broker does not serve the desk: {self._why or code.name}")

    def stop(self) -> None:
        self._client.on_disconnect = None
        self._client.disconnect()
