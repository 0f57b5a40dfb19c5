"""Topic names, topic filters and UTF-8, against paho's matcher and Python's codec."""

from hypothesis import example, given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from flatmq import is_name, is_utf8
from flatmq.rare.wild import matches
from flatmq.wire import is_filter

# Few characters, so that a filter and a name often have levels in common. Empty levels come by
# themselves, and so do "$" at the start and in the middle.
LEVEL = st.text(alphabet="ab$é", max_size=2)
NAME = st.lists(LEVEL, min_size=1, max_size=5).map("/".join).filter(bool)
FILTER = st.builds(
    lambda levels, tail: "/".join(levels + tail),
    st.lists(st.one_of(LEVEL, st.just("+")), max_size=4),
    st.sampled_from([[], ["#"], ["+"]]),
).filter(bool)
# The bytes at which UTF-8 turns from right to wrong, and some between.
TELLING = st.sampled_from(
    bytes.fromhex("00 01 23 2b 2f 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3")
    + bytes.fromhex("f4 f5 f7 f8 ff")
)
BYTES = st.one_of(st.binary(max_size=12), st.lists(TELLING, max_size=6).map(bytes))


def match(topic_filter: str, name: str) -> bool:
    """Return whether they match, with the name somewhere inside a buffer."""
    buf = bytearray(b"ab/" + name.encode() + b"/ab")
    return matches(topic_filter.encode(), buf, 3, len(buf) - 3)


def is_python_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


@given(FILTER, NAME)
@example("#", "a")
@example("a/#", "a")
@example("a/#", "ab")
@example("+", "")
@example("+/+", "/")
@example("/+", "/")
@example("+", "/")
@example("#", "$SYS")
@example("+/a", "$SYS/a")
@example("$SYS/#", "$SYS/a")
@example("+/#", "a")
@example("a/+", "a")
@example("a/+/#", "a/b")
@example("+", "$")
@example("$SYS/+", "$SYS/x")
@example("a/#", "a/$x")
@example("sensors/+/temperature/+", "sensors/a/temperature/b")
@example("a/b/c", "a/b/c/d")
@example("+/+/+", "a/b/c/d")
@example("+/a/topic", "/a/topic")
@example("a/topic/#", "a/topic/")
def test_matches_as_paho_does(topic_filter: str, name: str) -> None:
    if not name:  # not a topic name; paho would match it
        name = "/"
    assert match(topic_filter, name) == topic_matches_sub(topic_filter, name)


@given(BYTES, st.binary(max_size=3), st.binary(max_size=3))
@example("\U0010ffff".encode(), b"", b"")
@example("\ud7ff\ue000".encode(), b"", b"")
@example(b"\xed\xa0\x80", b"", b"")
@example(b"\xf4\x90\x80\x80", b"", b"")
@example(b"\xf0\x8f\xbf\xbf", b"", b"")
@example(b"\xe0\x9f\xbf", b"", b"")
@example(b"\xc1\xbf", b"", b"")
@example(b"a\0", b"", b"")
def test_is_utf8_is_what_python_says(data: bytes, before: bytes, after: bytes) -> None:
    # What lies around it in the buffer must not matter.
    buf = bytearray(before + data + after)
    at, end = len(before), len(before) + len(data)
    assert is_utf8(buf, at, end) == is_python_utf8(data)


def test_is_utf8_of_every_pair_of_bytes() -> None:
    for first in range(128, 256):
        for second in range(256):
            data = bytes([first, second, 0x80, 0x80])
            for n in (1, 2, 3, 4):
                assert is_utf8(data, 0, n) == is_python_utf8(data[:n]), data[:n].hex()


@given(BYTES)
def test_is_name(data: bytes) -> None:
    wanted = len(data) > 0 and b"+" not in data and b"#" not in data and is_python_utf8(data)
    assert is_name(data, 0, len(data)) == wanted


@given(st.one_of(BYTES, st.text(alphabet="a/+#é", max_size=8).map(str.encode)))
def test_is_filter(data: bytes) -> None:
    levels = data.split(b"/")
    wanted = len(data) > 0 and is_python_utf8(data)
    for i, level in enumerate(levels):
        if b"+" in level and level != b"+":
            wanted = False
        if b"#" in level and (level != b"#" or i + 1 < len(levels)):
            wanted = False
    buf = bytearray(b"a" + data + b"a")
    assert is_filter(buf, 1, 1 + len(data)) == wanted
