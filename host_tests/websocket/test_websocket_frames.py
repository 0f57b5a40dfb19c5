"""Frames of any length both ways, and what the application learns of the end of a WebSocket.

That they may be cut anywhere, and the network may take any part of them, ../hostile shows.
"""

import pytest

from flatmq.stream_websocket import WebSocket
from hostile.server_frames import BINARY, CLOSE, CONTINUATION, PING, TEXT
from websocket.far_end import Inner, frame, opened


def taken(link: WebSocket, room: int = 512) -> tuple[bytes, str | None]:
    """All payload that can be read, and the text of the error that ended it."""
    got = b""
    buf = bytearray(room)
    for _ in range(100_000):
        try:
            n = link.readinto(memoryview(buf))
        except OSError as error:
            return got, str(error)
        if not n:
            assert n is None
            inner = link._link
            assert isinstance(inner, Inner)
            if inner.incoming:
                continue  # it need not take all in one call
            return got, None
        got += buf[:n]
    raise AssertionError("no end")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("n", [125, 126, 65535, 65536, 70000])
def test_a_span_of_any_length(n: int, tls: bool) -> None:
    inner = Inner()
    link = opened(inner, tls)
    span = bytes(i * 7 & 255 for i in range(n))
    at = 0
    while at < n:
        at += link.write(memoryview(span), at, n - at) or 0
    sent = inner.sent()
    assert sent.payload == span
    assert not tls or sent.masks == {bytes(4)}


@pytest.mark.parametrize("n", [0, 125, 126, 65535, 65536, 200_000])
def test_a_frame_of_any_length(n: int) -> None:
    inner = Inner()
    link = opened(inner)
    payload = bytes(i * 7 & 255 for i in range(n))
    inner.incoming.append(frame(BINARY, payload) + frame(BINARY, b"next"))
    assert taken(link) == (payload + b"next", None)


BROKEN = {
    "mask": (frame(BINARY, b"x", mask=b"abcd"), 1002, "a frame with a mask"),
    "reserved 1": (frame(BINARY, b"x", reserved=4), 1002, "reserved bits"),
    "reserved 2": (frame(BINARY, b"x", reserved=2), 1002, "reserved bits"),
    "reserved 3": (frame(PING, b"x", reserved=1), 1002, "reserved bits"),
    "text": (frame(TEXT, b"x"), 1003, "a text frame"),
    "opcode": (frame(3, b"x"), 1002, "an unknown opcode"),
    "control opcode": (frame(11), 1002, "an unknown opcode"),
    "fragmented ping": (frame(PING, final=False), 1002, "a control frame in fragments"),
    "long ping": (frame(PING, bytes(126)), 1002, "more than 125 bytes"),
    "continuation": (frame(CONTINUATION, b"x"), 1002, "fragments out of order"),
    "two messages": (frame(BINARY, final=False) + frame(BINARY), 1002, "fragments out of order"),
    "terabyte": (b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), 1009, "a gigabyte or more"),
    "2**63": (b"\x82\x7f" + (1 << 63).to_bytes(8, "big"), 1009, "a gigabyte or more"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_ends_it(name: str) -> None:
    """The data before it is delivered first. The peer learns why, and so does the caller."""
    data, code, text = BROKEN[name]
    inner = Inner()
    link = opened(inner)
    inner.incoming.append(frame(BINARY, b"good") + data + frame(BINARY, b"bad"))
    got, error = taken(link)
    assert got == b"good"
    assert error is not None
    assert text in error
    assert inner.sent().closed == code.to_bytes(2, "big")
    with pytest.raises(OSError, match="WebSocket"):
        link.write(memoryview(b"x"), 0, 1)


@pytest.mark.parametrize(("payload", "answered", "text"), [
    (b"", b"", "WebSocket closed by the peer"),
    (b"\x03\xe8", b"\x03\xe8", "WebSocket closed by the peer: code 1000"),
    (b"\x03\xf0not you", b"\x03\xf0", "WebSocket closed by the peer: code 1008 not you"),
    (b"\x03\xf0\xff", b"\x03\xf0", r"WebSocket closed by the peer: code 1008 \xff"),
    (b"\x0f\xa0", b"\x0f\xa0", "WebSocket closed by the peer: code 4000"),
    # Codes that may not be in a Close frame are answered with 1002, and not sent back.
    (b"\x03", b"\x03\xea", "WebSocket closed by the peer"),
    (b"\0\0", b"\x03\xea", "WebSocket closed by the peer: code 0"),
    (b"\x03\xec", b"\x03\xea", "WebSocket closed by the peer: code 1004"),
    (b"\x03\xee", b"\x03\xea", "WebSocket closed by the peer: code 1006"),
    (b"\x03\xf7", b"\x03\xea", "WebSocket closed by the peer: code 1015"),
    (b"\x0b\xb7", b"\x03\xea", "WebSocket closed by the peer: code 2999"),
    (b"\x13\x88why", b"\x03\xea", "WebSocket closed by the peer: code 5000 why"),
])  # fmt: skip
def test_a_close_is_answered_and_reported(payload: bytes, answered: bytes, text: str) -> None:
    inner = Inner()
    link = opened(inner)
    inner.incoming.append(frame(BINARY, b"last") + frame(CLOSE, payload) + frame(BINARY, b"x"))
    got, error = taken(link)
    assert got == b"last"
    assert error is not None
    assert error.endswith(text)
    assert inner.sent().closed == answered
