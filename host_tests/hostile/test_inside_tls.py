"""The hostile cases of TCP inside TLS, on both interpreters."""

from __future__ import annotations

import pytest

from flatmq.stream_tls_cpython import Stream
from hostile import chance, corpus, corpus5, search, secured

CASES = list(corpus.load().values())
CASES_5 = list(corpus.load(corpus5.FILE).values())
EACH = 4  # of them, each so-manieth is run on CPython,
ON_DEVICE = 60  # and on MicroPython, where the network of one process takes its time


@pytest.mark.parametrize("kept", [CASES, CASES_5], ids=["MQTT 3", "MQTT 5"])
def test_every_event_is_the_same_inside_tls(kept: list[bytes]) -> None:
    for data in kept[::EACH]:
        with search.watched():
            search.judge(data, search.oracle_of(data), "tls")


@pytest.mark.parametrize("kept", [CASES, CASES_5], ids=["MQTT 3", "MQTT 5"])
def test_micropython_does_the_same_inside_tls_and_holds_no_more(kept: list[bytes]) -> None:
    assert chance.compare(kept[::ON_DEVICE], "tls") == []


def test_a_stream_that_loses_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Stream.write

    def short(self: Stream, buf: memoryview, off: int, n: int) -> int | None:
        return n if write(self, buf, off, max(1, n - 1)) else None

    monkeypatch.setattr(Stream, "write", short)
    monkeypatch.setattr(secured, "MOST_STEPS", 300)  # it is not waited for what does not come
    with pytest.raises(
        search.drive.Stuck, match=r"TLS does not|was written|does not end|was sent"
    ):
        search.judge(CASES[0], search.oracle_of(CASES[0]), "tls")
