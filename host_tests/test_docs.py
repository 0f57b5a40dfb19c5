"""The pages keep their word: code, commands, links, tables and pictures, and the site of them.

A link that leads nowhere, from one page of docs to another, fails the build of the site.
"""

import ast
import json
import os
import random
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import flatmq
from conftest import LIB, ROOT, ran
from flatmq_rigs import headlines
from flatmq_rigs.__main__ import main as rigs
from flatmq_rigs.results import markers
from flatmq_tools import cli, remote
from flatmq_tools.image import firmware
from pages.commands import commands

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCS = ROOT / "docs"
MADE = sorted(DOCS.rglob("*.md"))
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
ON_THE_CLIENT = (
    "asyncio", "clouds", "design", "guide", "home-assistant", "mqtt5", "protocol", "tls", "umqtt",
    "websocket",
)  # fmt: skip
DESIGN = (DOCS / "design.md").read_text("utf-8")
RESULTS = DOCS / "results.md"
CONTENTS = (ROOT / "mkdocs.yml").read_text("utf-8")


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.M)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


# The code and the commands of the pages.


@pytest.mark.parametrize("path", [*FRONT, *MADE], ids=_name)
def test_the_blocks_of_a_page_can_be_read(path: Path) -> None:
    for code in _blocks(path, "python"):
        compile(code, path.name, "exec")
    for text in _blocks(path, "json"):
        json.loads(text)
    for text in _blocks(path, "toml"):
        tomllib.loads(text)
    for text in _blocks(path, "sh"):
        shlex.split(text, comments=True)


@pytest.mark.parametrize("page", ON_THE_CLIENT)
def test_the_code_that_needs_no_broker_runs(page: str) -> None:
    blocks = _blocks(DOCS / f"{page}.md", "python")
    assert blocks
    for code in blocks:
        if not any(words in code for words in ("while True", ".connect(", "asyncio.run(")):
            exec(compile(code.replace("192.168.1.10", "127.0.0.1"), page, "exec"), {})


ANSWERING = [("docs/guide.md", "on_command"), ("docs/mqtt5.md", "on_request")]


