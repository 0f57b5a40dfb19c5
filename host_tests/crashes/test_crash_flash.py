"""The record of a crash on the flash of a board: power cuts, and no room."""

from pathlib import Path

from conftest import library, seen

HERE = Path(__file__).parent
HEAP = "2m"  # the flash is in it


def _seen(script: str, *arguments: str) -> list[str]:
    folders = [library("micropython"), HERE.parent / "spool"]
    return seen(HEAP, HERE / script, *arguments, folders=folders, timeout=300)


def test_a_power_cut_at_any_write_loses_nothing_and_repeats_at_most_once() -> None:
    writes, cuts, *broken = map(int, _seen("powercut.py"))
    assert writes > 5
    assert cuts == 2 * writes, "not every cut came"
    assert broken == [0, 0, 0, 0]


def test_a_full_flash_keeps_the_earlier_record_and_a_full_heap_is_kept(tmp_path: Path) -> None:
    words = _seen("full.py", str(tmp_path / "crash.json"))
    assert words == ["False", "True", "False", "MemoryError"]
