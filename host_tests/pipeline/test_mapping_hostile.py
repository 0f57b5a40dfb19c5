"""A mapping makes packs of messages that are spoilt, or says why not, and raises nothing else."""

import gzip
import json
import random
import re
import tracemalloc
from decimal import Decimal
from typing import Any

import cbor2
import pyarrow as pa
import pytest

import sizes
from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.mapping import Mapping
from flatmq_tools.pipeline.mapping.sparkplug import payload_class
from pipeline.fuzz_packs import damaged
from pipeline.test_mapping_sparkplug import BY_ALIAS, DBIRTH, DDATA, NBIRTH, NODE_BORN, metric
from pipeline.test_mappings import messages, payload_of

SCALARS = (
    0, -1, 1.5, True, False, None, 10**30, 10**400, 1e308, -0.0, "", "on", "1e999", "12", "\ud83d",
    "\x00", "\N{SNOWMAN}" * 50, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00",
    "0001-01-01T00:00+14:00", "9999-12-31T23:59:59.9-14:00", "F", "NotifyStatus", "hPa",
)  # fmt: skip
CBOR = cbor2.dumps(
    {"a": {"b": {"t": b"\x01\x02\x00\x00\x80\x3f", "u": Decimal("1.5")}}, 1: {"c": 2}}
)
CSV = b'id,time,b,s,t\nx,1772366400,1,2,3.5\n"y",,,,nan\n'
KEYS = (
    "temperature", "last_seen", "Time", "TempUnit", "params", "ts", "events", "component",
    "method", "object", "rxInfo", "gatewayId", "time", "id", "", "a/b", "**", "\ud83d", "k" * 1200,
    "\x00", "0", "b", "s",
)  # fmt: skip
TOPICS = ("own/\ud83d", "own/" + "y" * 3000, "\ud83d", "", "/", "own/\x00", "zigbee2mqtt/x")
METRICS = [
    metric(**fields)
    for fields in (
        {"name": b"\xff", "int_value": 1}, {"name": b"n" * 1500, "long_value": (1 << 64) - 1},
        {"double_value": float("-inf")}, {"float_value": float("nan"), "datatype": 9},
        {"string_value": b"\xed\xa0\xbd"}, {"bytes_value": b"\x00", "datatype": 17},
        {"name": None}, {"is_null": True, "datatype": 40}, {"timestamp": 1 << 63, "int_value": 1},
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
decode."**/F" = { as = "base64", format = "cbor" }
decode."**/t" = { as = "hex", layout = "s16:a f32:b<" }
[[rule]]
topic = "own/{gateway}/cbor"
format = "cbor"
each = "*/{d}"
device = "{gateway}/{d}"
quantity = "{d}/{path}"
decode = { "**/t" = { as = "hex", layout = "s16:a f32:b<" } }
[[rule]]
topic = "own/csv"
format = "csv"
device_from = "id"
time = { path = "time", as = ["iso", "s"] }
boot = "b"
seq = "s"
"""


@pytest.fixture(scope="module")
def mapping(tmp_path_factory: pytest.TempPathFactory) -> Mapping:
    own = tmp_path_factory.mktemp("mapping") / "own.toml"
    own.write_text(OWN)
    return files.load([str(own), *files.with_base(), "cbor=cbor", "plain", "json"])


def spoilt(made: Any, chance: random.Random) -> Any:
    """A document, some of whose keys and values are others."""
    if chance.random() < 0.1:
        return chance.choice((*SCALARS, {}, [], made, [made], {chance.choice(KEYS): made}))
    if isinstance(made, dict):
        return {
            key if chance.random() < 0.9 else chance.choice(KEYS): spoilt(value, chance)
            for key, value in made.items()
        }
    return [spoilt(value, chance) for value in made] if isinstance(made, list) else made


def check(mapping: Mapping, topic: str, payload: bytes, received: int | None) -> bool:
    """Return whether a message became packs, and check that the result fits into a table."""
    reading = mapping.reading(topic, payload, received)
    if reading.reason is not None:
        assert reading.reason.encode()
        assert len(reading.reason) <= 300
        # No exception but those that a parser means.
        assert not re.match(r"\w+Error: ", reading.reason), (reading.reason, topic, payload)
    assert len({pack[:3] for pack in reading.packs}) == len(reading.packs)
    for pack in reading.packs:
        assert pack.device
        pa.array([pack.device], pa.string())
        pa.array([pack.time, *(r.time for r in pack.records)], pa.timestamp("us", tz="UTC"))
        pa.array([pack.boot, pack.seq], pa.int64())
        pa.array([t for r in pack.records for t in (r.quantity, r.unit, r.text)], pa.string())
        pa.array([r.value for r in pack.records], pa.float64())
        for record in pack.records:
            assert sum(v is not None for v in (record.value, record.text, record.flag)) <= 1
            assert record.quantity
            assert record.value is None or abs(record.value) <= 1.8e308
    return bool(reading.packs)


MESSAGES = [(one["topic"], payload_of(one)) for _, one in messages()]
MESSAGES += [
    ("own/x", b'{"id":7,"b":1,"s":2,"time":1772366400000,"params":{"t":1,"F":[{"id":"x"}]}}'),
    ("own/x/cbor", CBOR),
    ("own/csv", CSV),
    ("own/csv", gzip.compress(CSV * 100, mtime=0)),
    *((NODE_BORN, payload) for payload in (NBIRTH, DBIRTH, DDATA, BY_ALIAS)),
]


def test_whatever_arrives(mapping: Mapping) -> None:
    """Some of it is read, and some is not. Each device or reading has one pack."""
    chance = random.Random(3)
    rounds = 400 if sizes.whole() else 80
    good = 0
    for topic, payload in MESSAGES * rounds:
        made = payload
        if payload[:1] in b"{[" and chance.random() < 0.8:
            try:
                text = json.dumps(spoilt(json.loads(payload), chance), ensure_ascii=False)
                made = text.encode("utf-8", "surrogatepass")
            except ValueError:
                pass  # a dead letter of the fixtures
        elif topic == NODE_BORN and chance.random() < 0.5:
            both = payload_class().FromString(payload)
            both.MergeFromString(chance.choice(METRICS))
            both.timestamp = chance.choice((0, 1_772_366_400_000, (1 << 64) - 1))
            made = both.SerializeToString()
        where = topic if chance.random() < 0.9 else chance.choice(TOPICS)
        received = chance.choice((None, 0, 1_772_366_400_000_000))
        good += check(mapping, where, damaged(made, chance), received)
    assert 0.2 < good / (len(MESSAGES) * rounds) < 0.8


def test_what_a_parser_raises_is_a_dead_letter(
    mapping: Mapping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of a parser costs the message alone."""

    def fail(*_: object) -> None:
        raise KeyError("\ud83d")

    monkeypatch.setattr("flatmq_tools.pipeline.mapping.document.read", fail)
    reason = mapping.reading("zigbee2mqtt/x", b"{}", 0).reason
    assert reason == "KeyError: '\\ud83d'"


def bomb(of: bytes, times: int) -> bytes:
    return gzip.compress(of * times, mtime=0)  # the same in each process


@pytest.mark.parametrize(
    ("payload", "most"),
    [
        (bomb(b" ", 1 << 19), 1 << 16),  # 0.5 KB
        (bomb(b"\0", 1 << 26), 1 << 22),  # 65 KB
        (bomb(b"[1,", 1 << 22), 64 * len(bomb(b"[1,", 1 << 22))),
        (b"".join(bomb(b" ", 1 << 16) for _ in range(50)), 1 << 19),  # members of a file
        (bomb(bomb(b" ", 1 << 26), 1), None),  # is read once, and is then no JSON
    ],
    ids=["small", "large", "json", "members", "nested"],
)
def test_a_compressed_payload_grows_to_a_bound(
    mapping: Mapping, payload: bytes, most: int | None
) -> None:
    tracemalloc.start()
    try:
        reason = mapping.reading("zigbee2mqtt/x", payload, 0).reason
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if most is None:
        assert reason == "not JSON: not UTF-8"
    else:
        assert re.fullmatch(r"gzip: more than (\d+) bytes", reason)
        assert int(reason.split()[3]) <= most
    assert peak < 24 << 20
    assert mapping.reading("zigbee2mqtt/bridge/x", payload, 0).packs == []


@pytest.mark.parametrize("payload", [b"\x1f\x8b\x08", bomb(b"{}", 1)[:-5], bomb(b"{}", 1) + b"x"])
def test_a_damaged_compressed_payload(mapping: Mapping, payload: bytes) -> None:
    assert str(mapping.reading("zigbee2mqtt/x", payload, 0).reason).startswith("gzip: ")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x81" * 66 + b"\x00", "nested more than 64 levels deep"),
        (b"\xd8\x1c\x81\xd8\x1d\x00", "larger than itself"),  # an array of itself
        (cbor2.dumps({"k" * 2000: 1}), "longer than 1024"),
        (cbor2.dumps({"k" * 1000: [1] * 5000}), "together much longer than the payload"),
        (cbor2.dumps({1 << 70: 1}), "a key is neither"),
    ],
    ids=range(5),
)
def test_hostile_cbor(payload: bytes, reason: str) -> None:
    found = files.load(["cbor"]).reading("a", payload, 0).reason
    assert found is not None and re.search(reason, found)


