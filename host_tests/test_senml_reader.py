"""SenML as the desk reads it: resolved records, and why a pack is none."""

import pytest

from flatmq_tools.senml import PackError, Record, resolve

NOW = 1_800_000_000.0


def test_what_a_board_sends() -> None:
    pack = b"""[{"bn":"pico-1/","n":"boot","v":7},{"n":"seq","v":12},
               {"n":"temp","u":"Cel","v":21.5},{"n":"door","vb":false},{"n":"says","vs":"hi"}]  """
    assert resolve(pack, NOW) == [
        Record("pico-1/boot", "", NOW, 7),
        Record("pico-1/seq", "", NOW, 12),
        Record("pico-1/temp", "Cel", NOW, 21.5),
        Record("pico-1/door", "", NOW, False),
        Record("pico-1/says", "", NOW, "hi"),
    ]


@pytest.mark.parametrize(
    ("pack", "records"),
    [
        # Base fields hold until they are given again; a record of base fields alone says nothing.
        (
            """[{"bn":"a:","bu":"V","bv":100,"bt":1700000000,"n":"x","v":1},{"n":"y","t":-5},
               {"bn":"b:","n":"x","u":"A","v":2.5,"t":60}]""",
            [
                Record("a:x", "V", 1700000000, 101),
                Record("a:y", "V", 1699999995, 100),
                Record("b:x", "A", 1700000060, 102.5),
            ],
        ),
        ('[{"bn":"a"},{"n":"b","v":1}]', [Record("ab", "", NOW, 1)]),
        # Small times are relative to now.
        ('[{"n":"a","v":1,"t":-10.5}]', [Record("a", "", NOW - 10.5, 1)]),
        ('[{"n":"a","v":1,"t":268435455}]', [Record("a", "", NOW + 268435455, 1)]),
        ('[{"n":"a","v":1,"t":268435456}]', [Record("a", "", 268435456, 1)]),
        (
            '[{"bs":10,"n":"energy","u":"J","s":2},{"n":"power","v":3}]',
            [Record("energy", "J", NOW, None, 12), Record("power", "", NOW, 3, 10)],
        ),
    ],
)
def test_records_are_resolved(pack: str, records: list[Record]) -> None:
    assert resolve(pack, NOW) == records


@pytest.mark.parametrize(
    "value",
    ["NaN", "-Infinity", "1e400", "nan", "-inf", "null", "1" + "0" * 400, "-" + "9" * 5000,
     '1e308,"bv":1e308', '1.5,"bv":1' + "0" * 320],
)  # fmt: skip
def test_a_number_that_no_double_holds_is_null(value: str) -> None:
    """It costs the pack no other value, whether it is a value or a sum."""
    more = '{"bv":0,"n":"b","v":1e-400},{"n":"c","vs":"nan \\" inf"}'
    pack = f'[{{"n":"a","v":{value}}},{more}]'
    assert resolve(pack, NOW) == [
        Record("a", "", NOW, None),
        Record("b", "", NOW, 0.0),
        Record("c", "", NOW, 'nan " inf'),
    ]
    summed = resolve(pack.replace('"v"', '"s"').replace('"bv"', '"bs"'), NOW)
    assert summed[:2] == [Record("a", "", NOW, None, None), Record("b", "", NOW, None, 0.0)]


@pytest.mark.parametrize(("pack", "why"), [
    ('[{"n":"a","v":1,"t":NaN}]', "t = nan: not a number"),
    ('[{"n":"a","v":1,"bver":null}]', "bver = None: not a number"),
    ('[{"n":"a","v":1,"t":1e308,"bt":1e308}]', "double"),
    (b"\xff", "not JSON"),
    (b"", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("{}", "not an array"),
    ("[]", "not an array"),
    ("[1]", "record 0: not an object"),
    ('[{"n":"a","v":1},{"n":"b","v":"1"}]', "record 1: v = '1': not a number"),
    ('[{"n":"a","v":true}]', "v = True: not a number"),
    ('[{"n":1,"v":1}]', "n = 1: not a text"),
    ('[{"n":"a","vb":1}]', "vb = 1: not true or false"),
    ('[{"n":"a","v":1,"vs":"1"}]', "more than one value"),
    ('[{"n":"a","v":1,"more_":1}]', "more_: must be understood"),
    ('[{"bver":11,"n":"a","v":1}]', "bver = 11: 10 is known"),
    ('[{"v":1}]', "name = ''"),
    ('[{"bn":"-","n":"a","v":1}]', "name = '-a'"),
    ('[{"n":"a b","v":1}]', "name = 'a b'"),
    ('[{"bn":" ","n":"x","v":1}]', "name = ' x'"),
])  # fmt: skip
def test_what_is_no_pack(pack: str | bytes, why: str) -> None:
    with pytest.raises(PackError) as told:
        resolve(pack, NOW)
    assert why in str(told.value)
