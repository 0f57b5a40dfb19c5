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


def test_base_fields_hold_until_they_are_given_anew() -> None:
    pack = """[{"bn":"a:","bu":"V","bv":100,"bt":1700000000,"n":"x","v":1},{"n":"y","t":-5},
              {"bn":"b:","n":"x","u":"A","v":2.5,"t":60}]"""
    assert resolve(pack, NOW) == [
        Record("a:x", "V", 1700000000, 101),
        Record("a:y", "V", 1699999995, 100),
        Record("b:x", "A", 1700000060, 102.5),
    ]


def test_small_times_are_relative_to_now() -> None:
    pack = '[{"n":"a","v":1},{"n":"b","v":1,"t":-10.5},{"n":"c","v":1,"t":268435455}]'
    assert [r.time for r in resolve(pack, NOW)] == [NOW, NOW - 10.5, NOW + 268435455]
    assert resolve('[{"n":"a","v":1,"t":268435456}]', NOW)[0].time == 268435456


def test_sums() -> None:
    pack = '[{"bs":10,"n":"energy","u":"J","s":2},{"n":"power","v":3},{"bn":" ","n":"x","v":1}]'
    with pytest.raises(PackError, match="name"):
        resolve(pack, NOW)
    pack = '[{"bs":10,"n":"energy","u":"J","s":2},{"n":"power","v":3}]'
    assert resolve(pack, NOW) == [
        Record("energy", "J", NOW, None, 12),
        Record("power", "", NOW, 3, 10),
    ]


def test_a_record_of_base_fields_alone_says_nothing() -> None:
    assert resolve('[{"bn":"a"},{"n":"b","v":1}]', NOW) == [Record("ab", "", NOW, 1)]


@pytest.mark.parametrize(
    ("pack", "why"),
    [
        ('[{"n":"a","v":1' + "0" * 400 + "}]", "not a number"),
        ('[{"n":"a","v":1e308,"bv":1e308}]', "double"),
        ('[{"n":"a","s":-1e308,"bs":-1e308}]', "double"),
        ('[{"n":"a","v":1,"t":1e308,"bt":1e308}]', "double"),
        (b"\xff", "not JSON"),
        (b"", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('[{"n":"a","v":NaN}]', "NaN"),
        ("{}", "not an array"),
        ("[]", "not an array"),
        ("[1]", "record 0: not an object"),
        ('[{"n":"a","v":1},{"n":"b","v":"1"}]', "record 1: v = '1': not a number"),
        ('[{"n":"a","v":true}]', "v = True: not a number"),
        ('[{"n":"a","v":1e999}]', "v = inf: not a number"),
        ('[{"n":1,"v":1}]', "n = 1: not a text"),
        ('[{"n":"a","vb":1}]', "vb = 1: not true or false"),
        ('[{"n":"a","v":1,"vs":"1"}]', "more than one value"),
        ('[{"n":"a","v":1,"more_":1}]', "more_: must be understood"),
        ('[{"bver":11,"n":"a","v":1}]', "bver = 11: 10 is known"),
        ('[{"v":1}]', "name = ''"),
        ('[{"bn":"-","n":"a","v":1}]', "name = '-a'"),
        ('[{"n":"a b","v":1}]', "name = 'a b'"),
    ],
)
def test_what_is_no_pack(pack: str | bytes, why: str) -> None:
    with pytest.raises(PackError) as told:
        resolve(pack, NOW)
    assert why in str(told.value)
