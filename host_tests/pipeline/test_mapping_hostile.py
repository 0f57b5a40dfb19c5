"""Whatever arrives, a mapping makes packs of it, or says why not, and raises nothing else."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import sizes
from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.mapping import Mapping
from flatmq_tools.pipeline.mapping.sparkplug_schema import payload_class
from pipeline.test_mapping_sparkplug import BY_ALIAS, DBIRTH, DDATA, NBIRTH, metric

SCALARS = (
    0, -1, 1.5, True, False, None, 10**30, 10**400, 1e308, -0.0, "", "on", "1e999", "12", "\ud83d",
    "\x00", "\N{SNOWMAN}" * 50, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00",
    "0001-01-01T00:00+14:00", "9999-12-31T23:59:59.9-14:00", "F", "NotifyStatus", "hPa",
)  # fmt: skip
KEYS = (
    "temperature", "last_seen", "Time", "TempUnit", "params", "ts", "events", "component",
    "method", "object", "rxInfo", "gatewayId", "time", "id", "", "a/b", "**", "\ud83d", "k" * 1200,
    "\x00", "0", "b", "s",
)  # fmt: skip
TOPICS = (
    "zigbee2mqtt/x", "zigbee2mqtt/x/availability", "homeassistant/sensor/x/state",
    "homeassistant/sensor/x/brightness", "tele/x/SENSOR", "tele/x/STATE", "stat/x/RESULT",
    "tele/x/LWT", "shellies/x/relay/0/energy", "shellies/x/input_event/0",
    "shelly/events/rpc", "shelly/status/switch:0", "application/1/device/2/event/up",
    "spBv1.0/g/DBIRTH/n/d", "spBv1.0/g/NDATA/n", "own/x", "own/\ud83d",
    "own/" + "y" * 3000, "\ud83d", "", "/", "own/\x00",
)  # fmt: skip
METRICS = [
    metric(**fields)
    for fields in (
        {"name": b"\xff", "int_value": 1}, {"name": b"n" * 1500, "long_value": (1 << 64) - 1},
        {"double_value": float("-inf")}, {"float_value": float("nan"), "datatype": 9},
        {"string_value": b"\xed\xa0\xbd"}, {"bytes_value": b"\x00", "datatype": 17},
        {"name": None}, {"is_null": True, "datatype": 40}, {"boolean_value": True, "datatype": 1},
    )
]  # fmt: skip
# A rule that uses every key.
OWN = """
[[rule]]
topic = "own/{x}"
format = "json"
device_from = "id"
quantity = "{x}/{path}"
strip = "params"
text_numbers = true
time = { path = "time", as = ["iso", "ms"], zone = "Europe/Berlin" }
boot = "b"
seq = "s"
arrays = { "**" = "id" }
values = { "**" = { unit = "Cel", scale = 1e300, offset = -1 } }
"""


@pytest.fixture(scope="module")
def mapping(tmp_path_factory: pytest.TempPathFactory) -> Mapping:
    own = tmp_path_factory.mktemp("mapping") / "own.toml"
    own.write_text(OWN)
    names = [name for name in files.shipped() if name not in ("plain", "json")]
    return files.load([str(own), *names, "plain", "json"])


def document(random: random.Random, depth: int = 0) -> Any:
    kind = random.random()
    if depth > 4 or kind < 0.45:
        return random.choice(SCALARS)
    size = random.choice((0, 1, 2, 3, 8))
    if kind < 0.85:
        return {random.choice(KEYS): document(random, depth + 1) for _ in range(size)}
    return [document(random, depth + 1) for _ in range(size)]


def written(random: random.Random) -> bytes:
    """A JSON document, now and then damaged."""
    made = document(random) if random.random() < 0.5 else {
        key: document(random, 3) for key in random.sample(KEYS, 8)
    }  # fmt: skip
    text = json.dumps(made, ensure_ascii=random.random() < 0.8)
    found = bytearray(text.encode("utf-8", "surrogatepass"))
    if random.random() < 0.3 and found:
        for _ in range(random.randint(1, 4)):
            found[random.randrange(len(found))] = random.choice(b'{}[]",:\\u0dnE9\xff\x00 ')
    return bytes(found)


def protobuf(chance: random.Random) -> bytes:
    """Some of the metrics of another implementation, and wrong ones, now and then damaged."""
    made = payload_class()()
    for payload in chance.sample([NBIRTH, DBIRTH, DDATA, BY_ALIAS, *METRICS], 3):
        made.MergeFromString(payload)
    chosen = chance.sample(list(made.metrics), min(len(made.metrics), chance.randint(0, 4)))
    del made.metrics[:]
    made.metrics.extend(chosen)
    for one in chosen[:1]:
        one.timestamp = chance.getrandbits(chance.choice((10, 41, 64)))
    made.timestamp = chance.choice((0, 1_772_366_400_000, (1 << 64) - 1))
    found = bytearray(made.SerializeToString())
    if chance.random() < 0.3 and found:
        found[chance.randrange(len(found))] = chance.getrandbits(8)
    return bytes(found)


def check(mapping: Mapping, topic: str, payload: bytes, received: int | None) -> bool:
    """Return whether a message became packs, and check that the result fits into a table."""
    reading = mapping.reading(topic, payload, received)
    if reading.reason is not None:
        assert reading.reason.encode()
        assert len(reading.reason) <= 300
        # No exception but those that a parser means.
        assert not re.match(r"\w+Error: ", reading.reason), (reading.reason, topic, payload)
    for pack in reading.packs:
        assert pack.device
        pa.array([pack.device], pa.string())
        pa.array([pack.time, *(r.time for r in pack.records)], pa.timestamp("us", tz="UTC"))
        pa.array([pack.boot, pack.seq], pa.int64())
        pa.array([t for r in pack.records for t in (r.quantity, r.unit, r.text)], pa.string())
        pa.array([r.value for r in pack.records], pa.float64())
        for record in pack.records:
            assert sum(v is not None for v in (record.value, record.text, record.flag)) == 1
            assert record.quantity
            assert record.value is None or abs(record.value) <= 1.8e308
    return bool(reading.packs)


SPARKPLUG = [topic for topic in TOPICS if topic.startswith("spB")]


@pytest.mark.parametrize(
    ("made", "topics", "least", "most"),
    [
        (written, TOPICS, 0.05, 0.4),
        (protobuf, SPARKPLUG, 0.05, 0.9),
        (lambda chance: chance.randbytes(chance.randint(0, 40)), TOPICS, 0.0, 0.4),
    ],
    ids=["documents", "protobuf", "bytes"],
)
def test_whatever_arrives(
    mapping: Mapping,
    made: Callable[[random.Random], bytes],
    topics: Sequence[str],
    least: float,
    most: float,
) -> None:
    """Some of it is read, and some is not."""
    chance = random.Random(3)
    rounds = 12_000 if sizes.whole() else 3_000
    good = 0
    for _ in range(rounds):
        received = chance.choice((None, 0, 1_772_366_400_000_000))
        good += check(mapping, chance.choice(topics), made(chance), received)
    assert rounds * least <= good < rounds * most


def test_what_a_parser_raises_is_a_dead_letter(
    mapping: Mapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of a parser costs the message alone."""

    def fail(*_: object) -> None:
        raise KeyError("\ud83d")

    monkeypatch.setattr("flatmq_tools.pipeline.mapping.json_document.read", fail)
    reason = mapping.reading("zigbee2mqtt/x", b"{}", 0).reason
    assert reason == "KeyError: '\\ud83d'"


def test_much_of_everything(mapping: Mapping) -> None:
    deep = b"[" * 100_000
    wide = json.dumps({f"k{n}": n for n in range(10_000)}).encode()
    for payload in (
        deep,
        deep + b"]" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 100_000,
        b'"' + b"x" * 1_000_000,
    ):
        assert not check(mapping, "zigbee2mqtt/x", payload, 0)
    assert check(mapping, "zigbee2mqtt/x", wide, 0)