def test_much_csv() -> None:
    rule = '[[rule]]\ntopic = "{device}"\nformat = "csv"\n'
    found = Mapping(files.parse(rule, "own.toml"))
    for payload, reason in (
        (b"k" * 1000 + b"\n" + b"1\n" * 100_000, "together much longer than the payload"),
        (b"x" * 200_000, "not CSV: field larger than"),
        (b'"' * 100_001, None),
        (b"a\n\xff", "not a text in UTF-8"),
        (b"k" * 2000 + b"\n1", "longer than 1024"),
        (b"," * 100_000 + b"\n1", None),
        (b"a\n", None),
        (b"\xef\xbb\xbfa\r\n1\r\n", None),
    ):
        assert re.search(reason or "None", str(found.reading("a", payload, 0).reason)), payload[:9]
    (pack,) = found.read("a", b"t\n" + b"1\n" * 100_000, 0) or []
    assert len(pack.records) == 100_000


def test_much_of_everything(mapping: Mapping) -> None:
    deep = b"[" * 100_000
    wide = json.dumps({f"k{n}": n for n in range(10_000)}).encode()
    closed, text = deep + b"]" * 100_000, b'"' + b"x" * 1_000_000
    for payload in (deep, closed, b'{"a":' * 50_000, b"9" * 100_000, text):
        assert not check(mapping, "zigbee2mqtt/x", payload, 0)
    assert check(mapping, "zigbee2mqtt/x", wide, 0)
    field = b'{"id":7,"b":1,"s":2,"x":' + b"[" * 500 + b"]" * 500 + b"}"
    assert mapping.reading("own/x", field, 0).reason == "nested more than 64 levels deep"
