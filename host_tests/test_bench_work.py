"""The bench's measurement of the client's own work, over a link in memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flatmq_rigs import webassembly
from flatmq_rigs.bench import work
from flatmq_rigs.bench.figures import Results
from flatmq_rigs.bench.targets import TARGETS
from flatmq_rigs.bench.work import BITS, FLATMQ, FLOOR, MIXES, OPERATIONS, UMQTT, Work
from flatmq_tools import interpreter

ALL = (*OPERATIONS, *MIXES)


def test_every_operation_on_both_interpreters(bench_build: Path) -> None:
    """Each of them checks itself that it did what it is timed for."""
    if webassembly.find() is None:
        pytest.fail(webassembly.MISSING)
    measured = work.measure(bench_build, 1)
    wanted = {(b, c, o) for b in BITS for c in (FLOOR, FLATMQ, UMQTT) for o in ALL}
    assert set(measured.rounds) == set(measured.heap) == wanted
    for bits in BITS:
        for name in ALL:
            left = measured.heap[bits, FLATMQ, name]
            assert left == 0 or name == "receive_bytes", (bits, name, left)
        assert measured.worst(bits) is not None
    written = measured.markdown()
    assert written.count("| eight topics in turn, four subscriptions |") == 2


def test_the_worst_ratio_is_that_of_the_slowest_operation() -> None:
    measured = Work()
    for name in ALL:
        measured.add("64-bit", [f"@us {FLATMQ} {name} {n}" for n in (1, 9, 2)])
        measured.add("64-bit", [f"@us {UMQTT} {name} 4"])
    measured.add("64-bit", [f"@us {FLATMQ} ping {n}" for n in (12, 12, 12, 12)])
    assert measured.ratio("64-bit", FLATMQ, UMQTT, "idle") == 0.5
    assert measured.worst("64-bit") == 3
    assert measured.worst("32-bit") is None
    results = Results(work=measured)
    found = {t.text: t for t in TARGETS if "link in memory" in t.text}
    assert [t.value(results) for t in found.values()] == [3, None]
    assert not any(t.met(t.value(results)) for t in found.values())


def test_an_operation_that_is_missing_leaves_the_worst_open() -> None:
    measured = Work()
    measured.add("64-bit", [f"@us {FLATMQ} idle 1", f"@us {UMQTT} idle 2"])
    assert measured.ratio("64-bit", FLATMQ, UMQTT, "idle") == 0.5
    assert measured.worst("64-bit") is None


def test_without_the_32_bit_interpreter_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bench_build: Path
) -> None:
    monkeypatch.setenv("MICROPYTHON_WASM", str(tmp_path))
    measured = work.measure(bench_build, 1)
    assert {bits for bits, _, _ in measured.rounds} == {"64-bit"}
    assert webassembly.MISSING in measured.markdown()


def test_what_failed_is_told_without_the_results_before_it() -> None:
    done = subprocess.CompletedProcess([], 1, "@us flatmq idle 1\nTraceback:\nValueError: 3\n", "")
    assert interpreter.last_words(done) == "Traceback:\nValueError: 3"
    assert interpreter.last_words(subprocess.CompletedProcess([], 9, "@us", "")) == "exit status 9"
