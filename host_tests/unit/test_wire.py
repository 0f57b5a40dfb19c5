"""`wire` by itself: round trips, bounds and limits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import peer
from flatmq import setup, wire
from flatmq.session import Session

LARGEST = 268_435_455
BOUNDS = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, LARGEST]
LENGTH = st.one_of(st.integers(0, LARGEST), st.sampled_from(BOUNDS))
TEXT = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20
).map(str.encode)
TOPIC = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=("Cs",)), min_size=1, max_size=20
).map(str.encode)


def size_of_length(n: int) -> int:
    """Bytes that Remaining Length `n` takes."""
    return 1 + (n > 127) + (n > 16_383) + (n > 2_097_151)


# Remaining Length


@given(LENGTH, st.integers(0, 5))
@example(LARGEST, 0)
def test_remaining_length_comes_back(n: int, at: int) -> None:
    buf = bytearray(at + 5)
    end = wire.put_length(buf, at, n)
    assert end - at == size_of_length(n)
    assert buf[end:] == bytes(len(buf) - end)
    assert wire.get_length(buf, at, end) == n << 2 | (end - at - 1)
    assert wire.get_length(buf, at, len(buf)) == n << 2 | (end - at - 1), "what follows matters"


@given(LENGTH)
def test_a_cut_remaining_length_wants_more(n: int) -> None:
    buf = bytearray(5)
    end = wire.put_length(buf, 0, n)
    for cut in range(end):
        assert wire.get_length(buf, 0, cut) == -1


@given(st.lists(st.integers(128, 255), min_size=4, max_size=4), st.binary(max_size=3))
def test_a_remaining_length_of_five_bytes_is_an_error(bytes_: list[int], more: bytes) -> None:
    buf = bytes(bytes_) + more
    assert wire.get_length(buf, 0, len(buf)) == -2


@given(st.binary(max_size=6))
def test_any_bytes_are_a_length_or_cut_or_an_error(data: bytes) -> None:
    got = wire.get_length(data, 0, len(data))
    ends = [i for i, byte in enumerate(data[:4]) if byte < 128]
    if ends:
        value = sum((byte & 127) * 128**i for i, byte in enumerate(data[: ends[0] + 1]))
        assert got == value << 2 | ends[0]
    else:
        assert got == (-2 if len(data) >= 4 else -1)


def test_the_largest_length_is_a_small_int_on_a_board() -> None:
    assert wire.get_length(b"\xff\xff\xff\x7f", 0, 4) < 2**30


# PUBLISH


@given(
    TOPIC, st.binary(max_size=200), st.integers(0, 2), st.booleans(),
    st.integers(6, 65535), st.integers(0, 5),
)  # fmt: skip
@example(b"t" * 125, b"", 0, False, 6, 0)
@example(b"t" * 126, b"", 0, False, 6, 0)
@example(b"t" * 123, b"", 1, True, 0x0102, 0)
@example(b"t" * 124, b"", 2, False, 0xFF00, 0)
def test_publish_comes_back(topic, payload, qos, retain, pid, before) -> None:
    s = Session(400, 8, pid - 1 - before)
    for _ in range(before):
        s.publish(b"t", b"", 1)
    at = s.end
    assert s.publish(topic, payload, qos, retain) == (pid if qos else 0)
    assert s.buf[s.end :] == bytes(len(s.buf) - s.end)
    packets, rest = peer.split(bytes(s.buf[at : s.end]))
    assert rest == b""
    wanted = peer.Publish(False, qos, retain, topic, pid if qos else 0, payload)
    assert [peer.take_apart(p) for p in packets] == [wanted]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("length", BOUNDS[2:-1])
def test_publish_at_each_size_of_header(length: int, qos: int) -> None:
    payload = bytes(length - (2 + 1 + (2 if qos else 0)))
    size = 1 + size_of_length(length) + length
    s = Session(size, 1, 0x1233)
    s.publish(b"t", payload, qos)
    assert s.end == size
    (packet,), rest = peer.split(bytes(s.buf[: s.end]))
    assert peer.take_apart(packet).payload == payload
    assert rest == b""


@pytest.mark.parametrize("n", [1, 255, 256, 65_535])
def test_publish_with_a_topic_of_any_length(n: int) -> None:
    s = Session(n + 10, 1)
    s.publish(b"t" * n, b"!")
    (packet,), _ = peer.split(bytes(s.buf[: s.end]))
    assert peer.take_apart(packet) == (False, 0, False, b"t" * n, 0, b"!")


# Fields and numbers


@given(TEXT)
def test_a_field_is_bytes_of_what_it_was_given(value: bytes) -> None:
    for same in (value, value.decode(), bytearray(value), memoryview(value)):
        assert wire.field("name", same) == value
        assert type(wire.field("name", same)) is bytes


def test_bytes_pass_a_field_without_a_copy() -> None:
    value = b"sensors/temp"
    assert wire.field("name", value) is value


@pytest.mark.parametrize("value", [5, 2.5, None])
def test_a_field_is_no_number(value: object) -> None:
    with pytest.raises(TypeError):
        wire.field("password", value, None)  # type: ignore[arg-type]


def test_a_field_holds_65535_bytes() -> None:
    assert len(wire.field("name", b"x" * 65_535)) == 65_535
    with pytest.raises(ValueError, match=r"name must be at most 65535 bytes, not 65536"):
        wire.field("name", b"x" * 65_536)
    with pytest.raises(ValueError, match="65537"):
        wire.field("name", "x" * 65_535 + "é")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (b"\xff", "not UTF-8"),
        (b"a\0b", "U[+]0000"),
        ("a\0b", "U[+]0000"),
        (b"\xed\xa0\x80", "not UTF-8"),
    ],
)
def test_a_field_that_is_not_text_names_itself(value, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^client_id b'.*': {rule}"):
        wire.field("client_id", value)


@given(st.integers(-10, 10), st.integers(-5, 5), st.integers(0, 5))
def test_number(value: int, low: int, width: int) -> None:
    if low <= value <= low + width:
        assert wire.number("n", value, low, low + width) == value
    else:
        with pytest.raises(ValueError) as caught:
            wire.number("n", value, low, low + width)
        assert str(caught.value) == f"n must be {low} to {low + width}, not {value}"


# CONNECT


def take_connect_apart(packet: bytes) -> dict:
    """The fields of a CONNECT, in the order of the standard."""
    (found,), rest = peer.split(packet)
    assert rest == b""
    assert found.first == 0x10
    body = found.body
    at = 0

    def text() -> bytes:
        nonlocal at
        n = body[at] * 256 + body[at + 1]
        at += 2 + n
        assert at <= len(body)
        return body[at - n : at]

    got: dict = {"name": text(), "level": body[at]}
    flags = body[at + 1]
    got["keepalive"] = body[at + 2] * 256 + body[at + 3]
    at += 4
    assert not flags & 1, "the reserved flag"
    got["clean"] = bool(flags & 2)
    got["client_id"] = text()
    got["will"] = None
    if flags & 4:
        got["will"] = (text(), text(), flags >> 3 & 3, bool(flags & 32))
    else:
        assert not flags & 0x38
    got["user"] = text() if flags & 128 else None
    got["password"] = text() if flags & 64 else None
    assert at == len(body)
    return got


@given(
    version=st.sampled_from([3, 4]),
    client_id=st.text("abcé-1", min_size=1, max_size=11).map(str.encode),
    clean=st.booleans(),
    keepalive=st.integers(0, 65535),
    user=st.none() | TEXT,
    password=st.none() | st.binary(max_size=200),
    will=st.none() | st.tuples(TOPIC, st.binary(max_size=200), st.integers(0, 2), st.booleans()),
)
def test_connect_comes_back(version, client_id, clean, keepalive, user, password, will) -> None:
    if user is None:
        password = None
    packet = setup.connect(version, client_id, clean, keepalive, user, password, will)
    assert take_connect_apart(bytes(packet)) == {
        "name": b"MQTT" if version == 4 else b"MQIsdp",
        "level": version,
        "keepalive": keepalive,
        "clean": clean,
        "client_id": client_id,
        "will": will,
        "user": user,
        "password": password,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 5}, "version must be 3 to 4, not 5"),
        ({"version": 2}, "version must be 3 to 4, not 2"),
        ({"client_id": b"", "clean": False}, "client_id length must be 1 to 65535, not 0"),
        ({"client_id": b"", "version": 3}, "client_id length must be 1 to 23, not 0"),
        ({"client_id": b"x" * 24, "version": 3}, "client_id length must be 1 to 23, not 24"),
        ({"client_id": b"x" * 65_536}, "client_id must be at most 65535 bytes, not 65536"),
        ({"client_id": b"\xff"}, "client_id b'\\xff': not UTF-8"),
        ({"keepalive": -1}, "keepalive must be 0 to 65535, not -1"),
        ({"keepalive": 65_536}, "keepalive must be 0 to 65535, not 65536"),
        ({"user": b"\0"}, "user b'\\x00': U+0000 is not allowed"),
        ({"user": b"u" * 65_536}, "user must be at most 65535 bytes, not 65536"),
        ({"user": b"u", "password": b"p" * 65_536}, "password must be at most 65535 bytes, not"),
        ({"password": b"p"}, "password needs a user"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_connect_refuses(changes: dict, message: str) -> None:
    asked = {
        "version": 4, "client_id": b"me", "clean": True, "keepalive": 60, "user": None,
        "password": None, "will": None,
    } | changes  # fmt: skip
    with pytest.raises(ValueError) as caught:
        setup.connect(*asked.values())
    assert message in str(caught.value)


def test_connect_takes_no_identifier_with_a_clean_session() -> None:
    assert take_connect_apart(setup.connect(4, b"", True, 0, None, None, None))["client_id"] == b""


def test_connect_takes_the_longest_fields() -> None:
    most = b"x" * 65_535
    got = take_connect_apart(setup.connect(4, most, False, 0, most, most, (most, most, 2, True)))
    assert (got["client_id"], got["user"], got["password"]) == (most, most, most)
    assert got["will"] == (most, most, 2, True)


# Other packets


@given(st.lists(TEXT, min_size=1, max_size=4), st.sampled_from([b"", b"\1"]))
def test_packet_of_fields(fields: list[bytes], tail: bytes) -> None:
    made = wire.packet(0x82, b"\0\7", fields, tail)
    wanted = b"\0\7" + b"".join(len(f).to_bytes(2, "big") + f + tail for f in fields)
    assert peer.split(bytes(made)) == ([(0x82, wanted)], b"")
