"""The record of a crash on the flash of a board: power cuts, and no room."""

from __future__ import annotations

import subprocess
from pathlib import Path

from conftest import interpreter_command
from flatmq_tools import interpreter
from flatmq_tools.bytecode import library

HERE = Path(__file__).parent
HEAP = "2m"  # the flash is in it
DEADLINE = 300


def _seen(script: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [*interpreter_command("micropython", HEAP), str(HERE / script), *arguments],
        env=interpreter.environment(library(), HERE.parent / "spool"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.splitlines()[-1].split()
    assert words[0] == "SEEN"
    return words[1:]


def test_a_power_cut_at_any_write_loses_nothing_and_repeats_at_most_once() -> None:
    writes, cuts, *broken = map(int, _seen("powercut.py"))
    assert writes > 5
    assert cuts == 2 * writes, "not every cut came"
    assert broken == [0, 0, 0, 0]


def test_a_full_flash_keeps_the_earlier_record_and_a_full_heap_is_kept(tmp_path: Path) -> None:
    seen = _seen("full.py", str(tmp_path / "crash.json"))
    assert seen == ["False", "True", "False", "MemoryError"]
