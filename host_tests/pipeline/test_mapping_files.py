"""Mapping files: what their keys do, and what is said of a mistake."""

import json
from pathlib import Path
from typing import Any

import pytest

from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.files import MappingError
from flatmq_tools.pipeline.mapping.mapping import Mapping
from flatmq_tools.pipeline.mapping.pack import Pack, PackError, Record

NOON = 1_772_366_400_000_000  # 2026-03-01 12:00 UTC in us since 1970
RECEIVED = NOON + 1_000_000


def mapping(text: str) -> Mapping:
    return Mapping(files.parse(text, "my.toml"))


def rule(more: str = "", form: str = "json", topic: str = "t/{device}") -> Mapping:
    return mapping(f'[[rule]]\ntopic = "{topic}"\nformat = "{form}"\n{more}\n')


def pack(found: Mapping, document: Any, topic: str = "t/a") -> Pack:
    (one,) = found.read(topic, json.dumps(document).encode(), RECEIVED) or []
    return one


def value_of(record: Record) -> object:
    """Whichever of its fields a record has; None if it has none."""
    return next((v for v in (record.value, record.text, record.flag) if v is not None), None)


def values(found: Mapping, document: Any, topic: str = "t/a") -> dict[str, object]:
    return {r.quantity: value_of(r) for r in pack(found, document, topic).records}


def test_paths_choose_values() -> None:
    document = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": [{"e": 4}, {"e": 5}]}
    everything = {"a": 1, "b/c": 2, "b/d/e": 3, "f/0/e": 4, "f/1/e": 5}
    assert values(rule(), document) == everything
    for select, expected in {
        "a": {"a"}, "b": {"b/c", "b/d/e"}, "b/*": {"b/c", "b/d/e"}, "*/d": {"b/d/e"},
        "f/*/e": {"f/0/e", "f/1/e"}, "**/e": {"b/d/e", "f/0/e", "f/1/e"}, "b/**/e": {"b/d/e"},
        "**": set(everything), "e": set(), "f/1": {"f/1/e"},
    }.items():  # fmt: skip
        assert set(values(rule(f'select = "{select}"'), document)) == expected, select
        left = set(values(rule(f'ignore = ["{select}"]'), document))
        assert left == set(everything) - expected, select


def test_names_units_and_scales() -> None:
    found = pack(
        rule(
            """
            strip = "data"
            values."data/t" = { name = "temperature", unit = "Cel", scale = 0.1, offset = -40 }
            values."data/*_mv" = { unit = "V", scale = "1/1000" }
            values."**" = "other"
            """
        ),
        {"data": {"t": 615, "supply_mv": 3300, "x": True}, "y": 1},
    )
    assert [(r.quantity, r.unit, r.value, r.flag) for r in found.records] == [
        ("temperature", "Cel", 21.5, None), ("supply_mv", "V", pytest.approx(3.3), None),
        ("x", "", None, True), ("y", "other", 1.0, None),
    ]  # fmt: skip


def test_the_topic_and_the_document_name_devices_and_quantities() -> None:
    topic = "{site}/{room}/{kind...}"
    two = rule('device = "{site}:{room}"\nquantity = "{kind}/{path}"', topic=topic)
    found = pack(two, {"v": 1}, "s/r/a/b")
    assert (found.device, found.records[0].quantity) == ("s:r", "a/b/v")
    own = rule('device_from = "id/serial"\nignore = "id"', topic="x/#")
    assert pack(own, {"id": {"serial": 1234}, "v": 1}, "x").device == "1234"
    with pytest.raises(PackError, match=r"device = .*longer than 1024"):
        pack(own, {"id": {"serial": "d" * 2000}, "v": 1}, "x")
    with pytest.raises(PackError, match=r"device = .*longer than 1024"):
        pack(rule(), {"a": 1}, "t/" + "d" * 2000)
    for document in ({"v": 1}, {"id": {"serial": ""}}, {"id": {"serial": True}}, [1]):
        with pytest.raises(PackError, match="no device: id/serial is not a text"):
            own.read("x/y", json.dumps(document).encode(), 0)


