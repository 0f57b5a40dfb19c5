"""The soak in short, and that it finds what it looks for: each thing that may go wrong, once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from flatmq_rigs import results, soak
from flatmq_rigs.soak import faults, plan
from flatmq_rigs.soak.books import Books
from flatmq_rigs.soak.faults import Faults
from flatmq_rigs.soak.republished import Log
from flatmq_rigs.soak.verdict import Verdict

SEED = 11
QUICK = ("cut", "reset")  # faults that take no time

Shown = tuple[int, str]
Run = Callable[..., Shown]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a soak; its exit status and what it prints."""

    def runs(messages: int, **options: Any) -> Shown:
        status = soak.main(messages, seed=SEED, **options)
        return status, capsys.readouterr().out

    return runs


def row(shown: str, name: str) -> str:
    """Return what stands behind a figure's name."""
    found = re.search(rf"^\| {re.escape(name)} \| (.*?)$", shown, re.MULTILINE)
    assert found, shown
    return found[1]


def wrong(shown: str) -> list[str]:
    """Return the names of the figures that are not as required."""
    return re.findall(r"^\| ([^|]*) \| .* WRONG \|$", shown, re.MULTILINE)


@dataclass
class Way:
    """The size of a soak: its messages and bytes between two faults, and what else it is given."""

    messages: int
    mean: int
    options: dict[str, Any]

    def __str__(self) -> str:
        return "-".join([str(self.messages), *map(str, self.options.values())])


# The first shows every kind of fault. Over TLS each silence takes the longest of all.
WAYS = [
    Way(9_000, 50_000, {}),
    Way(3_000, 40_000, {"link": "websocket"}),
]
MORE = [Way(3_000, 40_000, {"link": link}) for link in ("tls", "websocket+tls")]


@pytest.mark.parametrize(
    "way", [*WAYS, *(pytest.param(way, marks=pytest.mark.proof) for way in MORE)], ids=str
)
def test_nothing_is_lost(run: Run, tmp_path: Path, way: Way) -> None:
    path = tmp_path / "results.md"
    status, shown = run(way.messages, mean=way.mean, document=path, **way.options)
    assert (status, wrong(shown)) == (0, []), shown
    link = way.options.get("link", "tcp")
    assert f"--seed {SEED}" in shown
    assert row(shown, "sent").startswith(f"{way.messages:,} / {way.messages:,}")
    assert row(shown, "repeated at QoS 2").startswith("0 / 0")
    assert ("in the TLS handshake" in shown) == link.endswith("tls")
    if way is WAYS[0]:
        assert all(re.search(rf"[1-9]\d* × {kind}", shown) for kind in faults.KINDS), shown
    document = path.read_text(encoding="utf-8")
    assert f"<!-- soak{'' if link == 'tcp' else '-' + link}:begin -->" in document
    assert re.search(rf"`python -m flatmq_rigs soak( --link {re.escape(link)})?`", document)
    assert f"seed {SEED}." in document
    assert "; mosquitto version 2." in document
    (table,) = results.tables(path, f"soak{'' if link == 'tcp' else '-' + link}")
    assert ["lost at QoS 2", "0 / 0", "0 / 0", "met"] in results.rows(table)
    assert row(shown, "allocated while online, bytes").startswith("0 ")
    heap = rf"MicroPython 1\.\d+\.\d+ with a heap of {soak.HEAP_KB[link]} KB"
    assert re.search(heap, document)


