"""The pages on the client keep their word: code, links, pictures, and the table of modules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from conftest import LIB, ROOT

DOCS = ROOT / "docs"
PAGES = (
    "asyncio.md",
    "clouds.md",
    "design.md",
    "guide.md",
    "mqtt5.md",
    "protocol.md",
    "tls.md",
    "umqtt.md",
    "websocket.md",
)
DESIGN = (DOCS / "design.md").read_text()
HERE = "192.168.1.10"  # the broker of the pages


def _blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def _rows() -> dict[str, tuple[str, ...]]:
    """The table of modules: what each imports at its top, in the order of the rows."""
    rows = {}
    for line in DESIGN.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 7 and re.fullmatch(r"`\w+`", cells[1]):
            rows[cells[1].strip("`")] = tuple(re.findall(r"`(\w+)`", cells[3]))
    return rows


def _imports(module: str) -> Iterator[str]:
    """Yield what a module of the client imports at its top, on a board."""
    for node in ast.parse((LIB / "flatmq" / f"{module}.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


def _anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_is_python(page: str) -> None:
    blocks = _blocks(page)
    assert blocks
    for code in blocks:
        compile(code, page, "exec")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_that_needs_no_broker_runs(page: str) -> None:
    for code in _blocks(page):
        if not any(words in code for words in ("while True", ".connect(", "asyncio.run(")):
            exec(compile(code.replace(HERE, "127.0.0.1"), page, "exec"), {})


def test_the_session_prints_what_the_design_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = _blocks("design.md")[0]
    said = re.findall(r"print\(.*\)  # (.*)", code)
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(said)
    for line, beginning in zip(printed, said, strict=True):
        assert line.startswith(beginning.split("...")[0])


@pytest.mark.parametrize("page", PAGES)
def test_the_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https://)([^)]+)\)", (DOCS / page).read_text())
    assert links
    for link in links:
        file, _, anchor = link.partition("#")
        target = DOCS / (file or page)
        assert target.is_file(), link
        assert not anchor or anchor in _anchors(target.read_text()), link


def test_the_modules_import_what_the_design_says() -> None:
    rows = _rows()
    assert {module: sorted(set(_imports(module))) for module in rows} == {
        module: sorted(names) for module, names in rows.items()
    }


def test_modules_import_only_from_the_rows_above() -> None:
    above: set[str] = set()
    for module, names in _rows().items():
        assert set(names) <= above, module
        above.add(module)


def test_no_module_of_the_client_is_missing() -> None:
    beside = DESIGN.split("Beside them stand")[1].partition("\n\n")[0]
    listed = set(_rows()) | set(re.findall(r"`(\w+)`", beside))
    there = {source.stem for source in (LIB / "flatmq").glob("*.py")} - {"__init__"}
    assert there <= listed
    assert set(_rows()) <= there


@pytest.mark.parametrize("picture", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_the_pictures_need_nothing_else(picture) -> None:
    """They have a background of their own, to be readable on a dark page."""
    text = picture.read_text()
    background = '<rect fill="#292929"' if "rich-terminal" in text else ".card { fill: #ffffff"
    assert background in text
    assert not re.search(r"href=|url\((?!#)|<script|<image", text)
