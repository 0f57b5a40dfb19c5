"""The places for figures in a document."""

import pytest

from flatmq_rigs.results import insert, markers, rows, table, tables, write

BEGIN, END = markers("bench")


def test_a_section_replaces_what_is_between_its_markers_or_is_appended():
    other = "<!-- other:begin -->\nother\n<!-- other:end -->"
    document = f"# Results\n\nkept before\n\n{BEGIN}\nold\n{END}\n\nkept after\n{other}\n"
    assert insert(document, "bench", "new") == document.replace("old", "new")
    assert insert("# Results\n", "bench", "new") == f"# Results\n\n{BEGIN}\nnew\n{END}\n"
    for half in (BEGIN, END, f"{END}\n{BEGIN}"):
        with pytest.raises(ValueError, match="bench:begin"):
            insert(half, "bench", "new")


def test_tables_are_files_beside_the_document(tmp_path):
    path = tmp_path / "results.md"
    first = table(["state", "bytes"], [["`aio`, online", "1,024"]])
    second = table(["state", "ms"], [["online", "2"]])
    write(path, "size-tls", f"## Memory\n\n{second}")
    write(path, "size", f"## Memory\n\n`make size`:\n\n{first}\n\n### A start, in ms\n\n{second}")
    text = path.read_text(encoding="utf-8")
    assert "|" not in text
    for name in ("size.csv", "size.a-start-in-ms.csv"):
        assert f"[{name}](results/{name})" in text
    held, start = map(rows, tables(path, "size"))
    assert held == [["state", "bytes"], ["`aio`, online", "1,024"]]
    assert start == [["state", "ms"], ["online", "2"]]
    write(path, "size", "## Memory\n\nnot measured")
    assert not tables(path, "size")
    assert len(tables(path, "size-tls")) == 1
    with pytest.raises(ValueError, match=r"two tables under one heading, size\.csv"):
        write(path, "size", f"{first}\n\n{second}")