@pytest.mark.parametrize(("page", "handler"), ANSWERING)
def test_the_code_that_answers_loses_no_answer_without_room(
    page: str, handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room again in the fourth turn of its loop."""
    asks = SimpleNamespace(
        is_payload=lambda payload: True, properties=SimpleNamespace(get={8: b"to", 9: b"x"}.get)
    )
    sent = []

    class Full(SimpleNamespace):
        turns = 0

        def subscribe(self, _filter: bytes, handler: Any, qos: int) -> None:
            self.handler = handler

        def poll(self, _ms: int) -> None:
            self.turns += 1
            if self.turns < 3:
                self.handler(asks)
            if self.turns == 9:
                raise SystemExit

        def publish(self, topic: bytes, *_more: Any, **_named: Any) -> int | None:
            if self.turns < 4:
                return None
            sent.append(topic)
            return 1

    made = Full(set_will=lambda *_more, **_named: None, start=bool)
    monkeypatch.setattr(flatmq, "Client", lambda *_more, **_named: made)
    (code,) = (code for code in _blocks(ROOT / page, "python") if f"def {handler}(" in code)
    with pytest.raises(SystemExit):
        exec(compile(code, page, "exec"), {})
    assert [topic in (b"to", b"dev/pico-1/answer") for topic in sent].count(True) == 2


def test_troubleshooting_names_errors_of_the_client() -> None:
    """Those of its table, but for numbers of MQTT 5 and of the operating system."""
    rows = re.findall(r"^\| (`[^|]+)\|", (DOCS / "troubleshooting.md").read_text("utf-8"), re.M)
    named = {part.strip() for row in rows[1:] for text in re.findall("`(.*?)`", row)
             for part in text.split("…")} - {""}  # fmt: skip
    assert len(named) > 8
    known = (LIB / "flatmq" / "reasons.py").read_text("utf-8")
    assert {text for text in named if text not in known} <= {
        "0x86", "0x87", "ECONNREFUSED", "Errno 111",
    }  # fmt: skip


def test_the_session_prints_what_the_design_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = _blocks(DOCS / "design.md", "python")[0]
    said = re.findall(r"print\(.*\)  # (.*)", code)
    random.seed(1)  # the packet identifier: one with a quote in it is printed in other quotes
    exec(code, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(said)
    for line, beginning in zip(printed, said, strict=True):
        assert line.startswith(beginning.split("...")[0])


def test_the_oldest_micropython_is_the_same_everywhere() -> None:
    """In the pages, the tools' texts and the boards' files."""
    assert firmware.OLDEST == remote.OLDEST
    oldest = ".".join(map(str, firmware.OLDEST))
    tools = [*Path(cli.__file__).parent.rglob("*.py"), *(ROOT / "firmware").glob("*.toml")]
    named = re.compile(r"\b(1\.\d\d)(?:\s+(?:or|and)\s+later|\s+on\b)")
    found: dict[str, set[str]] = {}
    for path in [*FRONT, *MADE, *tools]:
        for version in named.findall(path.read_text("utf-8")):
            found.setdefault(version, set()).add(_name(path))
    assert "README.md" in found[oldest]
    assert set(found) == {oldest}, found


def _unknown(words: tuple[str, ...]) -> str:
    """Return the first word of ours that is neither a command nor an option; "" if all are."""
    command: click.Command
    if words[0] == "flatmq":
        command, left = cli.main, list(words[1:])
    elif words[:3] == ("python", "-m", "flatmq_rigs"):
        command, left = rigs, list(words[3:])
    else:
        return ""
    while isinstance(command, click.Group) and left:
        name = left.pop(0)
        if name not in command.commands:
            return name
        command = command.commands[name]
    if command.ignore_unknown_options:
        return ""
    known = {"--help", "-h"}.union(*(each.opts + each.secondary_opts for each in command.params))
    options = (word.partition("=")[0] for word in left if re.match(r"--?[a-z]", word))
    return next((option for option in options if option not in known), "")


def test_the_commands_of_the_pages_exist_with_their_options() -> None:
    pages = {path: list(commands(path)) for path in [*FRONT, *MADE]}
    assert sum(words[0] == "flatmq" for found in pages.values() for words in found) > 20
    unknown = {
        word: words for found in pages.values() for words in found if (word := _unknown(words))
    }
    assert unknown == {}
    assert _unknown(("flatmq", "pipeline", "run", "out", "--colour=red")) == "--colour"
    assert _unknown(("flatmq", "pipeline", "paint")) == "paint"
    assert _unknown(("python", "-m", "flatmq_rigs", "paint")) == "paint"


def test_the_front_pages_name_files_and_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for path in [*FRONT, DOCS / "index.md", DOCS / "tutorial.md"]:
        named = re.findall(r"(?:`|^)make\s+([a-z-]+)", path.read_text("utf-8"), re.M)
        assert set(named) <= targets, path
        assert named or path.name not in ("README.md", "CONTRIBUTING.md"), path
    for path in FRONT:
        links = re.findall(r"\]\(([^)#]+)", path.read_text("utf-8"))
        assert links
        for link in links:
            assert link.startswith("https://") or (ROOT / link).exists(), link
    named = re.findall(
        r"`?\b((?:host_tests|boards|firmware|lib|tools)/[\w/.]*\w)", FRONT[1].read_text("utf-8")
    )
    assert named
    assert [file for file in named if not (ROOT / file).exists()] == []


# The modules, as the design describes them.


def _modules() -> set[str]:
    """The modules of the client, such as "engine"."""
    files = (file.relative_to(LIB / "flatmq") for file in (LIB / "flatmq").rglob("*.py"))
    return {".".join(file.with_suffix("").parts) for file in files}


def _imports(module: str) -> Iterator[str]:
    """Yield what a module of the client imports at its top, on a board."""
    file = LIB / "flatmq" / f"{module.replace('.', '/')}.py"
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = module.split(".")[: -node.level]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                found = ".".join([*folder, name])
                there = found in _modules()  # else it is something in a package
                yield found if there else ".".join([*folder, "__init__"])


def test_no_module_imports_in_a_circle_nor_what_is_rare_early() -> None:
    modules = _modules()
    imports = {module: set(_imports(module)) for module in modules}
    assert set().union(*imports.values()) <= modules
    for module in ("__init__", "engine"):
        assert not [name for name in imports[module] if "." in name], module
    while imports:
        leaves = {module for module, names in imports.items() if not names & set(imports)}
        assert leaves, f"a circle: {sorted(imports)}"
        imports = {module: names for module, names in imports.items() if module not in leaves}


def test_the_design_says_when_each_module_is_loaded() -> None:
    table = DESIGN.split("## When memory is claimed")[1].partition("\n\n[The results]")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert 1 < len(rows) <= 10
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[2] for row in rows))
    modules = {module for module in _modules() if not module.endswith("__init__")}
    below = {module.partition(".")[2] for module in modules if "." in module}
    top = {module for module in modules if "." not in module}
    assert below <= set(named) <= below | top | {"flatmq", "Client"}
    assert top <= set(named) | set(re.findall(r"`(\w+)`", DESIGN.split("## The modules")[1]))


# The pictures and the headlines.


@pytest.mark.parametrize("picture", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_the_pictures_need_nothing_else(picture: Path) -> None:
    """They are dark on a dark page."""
    text = picture.read_text()
    dark = '<rect fill="#292929"' if "rich-terminal" in text else "(prefers-color-scheme: dark)"
    assert dark in text
    assert not re.search(r"href=|url\((?!#)|<script|<image", text)


def test_the_headlines_are_those_of_the_results() -> None:
    begin, end = markers(headlines.SECTION)
    text = RESULTS.read_text("utf-8")
    assert text.partition(begin)[2].partition(end)[0].strip() == headlines.page(RESULTS).strip()
    for name, (_, bars, unit) in headlines.charts(RESULTS).items():
        drawn = (DOCS / headlines.CHARTS / f"{name}.svg").read_text("utf-8")
        assert "#ffffff" not in drawn  # a white slab on a dark page
        assert bars and unit


# The site.


def test_the_reference_has_the_modules_that_sketches_import() -> None:
    page = (DOCS / "reference" / "boards.md").read_text("utf-8")
    modules = {path.stem for path in (ROOT / "boards" / "shared").glob("*.py")}
    sketches = "".join(path.read_text("utf-8") for path in ROOT.glob("boards/*/main.py"))
    imported = set(re.findall(r"^from (\w+) import", sketches, re.M)) & modules
    assert len(imported) > 5
    assert imported <= set(re.findall(r"^::: (\w+)$", page, re.M)) <= modules


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with the options of `make docs`, and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    (options,) = re.findall(r"-m mkdocs build (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    built = ran(
        [sys.executable, "-m", "mkdocs", "build", *shlex.split(options), "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_has_every_page_and_an_index_and_loads_nothing_else(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    indexed = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert indexed >= {str(page.relative_to(DOCS).with_suffix(".html")) for page in MADE}
    words = " ".join(f"{entry['title']} {entry['text']}" for entry in index["docs"])
    for word in ("Troubleshooting", "Examples", "Thonny", "MicroPico", "ESP8266", "MemoryError"):
        assert word in words
    assert "--strict" in (ROOT / "Makefile").read_text("utf-8")
    assert len(re.findall(r": warn\b", CONTENTS)) == 7  # of links and the contents
    loads = r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(?:https?:)?//|<link\b[^>]*stylesheet[^>]*//"
    for built in site.rglob("*.html"):
        assert not re.search(loads, built.read_text("utf-8")), built


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


# Methods that other modules call, and programs do not.
INTERNAL = {
    "Client": {
        "abandon", "address", "awaits", "handover", "no_room", "queue", "widen", "withdraw",
    },
    "Client5": {"address", "alias", "allow", "carry", "flush", "poll"},
}  # fmt: skip
ATTRIBUTES = {
    "Client": {"state", "connected", "session_present", "error", "pending", "stats"},
    "Client5": {"level", "server"},
}


@pytest.mark.parametrize(
    ("module", "name", "page"),
    [("__init__", "Client", "client"), ("v5.__init__", "Client5", "mqtt5")],
)
def test_the_reference_has_what_a_program_calls_and_nothing_else(
    site: Path, module: str, name: str, page: str
) -> None:
    text = (site / "reference" / f"{page}.html").read_text("utf-8")
    methods = _public_methods(LIB / "flatmq" / f"{module.replace('.', '/')}.py", name)
    module = f"flatmq.{module}".removesuffix(".__init__")
    assert {"subscribe", "set_will", "disconnect"} <= methods
    shown = set(re.findall(rf'<h\d id="{re.escape(module)}\.{name}\.(\w+)"', text))
    assert shown == methods - INTERNAL[name] | ATTRIBUTES[name]
    if name == "Client":
        after = text.partition('id="flatmq.Client"')[2]
        own = after.partition('id="flatmq.Client.')[0]  # without the methods
        signature = re.sub(r"<[^>]+>", "", own)
        assert "keepalive" in signature
        assert re.search(r"tx_size(?:: int)? ?= ?1024", signature)
