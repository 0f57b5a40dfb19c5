"""SenML packs: what is written is what a reader of RFC 8428 makes of it."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from flatmq import senml
from flatmq.senml import Pack, label

X = label(b"x")
BLANKS = 7  # maximum behind a payload


def resolved(payload: bytes | memoryview) -> list[dict[str, Any]]:
    """The records of a pack with the base fields worked in (section 4.6); numbers as written."""
    pack = json.loads(bytes(payload), parse_float=Decimal)
    assert isinstance(pack, list)
    assert pack
    name, time = "", 0
    records = []
    for record in pack:
        name = record.pop("bn", name)
        time = record.pop("bt", time)
        assert sum(key in record for key in ("v", "vs", "vb", "vd")) == 1
        record["n"] = name + record["n"]
        record["t"] = time + record.get("t", 0)
        records.append(record)
    return records


def one(pack: Pack) -> dict[str, Any]:
    """The one record behind boot and seq."""
    records = resolved(pack.payload())
    assert [r["n"] for r in records[:2]] == ["pico-1/boot", "pico-1/seq"]
    assert len(records) == 3
    return records[2]


def test_a_pack_as_it_is_documented() -> None:
    pack = Pack(b"pico-1", 17, 256)
    pack.begin(42)
    assert pack.number(label(b"temp", b"Cel"), 2254, 2)
    wanted = b'[{"bn":"pico-1/","n":"boot","v":17},{"n":"seq","v":42},'
    wanted += b'{"n":"temp","u":"Cel","v":22.54}]'
    assert bytes(pack.payload()).rstrip(b" ") == wanted
    assert len(pack) == len(wanted)


@given(st.integers(), st.integers(0, 40))
def test_any_number(value: int, decimals: int) -> None:
    pack = Pack(b"pico-1", 17, 1024)
    assert pack.number(X, value, decimals)
    v = one(pack)["v"]
    assert v == Decimal((value < 0, tuple(map(int, str(abs(value)))), -decimals))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.booleans())
def test_any_string(value: str, as_bytes: bool) -> None:
    pack = Pack("pico-1", 17, 8192)
    assert pack.text(X, value.encode() if as_bytes else value)
    assert one(pack)["vs"] == value
    # As JSON has it written where it leaves the choice, but for the short forms of controls.
    assert json.loads(bytes(pack.payload())) == json.loads(bytes(pack.payload()).strip())


@pytest.mark.parametrize("value", [True, False])
def test_a_flag(value: bool) -> None:
    pack = Pack(b"pico-1", 17)
    assert pack.flag(X, value)
    assert one(pack)["vb"] is value


@given(st.integers(0, 1073741823), st.integers(0, 1 << 40), st.integers(-99999, 99999))
def test_times(seq: int, base: int, ago: int) -> None:
    pack = Pack(b"pico-1", 17)
    pack.begin(seq, base)
    assert pack.number(X, 1)
    assert pack.time(ago, 3)
    boot, number, record = resolved(pack.payload())
    assert (boot["v"], boot["t"], number["v"], number["t"]) == (17, base, seq, base)
    assert record["t"] == base + Decimal(ago) / 1000


_calls = st.one_of(
    st.tuples(st.just("number"), st.integers(-(10**12), 10**12), st.integers(0, 12)),
    st.tuples(st.just("text"), st.binary(max_size=20).map(lambda b: b.hex() + '"\n')),
    st.tuples(st.just("flag"), st.booleans()),
    st.tuples(st.just("time"), st.integers(-(10**6), 10**6), st.integers(0, 3)),
)


@given(st.integers(89, 300), st.lists(_calls, max_size=12))
def test_what_does_not_fit_leaves_the_pack_as_it_was(size: int, calls: list[Any]) -> None:
    pack = Pack(b"pico-1", 17, size)
    pack.begin(42)
    records = 2
    timed = True
    for name, *arguments in calls:
        if name == "time":
            if timed:  # once a record, and boot and seq have none
                continue
            before = len(pack)
            took = pack.time(*arguments)
            timed = took
        else:
            before = len(pack)
            took = getattr(pack, name)(X, *arguments)
            records += took
            timed = timed and not took
        payload = pack.payload()
        assert len(resolved(payload)) == records
        assert took or len(pack) == before
        assert len(pack) <= len(payload) <= min(size, len(pack) + BLANKS)
        assert bytes(payload[len(pack) :]).strip(b" ") == b""
        if not took:
            assert size - len(pack) < 200


def test_the_last_byte_of_the_buffer_is_used() -> None:
    wanted = len(b'[{"bn":"pico-1/","n":"boot","v":17},{"n":"seq","v":0},{"n":"x","v":12345678}]')
    wanted += 20
    name = label(b"x" * 21)
    for size, fits in ((wanted, True), (wanted - 1, False)):
        pack = Pack(b"pico-1", 17, size)
        assert pack.number(name, 12345678) is fits
        pack.begin(0)
        assert pack.text(name, "34567") is fits
        pack.begin(0)
        assert pack.number(name, 1234)
        assert pack.time(1) is False
        pack.begin(0)
        assert pack.number(name, 12)
        assert pack.time(1) is fits
        assert len(pack.payload()) <= size


NAME = "name must be as in RFC 8428 section 4.5.1, not "
UNIT = "unit must be ASCII without blanks, quotes and "
TEXT = "text must be UTF-8 without U+0000, not "
PACK = Pack(b"pico-1", 17)
WRONG = [
    *((label, name, NAME) for name in (b"", b"a b", b'"', b"\xc3\xa9", b"a+b", b"#")),
    *((lambda name: Pack(name, 17), name, NAME) for name in (b"", b"a b", b"#", b"-1")),
    *((lambda unit: label(b"x", unit), u, UNIT) for u in (b'"', b"a b", b"\\", b"\xc2\xb0C")),
    *((lambda t: PACK.text(X, t), t, TEXT) for t in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", "\0")),
    (lambda size: Pack(b"pico-1", 17, size), 88, "size must be 89 to 65535, not 88"),
    (lambda boot: Pack(b"pico-1", boot), 1 << 30, "boot must be 0 to 1073741823, not 1073741824"),
    (PACK.begin, -1, "seq must be 0 to"),
    (PACK.begin, 1 << 30, "seq must be 0 to"),
    (lambda time: PACK.begin(0, time), 10**20, "digits of time must be "),
    *(
        (lambda v: PACK.number(X, v, 1), v, "value must be an int, not ")
        for v in (21.5, "2", None)
    ),
    *((PACK.time, v, "value must be an int, not ") for v in (0.5, True)),
    (lambda time: PACK.begin(0, time), 0.5, "value must be an int, not 0.5"),
    *((lambda d: PACK.number(X, 1, d), d, "decimals must be 0 to 300, not ") for d in (-1, 1.5)),
    (
        lambda label: PACK.number(label, 1),
        "temp",
        "label must be what label() returns, not 'temp'",
    ),
    (lambda label: PACK.flag(label, True), b"temp", "label must be what label() returns"),
]


@pytest.mark.parametrize(("call", "value", "text"), WRONG)
def test_what_would_spoil_a_pack_is_refused(call: Any, value: Any, text: str) -> None:
    before = bytes(PACK.payload())
    with pytest.raises((TypeError, ValueError)) as caught:
        call(value)
    assert str(caught.value).startswith(text)
    assert bytes(PACK.payload()) == before


def test_the_smallest_size_holds_the_largest_numbers() -> None:
    assert Pack(b"1-", 17)
    pack = Pack(b"pico-1", 17, 89)
    pack.begin(1073741823, 10**20 - 1)
    assert resolved(pack.payload())[1]["v"] == 1073741823


def test_what_the_documents_show() -> None:
    text = (ROOT / "docs" / "telemetry.md").read_text()
    (shown,) = re.findall(r"```json\n(.*?)\n```", text)
    pack = Pack(b"pico-1", 17)
    pack.begin(42)
    pack.number(label("chip/temp", "Cel"), 2760, 2)
    assert bytes(pack.payload()).decode().rstrip() == shown
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert one(names["pack"]) == {
        "n": "pico-1/tank/level",
        "u": "m",
        "v": Decimal("1.234"),
        "t": 0,
    }


@pytest.mark.parametrize("method", ["number", "time"])
def test_without_memory_for_digits_the_pack_stays_as_it_was(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number of more than 31 bits takes some on a board."""
    pack = Pack(b"dev", 1)
    pack.number(X, 7)
    before = bytes(pack.payload())
    right = senml.write

    def short(*given: Any) -> None:
        right(*given)
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(senml, "write", short)
        with pytest.raises(MemoryError):
            pack.number(X, 1 << 40) if method == "number" else pack.time(1 << 40)
    assert bytes(pack.payload()) == before
    assert pack.number(X, 8)
    assert [record["v"] for record in resolved(pack.payload())[2:]] == [7, 8]
