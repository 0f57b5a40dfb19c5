"""The progress of batches is kept in two files of a bounded size, and read as one."""

from __future__ import annotations

from pathlib import Path

from flatmq_tools.pipeline.progress import lines, write


def test_only_so_much_is_kept_and_the_newest_of_it(tmp_path: Path) -> None:
    assert list(lines(tmp_path)) == []
    written = [f"batch {n}" for n in range(1000)]
    for line in written:
        write(tmp_path, line, limit=500)
        assert list(lines(tmp_path))[-1] == line
    kept = list(lines(tmp_path))
    assert kept == written[-len(kept) :] and len(kept) >= 500 // len("batch 999\n")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2 * (
        500 + len("batch 999\n")
    )