# A function of the client, what replaces it (`old` is the function, `count` a list with a 0), and
# the figures that must show it. The last messages do come, for which the device waits.
SPOILED = {
    "accepted, but not sent": (
        "__init__", "Client.publish",
        """(self, topic, payload, qos=0):
    count[0] += 1
    return 1 if qos and count[0] % 100 == 0 else old(self, topic, payload, qos)""",
        {"lost at QoS 1", "lost at QoS 2"},
    ),
    "QoS 2 delivered as often as it comes": (
        "rare/qos2", "is_new",
        """(c, pid):
    old(c, pid)
    return True""",
        {"repeated at QoS 2"},
    ),
    "acknowledged, but not delivered": (
        "rare/qos2", "is_new",
        """(c, pid):
    count[0] += 1
    return (count[0] % 100 > 0 or count[0] > 500) and old(c, pid)""",
        {"lost at QoS 2"},
    ),
    "memory allocated in poll": (
        "__init__", "Client.poll",
        """(self, ms=0):
    bytearray(40)
    return old(self, ms)""",
        {"allocated while online, bytes"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_client_is_found_out(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, function, code, figures = SPOILED[name]
    library = tmp_path / "flatmq"
    shutil.copytree(ROOT / "lib" / "flatmq", library)
    with (library / f"{module}.py").open("a") as source:
        source.write(f"\nold, count = {function}, [0]\ndef new{code}\n{function} = new\n")
    monkeypatch.setattr(soak, "LIBRARY", library)
    monkeypatch.setattr(faults, "KINDS", QUICK)
    status, shown = run(2_000, mean=12_000, heap=128)
    assert status == 1
    assert figures <= set(wrong(shown)), shown


def test_a_client_that_stops_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one byte passes, and so not even the subscriptions are granted."""
    monkeypatch.setattr(soak, "PATIENCE", 0.5)
    monkeypatch.setattr(Faults, "rules", lambda self, count: faults.Rules(faults.Way(0)))
    status, shown = run(1_000)
    assert status == 1
    assert "nothing new for 0.5 s: the device is ended" in shown
    assert "the device did not come to its end" in shown


def test_what_kills_the_device_is_shown(run: Run) -> None:
    status, shown = run(1_000, heap=40)
    assert status == 1
    assert "MemoryError" in shown


def payload(number: int) -> bytes:
    """The payload of message `number` of a QoS."""
    return number.to_bytes(4, "big") + bytes(plan.template(number)[4:])


GOOD: dict[str, list[int]] = {
    "next": [10, 10, 10],
    "missing": [2, 0, 0],
    "again": [0, 4, 0],
    "wrong": [0],
    "rows": [1, 0, 0],
    "sent": [30],
    "longest": [21, 0],
    "steady": [0, 500],
    "heap": [50_000, 50_000, 50_000, 60_000],
    "files": [5, 5],
    "stats": [3, 2, 7, 0],
    "odd": [0, 0, 0],
    "kinds": [1, 1, 0, 0, 0, 0],
    "doubts": [1],
}


def books(left_out: tuple[int, int] | None = None) -> Books:
    """The desk's books after 30 messages, without one of them."""
    made = Books(30)
    for number in range(10):
        for qos in plan.QOS:
            if (qos, number) != left_out:
                made.take(qos, qos, payload(number))
    return made


REFUSED = "… refused / for a broken rule / for lack of room"
AGAIN = {"again": [0, 0, 2]}
HANDSHAKES = {"kinds": [1, 0, 0, 0, 0, 2]}


@pytest.mark.parametrize(
    ("told", "more", "bad"),
    [
        ({}, {}, []),
        ({}, {"left_out": (0, 4)}, []),
        ({}, {"left_out": (1, 4)}, ["lost at QoS 1"]),
        ({}, {"left_out": (2, 4)}, ["lost at QoS 2"]),
        ({}, {"spoilt": True}, ["not what was sent"]),
        ({"sent": [29]}, {}, ["sent"]),
        ({"next": [10, 10, 9]}, {}, ["lost at QoS 2"]),
        ({"missing": [0, 0, 1]}, {}, ["lost at QoS 2", "out of order at QoS 2"]),
        ({"missing": [0, 1, 0]}, {}, ["lost at QoS 1", "out of order at QoS 1"]),
        ({"again": [0, 0, 1]}, {}, ["repeated at QoS 2"]),
        ({"again": [1, 0, 0]}, {}, ["repeated at QoS 0"]),
        ({"wrong": [1]}, {}, ["not what was sent"]),
        ({"rows": [5, 0, 0]}, {}, ["rows of messages lost at QoS 0"]),
        ({"longest": [5001, 1]}, {}, ["longest poll(20), ms"]),
        ({"steady": [1, 500]}, {}, ["allocated while online, bytes"]),
        ({"steady": [0, 0]}, {}, ["turns of the loop while online"]),
        ({"heap": [50_000, 50_032, 50_032, 60_000]}, {}, ["heap held before / after, bytes"]),
        ({"files": [5, 6]}, {}, ["file descriptors before / after"]),
        ({"stats": [1, 2, 7, 0]}, {}, ["reconnects"]),
        ({"stats": [3, 2, 7, 1]}, {}, ["publishes sent as new"]),
        ({"odd": [0, 1, 0]}, {}, ["messages skipped / for nobody"]),
        ({"odd": [0, 0, 1]}, {}, ["messages skipped / for nobody"]),
        ({"kinds": [1, 0, 1, 0, 0, 0]}, {}, [REFUSED]),
        ({"kinds": [1, 0, 0, 1, 0, 0]}, {}, [REFUSED]),
        ({"kinds": [1, 0, 0, 0, 1, 0]}, {}, [REFUSED]),
        # Only what the broker published again may come twice.
        (AGAIN, {"republished": (0, 0, 2)}, []),
        (AGAIN, {"republished": (2, 1, 1)}, ["repeated at QoS 2"]),
        # And what the client published again on a connection in doubt.
        ({}, {"twice": 2, "republished": (2, 1, 0)}, []),
        ({}, {"twice": 2, "republished": (1, 1, 0)}, ["repeated at QoS 2"]),
        ({}, {"twice": 2, "republished": (2, 2, 0)}, ["repeated at QoS 2"]),
        # A handshake may fail if the link broke.
        (HANDSHAKES, {"broken_off": 2}, []),
        (HANDSHAKES, {"broken_off": 1}, ["… in the TLS handshake"]),
    ],
)
def test_a_single_figure_spoils_the_verdict(
    told: dict[str, list[int]], more: dict[str, Any], bad: list[str]
) -> None:
    kept = books(more.get("left_out"))
    for number in range(more.get("twice", 0)):
        kept.take(2, 2, payload(number))
    if "spoilt" in more:
        kept.take(1, 1, payload(5) + b"x")
    seen = (more.get("republished", (0, 0, 0)), 2.0, more.get("broken_off"))
    verdict = Verdict(30, 30, kept, {**GOOD, **told}, *seen)
    assert [figure.name for figure in verdict.figures if not figure.ok] == bad
    assert verdict.ok == (not bad)


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["PUBLISH d0 5", "PUBREL 5", "PUBLISH d1 5"], 1),
        (["PUBLISH d0 5", "PUBLISH d1 5", "PUBREL 5"], 0),
        (["PUBREL 5", "PUBLISH d0 5", "PUBLISH d1 5"], 0),
        (["PUBREL 5", "PUBLISH d1 6"], 0),
        (["PUBREL 5", "PUBLISH d1 5 to else"], 0),
    ],
)
def test_the_log_says_what_the_broker_publishes_after_its_pubrel(
    lines: list[str], count: int
) -> None:
    log = Log("soak-1")
    with open(log.output, "w", closefd=False) as written:
        print("1637588: mosquitto version 2.0.11 starting", file=written)
        for line in lines:
            kind, *dup, pid = line.removesuffix(" to else").split()
            client = "else" if line.endswith("else") else "soak-1"
            detail = f"{dup[0]}, q2, r0, m{pid}, 'a/b', ... (9 bytes)" if dup else f"m{pid}"
            print(f"1637588: Sending {kind} to {client} ({detail})", file=written)
    log.stop()
    assert (log.version, log.republished) == ("mosquitto version 2.0.11", count)


def test_the_log_shows_what_came_to_a_message_sent_again_after_its_pubrec() -> None:
    log = Log("soak-1")
    for line in (
        "Sending CONNACK to soak-1 (0, 0)",
        "Sending PUBLISH to soak-1 (d0, q2, r0, m5, 'a/b', ... (9 bytes))",
        "Sending PUBLISH to soak-1 (d0, q2, r0, m6, 'a/b', ... (9 bytes))",
        "Received PUBREC from soak-1 (Mid: 5)",
        "Sending CONNACK to soak-1 (1, 0)",
        "Sending PUBLISH to soak-1 (d1, q2, r0, m5, 'a/b', ... (9 bytes))",
        "Sending PUBLISH to soak-1 (d1, q2, r0, m6, 'a/b', ... (9 bytes))",
    ):
        log.take(f"1637588: {line}")
    log.stop()
    assert log.suspects == [["1: PUBLISH", "1: PUBREC", "2: PUBLISH DUP"]]


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["CONNACK", "PUBREL 5", "PUBREL 6", "CONNACK", "PUBLISH d1 5", "PUBLISH d1 6"], (2, {2})),
        (["CONNACK", "PUBREL 5", "CONNACK", "CONNACK", "PUBLISH d1 5"], (1, {3})),
        (["CONNACK", "PUBREL 5", "CONNACK", "PUBLISH d0 5", "PUBLISH d1 5"], (0, set())),
        (["CONNACK", "PUBREC 5", "CONNACK", "PUBLISH d1 5"], (0, set())),
    ],
)
def test_the_log_says_what_the_client_publishes_after_its_pubrel(
    lines: list[str], count: tuple[int, set[int]]
) -> None:
    log = Log("soak-1")
    for line in lines:
        kind, *dup, pid = line.split() if " " in line else (line, "")
        detail = f"{dup[0]}, q2, r0, m{pid}, 'a/b', ... (9 bytes)" if dup else f"Mid: {pid}"
        if kind == "CONNACK":
            log.take("1637588: Sending CONNACK to soak-1 (1, 0)")
        else:
            log.take(f"1637588: Received {kind} from soak-1" + (f" ({detail})" if pid else ""))
    log.stop()
    assert (log.again, log.connections) == count
