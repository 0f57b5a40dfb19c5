"""Whatever a message is, it becomes rows or a dead letter; CBOR says what JSON says."""

import base64
import gzip
import json
import math
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatmq_tools import senml, senml_cbor
from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.jobs import parsing
from flatmq_tools.pipeline.jobs.parsing import Reads
from flatmq_tools.pipeline.log_rows import topic_text
from flatmq_tools.pipeline.mapping.pack import Record
from flatmq_tools.pipeline.state import batch, taking
from flatmq_tools.pipeline.state.arrivals import State
from flatmq_tools.pipeline.state.store import Place, Store
from flatmq_tools.pipeline.tables import BY_DAY
from pipeline import fuzz_packs
from pipeline.fuzz_packs import GOOD, said
from pipeline.messages import Message, read, table

TOPIC = b"dev/a/telemetry"
AN_X = bytes.fromhex("81a2006178")  # [{"n": "x", and a label and a value follow
HUGE = 1 << 20_000
LARGEST = (1 << 42) - 1  # seq
GROWS = b'[{"bn":"%s","v":1}' % (b"n" * 1000) + b',{"v":2}' * 5000 + b"]"

# Each of 60 arrays has the one inside it twice: 2^60 values in 300 bytes.
TWICE = b"\xd8\x1c\x82" * 60 + b"\xd8\x1c\x80" + b"".join(
    b"\xd8\x1d\x18" + bytes([n]) for n in range(60, 0, -1)
)  # fmt: skip
# A text that is in a thousand records by reference.
TEXTS = cbor2.dumps([{0: "x", 3: "x" * 10_000}] * 1000, string_referencing=True)
SHARED = senml_cbor.SELF_DESCRIBED + TEXTS

HOSTILE = [
    (b'[{"n":"x","vs":"\\ud83d"}]', "vs = '\\ud83d': not Unicode"),
    (b'[{"n":"x","vs":"\xed\xa0\xbd"}]', "not JSON"),  # a surrogate that was encoded
    (b'[{"n":"x","u":"\\ud83d","v":1}]', "u = '\\ud83d': not Unicode"),
    (b'[{"n":"x","bu":"\\ud83d","v":1}]', "bu = '\\ud83d': not Unicode"),
    (b'[{"bn":"\\ud83d","n":"x","v":1}]', "bn = '\\ud83d': not Unicode"),
    (b'[{"n":"\\ude00\\ud83d","v":1}]', "n = '\\ude00\\ud83d': not Unicode"),
    (b'[{"n":"x","v":1,"\\ud83d":1}]', "'\\ud83d': not Unicode"),
    (b'[{"n":"x","v":1,"\\ud83d_":1}]', "'\\ud83d_': not Unicode"),
    (b"[" * 100_000, "not JSON"),
    (b'[{"n":"x","vs":' + b"[" * 900 + b"]" * 900 + b"}]", "vs = a value of type list"),
    (b'[{"n":"x","%s_":1,"v":1}]' % (b"k" * 100_000), "must be understood"),
    (b'[{"n":"x","v":1,"bt":253402300799.9999999}]', "not within the years 1 to 9999"),
    (b'[{"n":"x"}]', "no record has a value"),
    (b'[{"n":"%s","v":1}]' % (b"n" * 2000), "longer than 1024 characters"),
    (GROWS, "together much longer than the payload"),
    (cbor2.dumps([{0: "x", 4: HUGE}]), "vb = a value of type int"),
    (cbor2.dumps([{0: "x", 3: HUGE}]), "vs = a value of type int"),
    (cbor2.dumps([{HUGE: "x", 3: 1}]), "no label of SenML in CBOR"),
    (AN_X + b"\x03\x62\xc3\x28", "not CBOR"),  # text that is not UTF-8
    (AN_X + b"\x02\xd8\x23\x61(", "not CBOR"),  # a regular expression that is none
    (AN_X + b"\x03\xd8\x1c\x81\xd8\x1d\x00", "larger than itself"),  # a list of itself
    (SHARED, "larger than itself"),
    (senml_cbor.SELF_DESCRIBED + TWICE, "larger than itself"),
    (b"\x81" + b"\xc1" * 200_000, "not CBOR"),
    (b"\x9b\x7f" + b"\xff" * 7, "not CBOR"),  # an array of so many items
    (b"\x81\x5b\x7f" + b"\xff" * 7, "not CBOR"),  # so many bytes
    (b"\x00", "not JSON"),
    (b'[{"n":"a","v":"1"}]', "record 0: v = '1': not a number"),
    (b'[{"n":"a","v":true}]', "v = True: not a number"),
    (b'[{"n":"a","v":1},{"n":"","v":1}]', "record 1: name = ''"),
    (b'[{"n":"a","v":1,"t":1e15}]', "time: not within the years 1 to 9999"),
    (b'[{"n":"a","v":1,"t":-1e12}]', "time: not within the years 1 to 9999"),
    (b"\x81\xa1", "not CBOR"),
    (b"\x81", "not CBOR"),
    (cbor2.dumps([{0: "a", 2: 1}]) + b"\x00", "bytes follow"),
    (b"\x80", "not an array of records"),
    (senml_cbor.SELF_DESCRIBED + cbor2.dumps({0: "a", 2: 1}), "not an array of records"),
    (cbor2.dumps([1]), "record 0: not an object"),
    (cbor2.dumps([{0: "a", 2: 1}, {"n": "a", 2: 1}]), "record 1: 'n': no label"),
    (cbor2.dumps([{9: 1, 0: "a", 2: 1}]), "9: no label"),
    (cbor2.dumps([{0: "a", 8: "text"}]), "vd: not bytes"),
    (cbor2.dumps([{0: "a", 2: 1, 6: float("nan")}]), "t = nan: not a number"),
    (cbor2.dumps([{0: "a", 2: 1, "new_": 1}]), "new_: must be understood"),
    (bytes.fromhex("81a200616102c5821b7fffffffffffffff01"), "not CBOR"),
]


