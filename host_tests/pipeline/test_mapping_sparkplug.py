"""Sparkplug B: payloads that another implementation wrote, and such as break a rule."""

import pickle
from pathlib import Path

import pytest

from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.births import Births, BirthsError
from flatmq_tools.pipeline.mapping.sparkplug import payload_class

NODE, DEVICE = "spBv1.0/Plant/NDATA/Line1", "spBv1.0/Plant/DDATA/Line1/Pump"
BORN, NODE_BORN = "spBv1.0/Plant/DBIRTH/Line1/Pump", "spBv1.0/Plant/NBIRTH/Line1"
SENT = 1_772_366_398_250_000  # us since 1970

# Written by pysparkplug 0.6.1.
NBIRTH = bytes.fromhex(
    "08aa8694caca3312120a05626453657118aa8694caca332004580312210a144e6f646520436f6e74726f6c2f526562"
    "6972746818aa8694caca33200b700012210a0d50726f706572746965732f4f53100118aa8694caca33200c7a054c69"
    "6e757812200a0e537570706c792f566f6c74616765100218aa8694caca332009650000c141121a0a06557074696d65"
    "100318aa8694caca332008588080808080201800"
)
DBIRTH = bytes.fromhex(
    "08aa8694caca3312210a0b54656d7065726174757265100a18aa8694caca33200a69cdcccccccc8c354012170a074f"
    "666673657438100b18aa8694caca33200150fb0112190a084f66667365743136100c18aa8694caca33200250d4fd03"
    "121b0a084f66667365743332100d18aa8694caca3320035090ddfbff0f12200a084f66667365743634100e18aa8694"
    "caca332004588080808080e0ffffff0112120a025538100f18aa8694caca33200550fa0112160a0355333210101"
    "8aa8694caca33200750ffffffff0f12160a0752756e6e696e67101118aa8694caca33200b7001121a0a0553746174"
    "65101218aa8694caca33200e7a066cc3a475667412190a0553696e6365101318aa8694caca33200d58809494caca33"
    "12160a074e6f7468696e67101418aa8694caca332009380112150a03526177101518aa8694caca3320118201020001"
    "121d0a054375727665101618aa8694caca33201e8201080000803f000000401801"
)
# The temperature half a second before the message, and -1 in 16 bits: without data types.
DDATA = bytes.fromhex(
    "08928e94caca33121d0a0b54656d7065726174757265189e8a94caca33690000000000c0354012150a084f66667365"
    "74313618928e94caca3350ffff031802"
)
# Temperature by its alias.
BY_ALIAS = bytes.fromhex("08fa9594caca331212100a18fa9594caca336900000000008036401803")


def values(topic: str, payload: bytes) -> list[tuple[str, object]]:
    (pack,) = files.load(["sparkplug-b"]).read(topic, payload, 0) or []
    return [
        (r.quantity, next(v for v in (r.value, r.text, r.flag) if v is not None))
        for r in pack.records
    ]


def dead(topic: str, payload: bytes) -> str:
    return str(files.load(["sparkplug-b"]).reading(topic, payload, 0).reason)


def metric(**fields: object) -> bytes:
    made = payload_class()()
    one = made.metrics.add()
    for name, value in {"name": b"x", **fields}.items():
        if value is not None:
            setattr(one, name, value)
    return bytes(made.SerializeToString())


def test_births_have_every_type_of_a_value() -> None:
    (pack,) = files.load(["sparkplug-b"]).read(NODE_BORN, NBIRTH, 0) or []
    assert (pack.device, pack.boot, pack.seq, pack.time, pack.told) == (
        "Plant/Line1", None, None, SENT, True,
    )  # fmt: skip
    assert values(NODE_BORN, NBIRTH) == [
        ("Properties/OS", "Linux"), ("Supply/Voltage", 24.125), ("Uptime", 2.0**40),
    ]  # fmt: skip
    assert values(BORN, DBIRTH) == [
        ("Temperature", 21.55), ("Offset8", -5.0), ("Offset16", -300.0), ("Offset32", -70000.0),
        ("Offset64", -(2.0**40)), ("U8", 250.0), ("U32", 2.0**32 - 1), ("Running", True),
        ("State", "läuft"), ("Since", "2026-03-01T12:00:00+00:00"),
    ]  # fmt: skip


def test_each_metric_has_its_time() -> None:
    made = payload_class().FromString(DDATA)
    del made.metrics[1]
    (pack,) = files.load(["sparkplug-b"]).read(DEVICE, made.SerializeToString(), 0) or []
    ((record),) = pack.records
    assert (pack.device, record.quantity, record.value) == (
        "Plant/Line1/Pump", "Temperature", 21.75
    )  # fmt: skip
    assert record.time == pack.time == SENT + 500_000


def test_a_number_that_may_be_negative_is_not_guessed() -> None:
    """Without its data type 65535 may be -1."""
    assert "Offset16 = 65535: may be negative, and no data type is known" in dead(DEVICE, DDATA)
    for number in (0, 127, 256, 32767, 65536, (1 << 31) - 1):
        assert values(NODE, metric(int_value=number)) == [("x", float(number))]
    for number in (128, 255, 32768, 65535, 1 << 31, (1 << 32) - 1):
        assert "may be negative" in dead(NODE, metric(int_value=number))
    assert "may be negative" in dead(NODE, metric(long_value=1 << 63))