@pytest.mark.parametrize(
    ("more", "document", "expected"),
    [
        (
            'arrays = { sensors = "id/no" }\nignore = "**/id"',
            {"sensors": [{"id": {"no": 7}, "t": 1}, {"t": 2}, {"id": {"no": "x"}, "t": 3}]},
            {"sensors/7/t": 1, "sensors/1/t": 2, "sensors/x/t": 3},
        ),
        (
            "words = { open = true, closed = 0, on = 'on' }\ntext_numbers = true",
            {"a": "OPEN", "b": "closed", "c": "On", "d": "off", "e": "-2.5", "f": "x", "g": "1x"},
            {"a": True, "b": 0.0, "c": "on", "d": False, "e": -2.5, "f": "x", "g": "1x"},
        ),
        ("", {"e": "2.5"}, {"e": "2.5"}),
    ],
    ids=["arrays", "words", "texts"],
)
def test_names_of_elements_and_words(
    more: str, document: dict[str, Any], expected: dict[str, object]
) -> None:
    assert values(rule(more), document) == expected


IN_UTC = "has no offset from UTC; set `zone` for it"
# How a time is written, the value, and the us since 1970, or why it is a dead letter.
TIMES = [
    ('"iso"', "2026-03-01T12:00:00Z", NOON),
    ('"iso"', "2026-03-01 13:00:00.5+01:00", NOON + 500_000),
    ('"iso", zone = "Europe/Berlin"', "2026-03-01T13:00:00", NOON),
    ('"iso", zone = "Europe/Berlin"', "2026-07-01T14:00:00", 1_782_907_200_000_000),
    ('"s"', 1_772_366_400, NOON),
    ('"s"', 1_772_366_400.25, NOON + 250_000),
    ('"s"', "1772366400", NOON),
    ('"ms"', 1_772_366_400_000, NOON),
    ('"us"', NOON, NOON),
    ('["iso", "ms"]', 1_772_366_400_001, NOON + 1_000),
    ('["iso", "ms"]', "2026-03-01T12:00:00Z", NOON),
    ('"s"', None, None),
    ('"iso"', "2026-03-01T12:00:00", IN_UTC),
    ('"iso"', "2026-03-01", "not a date and time of ISO 8601"),
    ('"iso"', 1_772_366_400, "not a time in iso"),
    ('"iso"', "9999-12-31T23:59:59-23:00", "not within the years 1 to 9999"),
    ('"ms"', "noon", "not a time in ms"),
    ('"ms"', True, "not a time in ms"),
    ('"ms"', {"a": 1}, "not a time in ms"),
    ('"s"', 1e308, "not within the years 1 to 9999"),
    ('"s"', 10**300, "not within the years 1 to 9999"),
]


@pytest.mark.parametrize(("form", "value", "expected"), TIMES)
def test_times(form: str, value: object, expected: int | str | None) -> None:
    timed = rule(f'time = {{ path = "at", as = {form} }}\nignore = "at"')
    if isinstance(expected, str):
        with pytest.raises(PackError, match=expected):
            pack(timed, {"at": value})
        return
    for document, time in (({"at": value, "v": 1}, expected), ({"v": 1}, None)):
        found = pack(timed, document)
        assert found.told == (time is not None)
        assert found.time == found.records[0].time == (RECEIVED if time is None else time)


def test_boot_and_seq() -> None:
    found = rule('boot = "b"\nseq = "n/s"\nselect = "v"')
    both = pack(found, {"b": 3.0, "n": {"s": 9}, "v": 1})
    assert (both.boot, both.seq) == (3, 9)
    one = pack(found, {"b": 3, "v": 1})
    assert (one.boot, one.seq) == (None, None)
    counted = pack(rule('seq = "n"\nselect = "v"'), {"n": 9, "v": 1})
    assert (counted.boot, counted.seq) == (None, 9)
    for wrong in (1.5, -1, True, "3", 1 << 63):
        with pytest.raises(PackError, match=r"boot = .*: not a whole number from 0"):
            pack(found, {"b": wrong, "n": {"s": 9}})