def test_a_compressed_pack() -> None:
    topic, payload = GOOD
    cbor = cbor2.dumps([{0: "x", 2: 1}])
    for one in (payload, cbor):
        (plain,), (compressed,) = said([(topic, one), (topic, gzip.compress(one))])
        assert compressed == plain and plain["reason"] is None
    ((bomb,),) = said([(topic, gzip.compress(b" " * (1 << 26)))])
    assert bomb["reason"].startswith("gzip: more than 41")


def test_whatever_a_parser_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in a library, as far as none of those above shows one."""

    def fails(*_: object) -> list[senml.Record]:
        raise KeyError("\ud83d" + "x" * 1000)

    monkeypatch.setattr(senml, "resolve", fails)
    (good,), (bad,) = said([GOOD, (TOPIC, b'[{"n":"x","v":1}]')])
    assert good["reason"] is None
    assert bad["reason"].startswith("KeyError: '\\ud83dxxx") and len(bad["reason"]) <= 300


def test_whatever_arrow_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a check before it is missing: the batch is not lost for it."""
    record = parsing._record

    def unchecked(*of: Any) -> Record:
        found = record(*of)
        return found._replace(text="\ud83d") if found.text == "bad" else found

    monkeypatch.setattr(parsing, "_record", unchecked)
    bad = b'[{"n":"a/x","v":1},{"n":"a/y","vs":"bad"}]'
    (before,), (dead,), (after,) = said([GOOD, (TOPIC, bad), GOOD])
    assert before == after and before["records"][0]["value"] == 21.5
    assert dead["reason"].startswith("UnicodeEncodeError: ") and not dead["records"]


