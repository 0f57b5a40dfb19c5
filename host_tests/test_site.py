"""Check the site: contents, the blocks of every page, links, and the figures of the headlines."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from conftest import ROOT
from flatmq import Client
from flatmq_rigs import docstring_columns, headlines
from flatmq_rigs.results import markers
from flatmq_tools import cli
from pages.commands import commands

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
MADE = sorted(DOCS.rglob("*.md"))
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
RESULTS = (DOCS / "results.md").read_text("utf-8")
CONTENTS = (ROOT / "mkdocs.yml").read_text("utf-8")


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.M)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_page_is_in_the_contents_once() -> None:
    listed = re.findall(r": ([\w/]+\.md)$", CONTENTS, re.M)
    assert sorted(listed) == sorted(str(path.relative_to(DOCS)) for path in MADE)


def test_every_module_that_sketches_share_is_in_the_reference() -> None:
    page = (DOCS / "reference" / "boards.md").read_text("utf-8")
    modules = {path.stem for path in (ROOT / "boards" / "shared").glob("*.py")}
    assert set(re.findall(r"^::: (\w+)$", page, re.M)) == modules


def test_every_module_of_the_reference_exists() -> None:
    for page in sorted((DOCS / "reference").glob("*.md")):
        for module in re.findall(r"^::: flatmq\.(\w+)$", page.read_text("utf-8"), re.M):
            assert (ROOT / "lib" / "flatmq" / f"{module}.py").is_file(), module


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert "font: false" in CONTENTS
    assert not re.search(r"https?:", CONTENTS)


@pytest.mark.parametrize("path", [*(ROOT / name for name in FRONT), *MADE], ids=_name)
def test_the_blocks_of_a_page_can_be_read(path: Path) -> None:
    for code in _blocks(path, "python"):
        compile(code, path.name, "exec")
    for text in _blocks(path, "json"):
        json.loads(text)
    for text in _blocks(path, "toml"):
        tomllib.loads(text)
    for text in _blocks(path, "sh"):
        shlex.split(text, comments=True)


@pytest.mark.parametrize("name", FRONT)
def test_the_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text("utf-8"))
    assert links
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_the_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`?\b((?:host_tests|boards|firmware|lib|tools)/[\w/.]*\w)", text)
    assert named
    for file in named:
        assert (ROOT / file).exists(), file


def test_the_targets_that_the_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for name in (*FRONT, "docs/index.md", "docs/tutorial.md"):
        named = re.findall(r"(?:`|^)make\s+([a-z-]+)", (ROOT / name).read_text("utf-8"), re.M)
        assert set(named) <= targets, name
        assert named or name not in ("README.md", "CONTRIBUTING.md"), name


def test_the_headlines_are_those_of_the_results() -> None:
    begin, end = markers(headlines.SECTION)
    text = (DOCS / "headlines.md").read_text("utf-8")
    assert text.partition(begin)[2].partition(end)[0].strip() == headlines.page(RESULTS).strip()
    for name, (_, bars, unit) in headlines.charts(RESULTS).items():
        assert (DOCS / headlines.CHARTS / f"{name}.svg").is_file()
        assert bars and unit


def test_a_table_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table has the column 'colour'"):
        headlines.rows(RESULTS, "bench", "colour")
    with pytest.raises(ValueError, match="has no number"):
        headlines.figure("-")


def test_the_headline_of_crashes_sums_all_readers() -> None:
    begin, end = markers("crash")
    table = (
        f"{begin}\n| killed | kills | Parquet | Delta |\n| --- | ---: | ---: | ---: |\n"
        f"| driver | 8 | 0 · 1 | 1,002 · 0 |\n| broker | 9 | 3 · 0 | 0 · 20 |\n{end}\n"
    )
    assert headlines.crashes(table) == (17, 1005, 21)
    with pytest.raises(ValueError, match="no column has missing · twice"):
        headlines.crashes(table.replace(" · ", " and "))


def test_the_headlines_name_the_cores_of_the_measurement() -> None:
    begin, end = markers("pipeline")
    assert headlines.cores(f"{begin}\nmeasured on 16 cores\n{end}") == 16
    with pytest.raises(ValueError, match="number of cores is missing"):
        headlines.cores("on 16 cores")


def test_columns_of_a_docstring_become_a_list() -> None:
    docstring = (
        "A client. It has one line.\n\n"
        "host, port     the address. A `link`\n"
        "               replaces both\n"
        "user, password up to 65,535 bytes\n"
        "retry_ms, retry_max_ms   the wait\n\n"
        "    client.poll(20)  # code stays\n\n"
        "Prose stays,\nline by line."
    )
    assert docstring_columns.as_markdown(docstring) == (
        "A client. It has one line.\n\n"
        "- `host, port`: the address. A `link` replaces both\n"
        "- `user, password`: up to 65,535 bytes\n"
        "- `retry_ms, retry_max_ms`: the wait\n\n"
        "    client.poll(20)  # code stays\n\n"
        "Prose stays,\nline by line."
    )


def test_the_arguments_of_the_client_are_a_list_in_the_reference() -> None:
    text = as_markdown_of(Client)
    for name in ("tx_size", "retry_ms, retry_max_ms", "on_dropped"):
        assert f"\n- `{name}`: " in text


def as_markdown_of(documented: type) -> str:
    """Return the docstring of a class as the reference has it."""
    return docstring_columns.as_markdown(inspect.getdoc(documented) or "")


def _flatmq_commands(path: Path) -> list[list[str]]:
    """Return the words of each command `flatmq` in the blocks of a page."""
    return [list(words[1:]) for words in commands(path) if words[0] == "flatmq"]


def _unknown(words: list[str]) -> str:
    """Return the first word that is neither a command nor an option of one; "" if all are."""
    command: click.Command = cli.main
    left = list(words)
    while isinstance(command, click.Group) and left:
        name = left.pop(0)
        if name not in command.commands:
            return name
        command = command.commands[name]
    known = {"--help", "-h"}.union(*(each.opts + each.secondary_opts for each in command.params))
    options = (word.partition("=")[0] for word in left if re.match(r"--?[a-z]", word))
    return next((option for option in options if option not in known), "")


def test_the_pages_have_commands_to_check() -> None:
    assert sum(len(_flatmq_commands(path)) for path in MADE) > 20
    assert _unknown(["pipeline", "run", "out", "--colour=red"]) == "--colour"
    assert _unknown(["pipeline", "paint"]) == "paint"


@pytest.mark.parametrize("path", MADE, ids=_name)
def test_the_commands_of_a_page_exist_with_their_options(path: Path) -> None:
    for words in _flatmq_commands(path):
        assert not _unknown(words), words


def _build(checkout: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout with the options of `make docs`."""
    for module in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        if not _is_installed(module):
            pytest.skip("needs the extra docs")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (options,) = re.findall(r"-m mkdocs build (.*)$", makefile, re.M)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *shlex.split(options), "--site-dir", folder],
        cwd=checkout,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, with warnings as errors, and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    built = _build(ROOT, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for name in ("boards", "lib", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    with (tmp_path / "docs" / "tutorial.md").open("a", encoding="utf-8") as page:
        page.write("\n[Missing](missing.md)\n")
    built = _build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert "contains a link 'missing.md'" in built.stdout + built.stderr


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that the module is in
        return False


def test_the_site_has_every_page_and_an_index(site: Path) -> None:
    for page in MADE:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    assert {entry["location"].partition("#")[0] for entry in index["docs"]} >= {
        str(page.relative_to(DOCS).with_suffix(".html")) for page in MADE
    }


def test_the_built_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//"
    for page in site.rglob("*.html"):
        assert not re.search(loads, page.read_text("utf-8")), page


def _public_methods(path: Path, name: str) -> set[str]:
    """Return the methods of a class, with those that it takes from other modules."""
    (found,) = (
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    methods: set[str] = set()
    checked = [each for it in found.body if isinstance(it, ast.If) for each in it.body]
    for node in [*found.body, *checked]:
        if isinstance(node, ast.FunctionDef):
            methods.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            methods.update(each.id for each in node.targets if isinstance(each, ast.Name))
    return {method for method in methods if not method.startswith("_")}


@pytest.mark.parametrize(
    ("module", "name", "page"),
    [("client", "Client", "client"), ("v5", "Client5", "mqtt5")],
)
def test_the_reference_has_each_method_of_a_client(
    site: Path, module: str, name: str, page: str
) -> None:
    text = (site / "reference" / f"{page}.html").read_text("utf-8")
    methods = _public_methods(ROOT / "lib" / "flatmq" / f"{module}.py", name)
    assert {"subscribe", "set_will", "disconnect"} <= methods
    missing = {each for each in methods if f'id="flatmq.{module}.{name}.{each}"' not in text}
    assert not missing


def test_the_reference_has_the_arguments_of_the_client(site: Path) -> None:
    text = (site / "reference" / "client.html").read_text("utf-8")
    after = text.partition('id="flatmq.client.Client"')[2]
    own = after.partition('id="flatmq.client.Client.')[0]  # without the methods
    signature = re.sub(r"<[^>]+>", "", own)
    assert "keepalive" in signature
    assert re.search(r"tx_size(?:: int)? ?= ?1024", signature)
