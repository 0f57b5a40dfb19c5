"""The bench's comparison of MQTT 5 with 3.1.1, over a link in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatmq_rigs import webassembly
from flatmq_rigs.bench import versions
from flatmq_rigs.bench.versions import EXTRAS, LIMIT, NEW, OLD, OPERATIONS, Versions
from flatmq_rigs.bench.work import BITS


def test_every_operation_at_both_versions() -> None:
    """Each of them checks itself that it did what it is timed for."""
    if webassembly.find() is None:
        pytest.fail(webassembly.MISSING)
    measured = versions.measure(1)
    wanted = {(b, v, o) for b in BITS for v in (OLD, NEW) for o in (*OPERATIONS, *EXTRAS)}
    assert set(measured.rounds) == set(measured.heap) == wanted
    assert {where: left for where, left in measured.heap.items() if left} == {}
    for bits in BITS:
        for name in (*OPERATIONS, *EXTRAS):
            # On a busy machine a difference of two times may have either sign.
            assert measured.ratio_of(bits, name) is not None


def test_what_takes_more_than_the_limit_is_said() -> None:
    measured = Versions()
    for name in OPERATIONS:
        measured.add("64-bit", [f"@us {OLD} {name} {n}" for n in (2, 2, 4)])
        measured.add("64-bit", [f"@us {NEW} {name} {n}" for n in (7, 2, 2)])
    assert measured.missed() == []
    measured.add("64-bit", [f"@us {NEW} receive {n}" for n in (1, 1, 1)])
    measured.add("64-bit", [f"@us {OLD} receive {n}" for n in (0.5, 3, 3)])
    said = f"receive QoS 0, one at a time, 64-bit: 2 times 3.1.1, more than {LIMIT}"
    assert said in measured.missed()
    written = measured.markdown()
    assert "| receive QoS 0, one at a time | 0.5 | 1 | 2 | MISSED |" in written
    assert "| PINGREQ and PINGRESP | 2 | 2 | 1 | met |" in written


def test_of_a_difference_the_median_counts() -> None:
    """The least of them may be below 0 on a busy machine."""
    measured = Versions()
    measured.add("64-bit", [f"@us {OLD} idle {n}" for n in (-19, 2, 9)])
    measured.add("64-bit", [f"@us {NEW} idle {n}" for n in (-30, 2.5, 3)])
    assert measured.ratio_of("64-bit", "idle") == 1.25


def test_what_only_mqtt_5_has_has_no_limit() -> None:
    measured = Versions()
    for name in EXTRAS:
        measured.add("64-bit", [f"@us {OLD} {name} 1", f"@us {NEW} {name} 9"])
    assert measured.missed() == []
    assert "| publish QoS 0 with a topic alias | 1 | 9 | 9 |  |" in measured.markdown()


def test_without_the_32_bit_interpreter_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MICROPYTHON_WASM", str(tmp_path))
    measured = versions.measure(1)
    assert {bits for bits, _, _ in measured.rounds} == {"64-bit"}
    assert webassembly.MISSING in measured.markdown()
