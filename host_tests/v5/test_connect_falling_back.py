"""connect() of a client with version=None, against brokers that do not speak MQTT 5."""

from __future__ import annotations

import pytest

from flatmq import Client, MQTTError
from v5.broker5 import CLOSES_ON_LEVEL_5, REFUSES_LEVEL_5, UNSUPPORTED_VERSION, Broker5

ANSWER_MS = 15000


@pytest.mark.parametrize(
    ("answer", "levels"),
    [(CLOSES_ON_LEVEL_5, [5, 5, 4]), (REFUSES_LEVEL_5, [5, 4]), (UNSUPPORTED_VERSION, [5, 4])],
    ids=["closed", "CONNACK of 3.1.1", "reason code 0x84"],
)
def test_connect_goes_on_in_3_1_1(answer: bytes, levels: list[int]) -> None:
    with Broker5() as broker:
        broker.level_5 = answer
        client = Client(b"c", broker.host, broker.port, version=None, retry_ms=1, retry_max_ms=1)
        client.connect(timeout_ms=ANSWER_MS)
        assert (client.level, client.error, broker.levels) == (4, None, levels)
        client.disconnect()
        assert broker.complaints == []


def test_a_refusal_that_another_version_does_not_mend_is_raised() -> None:
    with Broker5() as broker:
        broker.answer_with("CONNACK", 0x87)
        client = Client(b"c", broker.host, broker.port, version=None, retry_ms=1, retry_max_ms=1)
        with pytest.raises(MQTTError) as raised:
            client.connect(timeout_ms=ANSWER_MS)
        assert (raised.value.kind, raised.value.code, broker.levels) == ("refused", 0x87, [5])
        client.disconnect()