def test_a_rule_for_some_documents() -> None:
    found = mapping(
        """
        [[rule]]
        name = "one"
        topic = "t/{device}"
        format = "json"
        when = { kind = [1, "one"], "deep/x" = true }
        [[rule]]
        topic = "t/b"
        format = "nothing"
        """
    )
    cases = [(1, True, True), ("one", True, True), (1, 1, False), (True, True, False)]
    for kind, x, taken in cases:
        document = {"kind": kind, "deep": {"x": x}}
        read = found.read("t/a", json.dumps(document).encode(), 0)
        assert (read is not None) == taken, document
    assert found.read("t/b", b"{}", 0) == []


def packs(found: Mapping, payload: bytes, topic: str = "t/a") -> list[tuple[object, ...]]:
    return [
        (*pack[:4], [(r.quantity, r.unit, r.value, r.time) for r in pack.records])
        for pack in found.read(topic, payload, RECEIVED) or []
    ]


def test_parts_of_a_document() -> None:
    """Each device or reading has one pack, which is as old as its newest value."""
    found = rule(
        """
        each = "rooms/{room}/t*/{n}"
        device = "{device}-{room}"
        quantity = "{n}/{path}"
        time = { path = "at", as = "us" }
        ignore = "at"
        values = { "0" = "Cel", x = "V" }
        """
    )
    document = {
        "at": NOON,
        "rooms": {
            "a": {"temps": [21, {"at": NOON + 5, "x": 1}], "other": [1]}, "b": 5,
            "c": {"tx": {"k": 2}, "t": []},
        },
    }  # fmt: skip
    assert packs(found, json.dumps(document).encode(), "t/s") == [
        ("s-a", None, None, NOON + 5, [("0", "Cel", 21.0, NOON), ("1/x", "V", 1.0, NOON + 5)]),
        ("s-c", None, None, NOON, [("k", "", 2.0, NOON)]),
    ]
    assert found.read("t/s", b'{"rooms":{"b":5}}', 0) is None
    with pytest.raises(PackError, match="room: must not be empty"):
        found.read("t/s", b'{"rooms":{"":{"t":[1]}}}', 0)
    numbered = rule('each = "*"\nboot = "b"\nseq = "s"\nselect = "v"\ndevice_from = "id"')
    parts = [{"b": 1, "s": n, "v": n, "id": "d"} for n in (1, 2, 2)]
    every = packs(numbered, json.dumps(parts).encode())
    assert [(seq, [value for _, _, value, _ in records]) for _, _, seq, _, records in every] == [
        (1, [1.0]), (2, [2.0, 2.0]),
    ]  # fmt: skip


# The keys of a rule, the payload, and the rows that it makes: device, time, values.
CSVS = [
    ("", "t;u\n1,5;2", [("a", RECEIVED, {"t;u": 1.0, "1": "5;2"})]),
    ('delimiter = ";"', "t ; u;\r\n1.5; on ;\r\n", [("a", RECEIVED, {"t": 1.5, "u": True})]),
    ('columns = ["at", "t"]\ntime = { path = "at", as = "s" }\nignore = "at"',
     "1772366400,5,6\n\n1772366401,7", [("a", NOON + 1_000_000, {"t": 7.0, "2": 6.0})]),
    ('device_from = "id"\nselect = "t"', 'id,t\n007,1\n"x,""y",\n',
     [("007", RECEIVED, {"t": 1.0}), ('x,"y', RECEIVED, {})]),
    ('boot = "b"\nseq = "s"\nselect = "t"', "b,s,t\n1,2,nan", [("a", RECEIVED, {"t": None})]),
]  # fmt: skip


