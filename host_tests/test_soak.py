"""The soak in short, and that it finds what it looks for: each thing that may go wrong, once."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from flatmq_rigs import results, soak
from flatmq_rigs.soak import faults
from flatmq_rigs.soak.faults import Faults
from flatmq_rigs.soak.republished import Log

SEED = 11
QUICK = ("cut", "reset")  # faults that take no time

Shown = tuple[int, str]
Run = Callable[..., Shown]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
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
WAYS = [Way(9_000, 50_000, {})]
MORE = [Way(3_000, 40_000, {"link": link}) for link in ("websocket", "tls", "websocket+tls")]


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


def test_an_identifier_that_comes_again_is_not_published_again() -> None:
    def take(kind: str, dup: int, pid: int) -> None:
        more = (
            f"d{dup}, q2, r0, m{pid}, 'up/2', ... (4 bytes)"
            if kind == "PUBLISH"
            else f"Mid: {pid}"
        )
        log.take(f"1: Received {kind} from device ({more})")

    log = Log("device")
    take("PUBLISH", 0, 7)
    take("PUBREL", 0, 7)
    take("PUBLISH", 1, 7)
    assert log.again == 1
    for pid in (7, *range(10_000, 25_000)):
        take("PUBREL", 0, pid)
    take("PUBLISH", 1, 7)  # of a message that was lost when it was sent first
    assert log.again == 1
    take("PUBLISH", 1, 24_000)
    assert log.again == 2
    log.stop()


def test_a_client_that_stops_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one byte passes, and so not even the subscriptions are granted."""
    monkeypatch.setattr(soak, "PATIENCE", 0.5)
    monkeypatch.setattr(Faults, "rules", lambda self, count: faults.Rules(faults.Way(0)))
    status, shown = run(1_000)
    assert status == 1
    assert "nothing new for 0.5 s: the device is ended" in shown
    assert "the device did not come to its end" in shown
