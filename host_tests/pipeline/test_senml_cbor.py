"""SenML in CBOR: what it says is what the same pack in JSON says."""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatmq_tools import senml, senml_cbor
from flatmq_tools.senml import PackError, Record

NOW = 1_800_000_000.0
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
    assert senml_cbor.resolve(pack, NOW) == [Record("a", "", NOW, 27.6)]
    said = senml_cbor.resolve(OF_THE_RFC, NOW)
    device = "urn:dev:ow:10e2073a0108006:"
    current = [1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    assert said == [
        Record(device + "voltage", "V", 1276020076.001, 120.1),
        *(
            Record(device + "current", "A", 1276020076.001 + n - 5, value)
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
    assert senml_cbor.resolve(encoded, NOW) == senml.resolve_records(as_json, NOW)


@pytest.mark.parametrize(
    "none", [math.nan, -math.inf, None, 1 << 2000, Decimal("-Infinity"), Decimal("1e400")]
)
def test_a_number_that_no_double_holds_is_null(none: object) -> None:
    pack = cbor2.dumps([{0: "a", 2: none}, {0: "b", 2: 1}, {0: "c", 5: none}])
    assert senml_cbor.resolve(pack, NOW) == [
        Record("a", "", NOW, None), Record("b", "", NOW, 1), Record("c", "", NOW, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pack", "why"),
    [
        (b"\x81", "not CBOR"),
        (cbor2.dumps([{0: "a", 2: 1}]) + b"\x00", "bytes follow"),
        (b"\x80", "not an array of records"),
        (cbor2.dumps({0: "a", 2: 1}), "not an array of records"),
        (cbor2.dumps([1]), "record 0: not an object"),
        (cbor2.dumps([{0: "a", 2: 1}, {"n": "a", 2: 1}]), "record 1: 'n': no label"),
        (cbor2.dumps([{9: 1, 0: "a", 2: 1}]), "9: no label"),
        (cbor2.dumps([{0: "a", 8: "text"}]), "vd: not bytes"),
        (cbor2.dumps([{0: "a", 2: 1, 6: float("nan")}]), "t = nan: not a number"),
        (cbor2.dumps([{0: "a", 2: 1, "new_": 1}]), "new_: must be understood"),
        (bytes.fromhex("81a200616102c5821b7fffffffffffffff01"), "not CBOR"),
    ],
)
def test_what_is_no_pack(pack: bytes, why: str) -> None:
    with pytest.raises(PackError) as told:
        senml_cbor.resolve(pack, NOW)
    assert why in str(told.value)