@pytest.mark.parametrize(("more", "payload", "rows"), CSVS, ids=range(len(CSVS)))
def test_csv(more: str, payload: str, rows: list[tuple[object, ...]]) -> None:
    read = rule(more, "csv").read("t/a", payload.encode(), RECEIVED) or []
    assert [
        (p.device, p.time, {r.quantity: value_of(r) for r in p.records}) for p in read
    ] == rows  # fmt: skip
    assert [(p.boot, p.seq) for p in read] == [(1, 2) if "boot" in more else (None, None)] * len(
        rows
    )


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ('as = "hex", layout = "s16:t u4:n p4 b1:on"', "FF38 3f 80",
         {"d/t": -200.0, "d/n": 3.0, "d/on": True}),
        ('as = "hex", layout = "s16:t u16:n <"', "0x38ff0100", {"d/t": -200.0, "d/n": 1.0}),
        ('as = "base64", layout = "f32:t"', "QUgAAA==", {"d/t": 12.5}),
        ('as = "base64", format = "json"', "eyJ4IjpbMV19", {"d/x/0": 1.0}),
        ('as = "base64", format = "cbor"', "oWF4-T4A", {"d/x": 1.5}),
        ('as = "base64", format = "plain"', "MjEuNQ", {"d": "21.5"}),
        # What cannot be read has no value.
        ('as = "hex", layout = "s16:t"', "ff", {"d": None}),
        ('as = "hex", layout = "s16:t"', "xx", {"d": None}),
        ('as = "base64", format = "json"', "eyJ4Ijpb", {"d": None}),
        ('as = "base64", format = "json"', "e?", {"d": None}),
        ('as = "base64", format = "json"', 5, {"d": None}),
        ('as = "base64", format = "json"', None, {}),
    ],
)  # fmt: skip
def test_bytes_in_a_text(form: str, text: object, expected: dict[str, object]) -> None:
    found = rule(f'decode = {{ "a/*/d" = {{ {form} }} }}\nstrip = "a/0"')
    read = pack(found, {"a": [{"d": text}], "d": "x"})
    assert {r.quantity: value_of(r) for r in read.records[:-1]} == expected
    assert read.records[-1].text == "x"


GOOD = '[[rule]]\ntopic = "t/{device}"\nformat = "json"'
MISTAKES = Path(__file__).with_name("mapping_mistakes.txt").read_text().splitlines()[2:]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_place(mistake: str) -> None:
    file, _, error = mistake.partition("=> ")
    with pytest.raises(MappingError) as raised:
        files.parse(file.replace(" | ", "\n").replace("GOOD", GOOD), "my.toml")
    assert error in str(raised.value)


def test_a_mapping_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"must be a file or one of cbor, .*, not 'zigbee'"):
        files.load(["zigbee"])
    file = tmp_path / "b.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(MappingError, match=r"b\.toml: .*utf-8"):
        files.load([str(file)])


def test_defaults_are_for_all_rules() -> None:
    found = mapping(
        """
        [defaults]
        format = "json"
        ignore = "at"
        words = { open = true }
        time = { path = "at", as = "s" }
        values = { t = "Cel", p = "hPa" }
        [[rule]]
        topic = "t/{device}"
        ignore = "x"
        values = { t = "K" }
        [[rule]]
        topic = "u/{device}"
        format = "plain"
        quantity = "t"
        """
    )
    one = pack(found, {"at": 5, "t": 1, "p": 2, "x": 3, "door": "open"})
    assert [(r.quantity, r.unit, r.time) for r in one.records] == [
        ("t", "K", 5_000_000), ("p", "hPa", 5_000_000), ("door", "", 5_000_000),
    ]  # fmt: skip
    (plain,) = found.read("u/a", b"3", RECEIVED) or []
    assert (plain.records[0].unit, plain.time) == ("Cel", RECEIVED)
