"""The ledger sees what it is there to see."""

import pytest

from faults.__main__ import summary
from faults.ledger import Message, Way, payload, read


@pytest.mark.parametrize(("promised", "came", "qos", "options", "problems"), [
    ("123", "123", 0, {}, 0),
    ("123", "123", 1, {}, 0),
    ("123", "123", 2, {}, 0),
    ("12", "1", 0, {}, 0),
    ("12", "1", 0, {"intact": True}, 1),
    ("12", "1", 1, {}, 1),
    ("12", "1", 2, {}, 1),
    ("12", "112", 0, {}, 1),
    ("12", "112", 1, {}, 0),
    ("12", "112", 2, {}, 1),
    ("12", "112", 2, {"again": True}, 0),  # the session was forgotten
    ("123", "12123", 1, {}, 0),  # the order is that of first deliveries
    ("123", "132", 1, {}, 1),
    ("1", "12", 0, {}, 1),  # never sent
    ("1", "1x", 0, {}, 1),  # x came changed
])  # fmt: skip
def test_problems(promised: str, came: str, qos: int, options: dict, problems: int) -> None:
    messages = {n: Message("t", int(n), 16, qos) for n in "123"}
    way = Way("up", [messages[n] for n in promised], [messages.get(n) for n in came], **options)
    assert len(way.problems()) == problems


def test_a_payload_is_read_only_as_it_was_sent() -> None:
    assert read(b"t", payload(7, 100), 1) == Message("t", 7, 100, 1)
    assert read(b"t", payload(7, 100)[:-1] + b"x", 1) is None
    assert read(b"t", b"hello", 1) is None


def test_a_run_that_failed_shows_in_the_row_of_its_scenario() -> None:
    runs = [
        ["lost", "mosquitto", "cpython", "closed: 127.0.0.1:5", "1,000", "9.0", "ok"],
        ["lost", "fake", "cpython", "closed: 127.0.0.1:6", "20", "10.5", "FAILED: late"],
        ["kept", "fake", "cpython", "", "1", "2.0", "ok"],
    ]
    assert summary(runs) == [
        ["lost", "2", "closed: 127.0.0.1", "1,000", "10.5", "FAILED: late"],
        ["kept", "1", "", "1", "2.0", "ok"],
    ]