def test_numbers_in_the_bits_of_their_field() -> None:
    """Some write an Int8 of -5 as 251, and some as 2^32 - 5."""
    for raw in (251, (1 << 32) - 5):
        assert values(NODE, metric(datatype=1, int_value=raw)) == [("x", -5.0)]
    assert "does not fit the data type 1" in dead(NODE, metric(datatype=1, int_value=300))
    assert "does not fit the data type 5" in dead(NODE, metric(datatype=5, int_value=256))


def said(births: Births, topic: str, payload: bytes, at: tuple[int, int]) -> object:
    """Quantities and values, or the reason."""
    names = births.sessions().names(topic, at)
    reading = files.load(["sparkplug-b"]).reading(topic, payload, at[0], names)
    return reading.reason or [(r.quantity, r.value) for p in reading.packs for r in p.records]


def test_a_birth_names_aliases_and_types() -> None:
    births = Births()
    births.add([(NODE_BORN, NBIRTH, 5, 0), (BORN, DBIRTH, 10, 3)])
    assert said(births, DEVICE, BY_ALIAS, (10, 4)) == [("Temperature", 22.5)]
    # Of 65535 in 16 bits without its type it is known now that it is -1.
    assert said(births, DEVICE, DDATA, (11, 0)) == [("Temperature", 21.75), ("Offset16", -1.0)]
    unknown = "alias = 10: no birth certificate that holds names it"
    for topic, at in (
        (DEVICE, (10, 2)),  # it came before the certificate
        ("spBv1.0/Plant/DDATA/Line2/Pump", (11, 0)),
        ("spBv1.0/Plant/DDATA/Line1/Fan", (11, 0)),
        ("spBv1.0/Other/DDATA/Line1/Pump", (11, 0)),
        (NODE, (11, 0)),
    ):
        assert said(births, topic, BY_ALIAS, at) == unknown
    # With the next NBIRTH of its node the certificate of the device has ended.
    births.add([(NODE_BORN, NBIRTH, 20, 7)])
    assert said(births, DEVICE, BY_ALIAS, (20, 8)) == unknown
    assert said(births, DEVICE, BY_ALIAS, (20, 6)) == [("Temperature", 22.5)]


def test_the_next_birth_may_name_aliases_otherwise() -> None:
    level = metric(name=b"Level", alias=10, datatype=10)
    births = Births()
    births.add([(BORN, DBIRTH, 10, 0), (BORN, level, 20, 1)])
    assert said(births, DEVICE, BY_ALIAS, (15, 0)) == [("Temperature", 22.5)]
    assert said(births, DEVICE, BY_ALIAS, (20, 2)) == [("Level", 22.5)]
    # An alias that is given twice is not known; what is no birth is passed over.
    twice = payload_class().FromString(metric(name=b"A", alias=10, datatype=10))
    twice.MergeFromString(level)
    births.add([(BORN, twice.SerializeToString(), 30, 0), (BORN, b"\xff", 31, 0)])
    assert "no birth certificate" in str(said(births, DEVICE, BY_ALIAS, (32, 0)))


def test_births_are_known_to_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "state" / "births.json"
    for n in range(40):  # of which the last are kept
        Births(file).add([(BORN, DBIRTH, 10 * n, n)])
    known = Births(file)
    assert said(known, DEVICE, BY_ALIAS, (391, 0)) == [("Temperature", 22.5)]
    assert "no birth" in str(said(known, DEVICE, BY_ALIAS, (5, 0)))
    # A batch of long ago that is done again brings its own.
    known.add([(BORN, DBIRTH, 0, 0)])
    assert said(Births(file), DEVICE, BY_ALIAS, (5, 0)) == [("Temperature", 22.5)]
    sessions = pickle.loads(pickle.dumps(known.sessions()))
    assert sessions.names(DEVICE, (391, 0))(10) == ("Temperature", 10)
    for damage in ("[[1", "7", '[["n", "d", [1], []]]'):
        file.write_text(damage)
        with pytest.raises(BirthsError, match=f"{file} is damaged .*: remove it"):
            Births(file)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff\xff", "not a payload of Sparkplug B"),
        (b'{"x":1}', "not a payload of Sparkplug B"),
        (metric(name=None, int_value=1), "neither name nor alias"),
        (metric(name=b"", int_value=1), "empty name"),
        (metric(), "x: a metric without a value"),
        (metric(datatype=9, string_value=b"1"), "string_value does not fit the data type 9"),
        (metric(timestamp=1 << 60, int_value=1), "not within the years 1 to 9999"),
        (metric(name=b"\xff", int_value=1), "the name of a metric: not a text in UTF-8"),
        (metric(string_value=b"\xff"), "x: not a text in UTF-8"),
    ],
)
def test_what_is_wrong_is_a_dead_letter(payload: bytes, reason: str) -> None:
    assert reason in dead(NODE, payload)


def test_deaths_commands_and_hosts_are_no_measurements() -> None:
    mapping = files.load(["sparkplug-b"])
    for topic in (
        "spBv1.0/Plant/NDEATH/Line1", "spBv1.0/Plant/DDEATH/Line1/Pump",
        "spBv1.0/Plant/NCMD/Line1", "spBv1.0/Plant/DCMD/Line1/Pump", "spBv1.0/STATE/scada",
    ):  # fmt: skip
        assert mapping.read(topic, b"\xff", 0) == []
    assert mapping.read("spBv1.0/Plant/OTHER/Line1", b"\xff", 0) is None
