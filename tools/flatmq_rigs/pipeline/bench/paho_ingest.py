"""The ingest with paho-mqtt instead of our client."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from typing import Any

from paho.mqtt.client import CallbackAPIVersion, MQTTMessage
from paho.mqtt.client import Client as Paho

from flatmq_tools.pipeline.ingest import Ingest
from flatmq_tools.pipeline.log import Writer

from .figures import BenchError

_BATCH = 2000  # maximum number of messages that share a sync


class PahoIngest(Ingest):
    """An ingest on paho-mqtt, for a session that has its subscription.

    Messages are appended in batches, as the packets that they were, synced, and then
    acknowledged.
    """

    subscribed = True

    def __init__(
        self, log: Writer, broker: tuple[str, int], filters: Sequence[str], client_id: str
    ) -> None:
        super().__init__(log, broker, filters, client_id=client_id)
        self._packets: list[bytes] = []
        self._pending: list[tuple[int, int]] = []
        self._paho = Paho(
            CallbackAPIVersion.VERSION2, client_id, clean_session=False, manual_ack=True
        )
        self._paho.on_message = self._on_message

    def _on_message(self, _client: Paho, _data: object, m: MQTTMessage) -> None:
        topic = m.topic.encode()
        size = 4 + len(topic) + len(m.payload)
        head = bytes((0x30 | m.dup << 3 | m.qos << 1 | m.retain, size))
        if size > 127:
            head = bytes((head[0], size & 127 | 128, size >> 7))
        self._packets.append(
            head + len(topic).to_bytes(2, "big") + topic + m.mid.to_bytes(2, "big") + m.payload
        )
        self._pending.append((m.mid, m.qos))

    def start(self) -> None:
        """Connect."""
        self._paho.connect(*self.broker)

    def poll(self, ms: int = 0) -> bool:
        """Take in what has come, or comes within `ms`."""
        client, packets = self._paho, self._packets
        sock: Any = client.socket()
        if sock is None:
            raise BenchError("paho-mqtt lost its connection")
        select.select([sock], [sock] if client.want_write() else [], [], ms / 1000)
        before = -1
        while before != len(packets) < _BATCH:  # as long as there is something to read
            before = len(packets)
            client.loop_read()
        if packets:
            self.log.append(b"".join(packets), len(packets), time.time_ns() // 1000)
            self.log.sync()
            packets.clear()
            for mid, qos in self._pending:
                client.ack(mid, qos)
            self._pending.clear()
        if client.want_write():
            client.loop_write()
        client.loop_misc()
        return False

    def stop(self) -> None:
        """Disconnect."""
        super().stop()
        self._paho.disconnect()