def test_whatever_fails_while_a_message_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of it stays."""
    columns = parsing.Columns(True)
    columns.take(*GOOD, fuzz_packs.NOW)

    def fails(**_: object) -> None:
        monkeypatch.undo()
        raise KeyError("half")

    monkeypatch.setattr(columns, "_pack", fails)
    columns.take(TOPIC, b'[{"n":"a/x","v":1},{"n":"a/y","v":2}]', fuzz_packs.NOW)
    columns.take(*GOOD, fuzz_packs.NOW)
    (before,), (dead,), (after,) = columns.array().to_pylist()
    assert before == after and dead["reason"] == "KeyError: 'half'" and not dead["records"]


def test_a_large_pack_of_many_devices_takes_no_long() -> None:
    """Looking for the device of a record does not depend on how many devices there are."""
    records = [
        f'{{"n":"d{n}/{what}","v":{n}}}' for n in range(20_000) for what in ("boot", "seq", "t")
    ]
    begin = time.process_time()
    (packs,) = said([(b"x", f"[{','.join(records)}]".encode())])
    assert len(packs) == 20_000 and packs[-1]["boot"] == 19_999
    assert (
        time.process_time() - begin < 10
    )  # it was a minute, and four times that for twice as many


def packs_of(topic: str, payload: bytes, by: str = "topic") -> list[tuple[object, ...]]:
    (found,) = said([(topic.encode(), payload)], by == "topic")
    return [
        (p["device"], p["boot"], p["seq"], [r["quantity"] for r in p["records"]], p["reason"])
        for p in found
    ]


OF_B = b'[{"bn":"b/","n":"boot","v":3},{"n":"seq","v":4},{"n":"chip/temp","v":1}]'
OF_BOTH = b'[{"n":"a/boot","v":1},{"n":"a/seq","v":2},' + OF_B[1:]


def test_a_pack_of_another_device_is_a_dead_letter() -> None:
    why = "device 'b': the topic names 'a'"
    for payload in (OF_B, OF_B.replace(b":3}", b":3.0}"), OF_BOTH):
        assert packs_of("dev/a/telemetry", payload) == [(None, None, None, [], why)]
    ((*_, reason),) = packs_of("dev/a/telemetry", b'[{"n":"urn:dev:ow:10e2:t","v":1}]')
    assert reason == "device 'urn:dev:ow:10e2': the topic names 'a'"
    assert packs_of("dev/b/telemetry", OF_B) == [("b", 3, 4, ["chip/temp"], None)]
    assert packs_of("site/a", OF_B) == [("b", 3, 4, ["chip/temp"], None)]


def test_by_payload_a_gateway_speaks_for_others() -> None:
    assert packs_of("dev/a/telemetry", OF_BOTH, "payload") == [
        ("a", 1, 2, [], None), ("b", 3, 4, ["chip/temp"], None),
    ]  # fmt: skip


def test_a_pack_may_leave_the_name_to_the_topic() -> None:
    bare = b'[{"n":"boot","v":3},{"n":"seq","v":4},{"n":"chip/temp","v":1},{"n":"alarm","v":1}]'
    assert packs_of("dev/a/telemetry", bare) == [("a", 3, 4, ["chip/temp", "alarm"], None)]
    part = b'[{"n":"chip/temp","v":1},{"n":"a/level","v":1}]'
    assert packs_of("dev/a/telemetry", part) == [("a", None, None, ["chip/temp", "level"], None)]


@pytest.mark.parametrize(
    ("boot", "is_"),
    [("1", 1), ("1.0", 1), ("1e2", 100), ("0", 0), ("1.5", None), ("-1", None), ("true", None),
     ("9007199254740991", (1 << 53) - 1), ("9007199254740992", None), ("1e19", None)],
)  # fmt: skip
def test_a_boot_is_a_whole_number_however_it_is_written(boot: str, is_: int | None) -> None:
    of = '[{"bn":"a/","n":"boot","%s":%s},{"n":"seq","v":2.0}]'
    ((device, found, seq, quantities, _),) = packs_of(
        "dev/a/telemetry", (of % ("vb" if boot == "true" else "v", boot)).encode()
    )
    assert (device, found, seq) == ("a", is_, None if is_ is None else 2)
    assert quantities == ([] if is_ is not None else ["boot", "seq"])


def test_a_seq_that_no_sum_holds_is_a_quantity() -> None:
    of = b'[{"bn":"a/","n":"boot","v":1},{"n":"seq","v":%d}]'
    assert packs_of("dev/a/telemetry", of % LARGEST) == [("a", 1, LARGEST, [], None)]
    for seq in (LARGEST + 1, (1 << 63) - 1):
        assert packs_of("dev/a/telemetry", of % seq) == [("a", None, None, ["boot", "seq"], None)]


def test_by_chance() -> None:
    """A short run of `python -m flatmq_rigs fuzz-packs`."""
    counts = fuzz_packs.run(5_000, seed=1)
    assert sum(counts[kind] for kind in fuzz_packs.KINDS) == 5_000
    assert 1_000 < sum(counts[f"dead {kind}"] for kind in fuzz_packs.KINDS) < 4_500


def test_a_batch_becomes_rows_or_dead_letters(tmp_path: Path) -> None:
    """Without what is a copy; and with a status that is no text."""
    source = fuzz_packs.documents(5)
    documents = [next(source)[1] for _ in range(2999)]
    documents.append((b"dev/a/status", b"\xff\xfe\xed\xa0\xbd"))
    messages = [Message(topic_text(topic), each, n) for n, (topic, each) in enumerate(documents)]
    tables = {name: Delta(tmp_path / name, by_day=BY_DAY[name]) for name in taking.SCHEMAS}
    with Store(tmp_path / "s.sqlite") as store:
        reads, place = Reads(filters=["#"]), Place("query", 0, None)
        batch.make(State(store), tables, table(messages), reads, place)
        (status,) = store.db.execute("SELECT status FROM devices WHERE name = 'a'").fetchone()
    assert status.startswith("\ufffd")
    dead, copies, seen, rows = set(), 0, set(), Counter[str]()
    for n, packs in enumerate(said([(m.topic.encode(), m.payload) for m in messages])):
        dead |= {n for pack in packs if pack["reason"] is not None}
        for device, boot, seq, records in (
            [pack[name] for name in ("device", "boot", "seq", "records")]
            for pack in packs if pack["reason"] is None
        ):  # fmt: skip
            if boot is not None and (device, boot, seq) in seen:
                copies += 1
            else:
                seen.add((device, boot, seq))
                rows[device] += len(records)
    assert {row["offset"] for row in read(tmp_path / "dead_letters")} == dead
    found = [
        row["device"] for name in ("measurements", "out_of_time") for row in read(tmp_path / name)
    ]
    assert Counter(found) == +rows and copies > 100 and len(dead) > 100


AT = 1_800_000_000.0
# RFC 8428, section 6: the pack of its section 5.1.2 that has a base time.
OF_THE_RFC = bytes.fromhex(
    "87a721781b75726e3a6465763a6f773a3130653230373361303130383030363a22fb41d303a15b0010622361412005"
    "0067766f6c7461676501615602fb405e066666666666a3006763757272656e74062402fb3ff3333333333333a30067"
    "63757272656e74062302fb3ff4cccccccccccda3006763757272656e74062202fb3ff6666666666666a30067637572"
    "72656e74062102f93e00a3006763757272656e74062002fb3ff999999999999aa3006763757272656e74060002fb3f"
    "fb333333333333"
)


def test_the_example_of_the_rfc_and_a_decimal_fraction() -> None:
    pack = cbor2.dumps([{0: "a", 2: Decimal("27.60")}])
    assert senml_cbor.resolve(pack, AT) == [senml.Record("a", "", AT, 27.6)]
    said = senml_cbor.resolve(OF_THE_RFC, AT)
    device = "urn:dev:ow:10e2073a0108006:"
    current = [1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    assert said == [
        senml.Record(device + "voltage", "V", 1276020076.001, 120.1),
        *(
            senml.Record(device + "current", "A", 1276020076.001 + n - 5, value)
            for n, value in enumerate(current)
        ),
    ]


def as_json_has_it(record: dict[int, object]) -> dict[str, object]:
    fields = {senml_cbor.LABELS[label]: value for label, value in record.items()}
    if "vd" in fields:
        data = fields["vd"]
        assert isinstance(data, bytes)
        fields["vd"] = base64.urlsafe_b64encode(data).decode().rstrip("=")
    return fields


number = st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9)
name = st.from_regex("[A-Za-z0-9][-A-Za-z0-9:._/]{0,5}", fullmatch=True)
value = st.one_of(
    st.tuples(st.just(2), number),
    st.tuples(st.just(3), st.text(max_size=8)),
    st.tuples(st.just(4), st.booleans()),
    st.tuples(st.just(8), st.binary(max_size=8)),
)
base = st.fixed_dictionaries(
    {0: name},
    optional={-2: name, -3: number, -4: st.just("m"), -5: number, 1: st.just("A"), 6: number},
)
record = st.builds(lambda fields, one: {**fields, one[0]: one[1]}, base, value)


@given(st.lists(record, min_size=1, max_size=5), st.booleans())
def test_it_says_what_json_says(pack: list[dict[int, object]], described: bool) -> None:
    encoded = senml_cbor.SELF_DESCRIBED * described + cbor2.dumps(pack)
    assert senml_cbor.is_cbor(encoded)
    as_json = [as_json_has_it(record) for record in pack]
    assert not senml_cbor.is_cbor(json.dumps(as_json).encode())
    assert senml_cbor.resolve(encoded, AT) == senml.resolve_records(as_json, AT)


@pytest.mark.parametrize(
    "none", [math.nan, -math.inf, None, 1 << 2000, Decimal("-Infinity"), Decimal("1e400")]
)
def test_a_number_that_no_double_holds_is_null(none: object) -> None:
    pack = cbor2.dumps([{0: "a", 2: none}, {0: "b", 2: 1}, {0: "c", 5: none}])
    assert senml_cbor.resolve(pack, AT) == [
        senml.Record(name, "", AT, value) for name, value in (("a", None), ("b", 1), ("c", None))
    ]
