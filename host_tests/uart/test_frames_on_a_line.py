"""Frames among anything else: what is a frame is found, and what is not is not."""

import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatmq.frames import HEAD, PAYLOAD, SIZE, Decoder, Encoder, crc

heads = st.binary(min_size=HEAD, max_size=HEAD)
payloads = st.binary(max_size=PAYLOAD)
frames = st.tuples(heads, payloads)
texts = st.text(max_size=30).map(str.encode)
# What noise is made of: more of what has a meaning than chance would give.
noise = st.lists(st.one_of(st.integers(0, 255), st.sampled_from([0xFA, 0xFB, 0xFC, 10]))).map(
    bytes
)


def encoded(head: bytes, payload: bytes) -> bytes:
    encoder = Encoder()
    encoder.head[:] = head
    encoder.frame(payload, 0, len(payload))
    return bytes(encoder.out[: encoder.n])


def decoded(data: bytes, decoder: Decoder | None = None, step: int = 1 << 30) -> list:
    """The frames in it, which is handed over in chunks of `step` bytes."""
    decoder = decoder or Decoder()
    found = []
    for begin in range(0, len(data), step):
        chunk = data[begin : begin + step]
        at = 0
        while at < len(chunk):
            at = decoder.take(chunk, at, len(chunk))
            if decoder.size >= 0:
                end = HEAD + decoder.size
                found.append((bytes(decoder.buf[:HEAD]), bytes(decoder.buf[HEAD:end])))
    return found


@given(st.binary(max_size=200), st.integers(0, 0xFFFF))
def test_the_check_is_that_of_the_standard_library(data: bytes, value: int) -> None:
    assert crc(data, 0, len(data), value) == binascii.crc_hqx(data, value)


@given(st.lists(frames, max_size=8), st.integers(1, 40))
def test_frames_come_out_as_they_went_in(some: list, step: int) -> None:
    assert decoded(b"".join(encoded(*frame) for frame in some), step=step) == some


@given(frames)
def test_nothing_in_a_frame_commands_a_terminal(frame: tuple) -> None:
    data = encoded(*frame)
    assert len(data) <= SIZE
    assert min(data) >= 32
    assert data[0] == 0xFA
    assert data[-1] == 0xFB
    assert max(data[1:-1]) == max([0xFC] * (0xFC in data) + [c for c in data if c < 0xFA])


@given(st.lists(st.tuples(texts, frames), max_size=5), texts, st.integers(1, 40))
def test_text_between_frames_is_text(pairs: list, last: bytes, step: int) -> None:
    decoder = Decoder(bytearray())
    line = b"".join(text + encoded(*frame) for text, frame in pairs) + last
    assert decoded(line, decoder, step) == [frame for _, frame in pairs]
    assert decoder.text == b"".join(text for text, _ in pairs) + last
    assert decoder.bad == 0


@given(noise, st.lists(frames, min_size=1, max_size=4))
def test_after_any_noise_frames_are_found_again(garbage: bytes, some: list) -> None:
    """The first at the latest when the next one begins; a frame that was there is not made up."""
    found = decoded(garbage + b"".join(encoded(*frame) for frame in some))
    assert found == some


@given(frames, frames, st.data())
def test_a_spoiled_frame_is_no_frame(frame: tuple, after: tuple, data: st.DataObject) -> None:
    line = bytearray(encoded(*frame))
    at = data.draw(st.integers(0, len(line) - 1))
    way = data.draw(st.sampled_from(["flip", "lose", "insert"]))
    if way == "flip":
        line[at] ^= 1 << data.draw(st.integers(0, 7))
    elif way == "lose":
        del line[at:]
    else:
        line[at:at] = b"\r\nTraceback\r\n"
    found = decoded(bytes(line) + encoded(*after))
    assert found == ([frame, after] if way == "insert" and at == 0 else [after])


@pytest.mark.parametrize("size", [0, 1, HEAD, HEAD + 1])
def test_a_frame_too_short_for_its_head_is_none(size: int) -> None:
    assert decoded(b"\xfa" + b"A" * size + b"\xfb") == []


def test_a_frame_that_does_not_end_is_given_up() -> None:
    decoder = Decoder()
    decoded(b"\xfa" + b"A" * 1000, decoder)
    assert decoder.bad == 1
    frame = (b"head!", b"payload")
    assert decoded(encoded(*frame), decoder) == [frame]
