"""Hold every docstring, comment, message, help text and page to the project's rules of English."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import style_words
from conftest import ROOT
from flatmq_rigs.__main__ import main as rigs
from flatmq_tools import cli
from style_texts import Text, docstrings, of_markdown, of_python, prose

FOLDERS = ("lib", "tools", "boards", "firmware", "host_tests")
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = (*FRONT, *(str(each.relative_to(ROOT)) for each in sorted(ROOT.glob("docs/*.md"))))

_ASKS = re.compile(r"(?:what|which|how|whether|why|when|who|whose|where)\b", re.IGNORECASE)


def _modules() -> list[Path]:
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "node_modules" not in path.parts
    )


def _texts(path: Path) -> Iterator[Text]:
    source = path.read_text("utf-8")
    if path.suffix == ".md":
        return of_markdown(path, source)
    return of_python(path, source, is_test="host_tests" in path.relative_to(ROOT).parts)


def _words(text: Text) -> list[str]:
    """Describe each avoided word in a text, with the usual one."""
    english = prose(text.text)
    return [
        f"{text.path}:{text.line_of(offset)}: {text.kind}: {word!r}; write: {better}"
        for offset, word, better in style_words.found(english)
    ]


def _docstring_faults(text: Text) -> list[str]:
    """Describe how a docstring breaks the rules for its first line and sentence."""
    english = text.text.strip()
    first = english.split("\n", 1)[0].rstrip()
    sentence = re.split(r"(?<=[.?!])\s", english.split("\n\n", 1)[0], maxsplit=1)[0]
    where = f"{text.path}:{text.line}: docstring"
    faults = []
    if sentence.endswith("?"):
        faults.append(f"{where}: begins with a question: {first!r}; state what it is or does")
    elif _ASKS.match(english):
        faults.append(
            f"{where}: begins with {english.split()[0]!r}: {first!r}; use the imperative or a noun"
        )
    if not first.endswith((".", "?")):
        faults.append(f"{where}: the first line must end with a full stop: {first!r}")
    return faults


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command under a group, with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        for each, child in command.commands.items():
            yield from _commands(child, f"{name} {each}")


def _all_commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands for users, and those of the rigs."""
    yield from _commands(cli.main, "flatmq")
    yield from _commands(rigs, "flatmq_rigs")


def _options() -> Iterator[tuple[str, click.Option]]:
    """Yield each option of each command."""
    for name, command in _all_commands():
        for each in command.params:
            if isinstance(each, click.Option):
                yield name, each


def _help_faults(name: str, option: click.Option) -> list[str]:
    """Describe how a help text is not a complete phrase."""
    where = f"{name} {option.opts[-1]}"
    if not option.help:
        return [f"{where}: has no help"]
    phrase = re.sub(r"\s*\[default: .*\]$", "", option.help, flags=re.DOTALL)
    faults = []
    if not phrase[:1].isupper():
        faults.append(f"{where}: must begin with a capital letter: {option.help!r}")
    if not phrase.endswith("."):
        faults.append(f"{where}: must end with a full stop: {option.help!r}")
    return faults


def _show(faults: list[str]) -> str:
    return "\n".join([f"{len(faults)} faults", *(each.replace(f"{ROOT}/", "") for each in faults)])


def _faults(path: Path) -> list[str]:
    """Describe what breaks the rules in a file."""
    faults = []
    for text in _texts(path):
        faults += _words(text)
        if text.kind == "docstring":
            faults += _docstring_faults(text)
    return faults


@pytest.mark.parametrize("place", [*FOLDERS, "docs", *FRONT])
def test_the_english_keeps_the_rules(place: str) -> None:
    files = [*_modules(), *(ROOT / page for page in PAGES)]
    here = [path for path in files if path.is_relative_to(ROOT / place)]
    assert here
    faults = [fault for path in here for fault in _faults(path)]
    assert not faults, _show(faults)


def test_help_texts_are_complete_phrases() -> None:
    faults = [fault for name, option in _options() for fault in _help_faults(name, option)]
    assert not faults, _show(faults)


def test_commands_say_what_they_do() -> None:
    for name, command in _all_commands():
        first = (command.help or "").strip().split("\n")[0]
        assert first[:1].isupper() and first.endswith("."), f"{name}: {first!r}"


def test_the_list_of_commands_shows_whole_sentences() -> None:
    groups = [(name, each) for name, each in _all_commands() if isinstance(each, click.Group)]
    assert len(groups) > 1
    for name, group in groups:
        shown = CliRunner().invoke(group, ["--help"], terminal_width=80).output
        cut = [line for line in shown.splitlines() if line.endswith("...")]
        assert not cut[1:], f"{name}: {cut}"  # the first one is the usage: [ARGS]...


def test_the_same_option_has_the_same_help_in_every_command() -> None:
    helps: dict[tuple[str, str | None, str], dict[str, list[str]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for name, option in _options():
        same = (option.opts[-1], option.metavar, type(option.type).__name__)
        phrase = re.sub(r"\s*\[default: .*\]$", "", option.help or "", flags=re.DOTALL)
        helps[same][phrase].append(name)
    faults = [f"{key[0]}: {dict(texts)}" for key, texts in helps.items() if len(texts) > 1]
    assert not faults, _show(faults)


# The checks find what they are for, and only that.


@pytest.mark.parametrize(
    ("source", "line", "kind"),
    [
        ('"""Write anew."""', 1, "docstring"),
        ("def f():\n    '''Return.\n\n    The link is told.\n    '''", 4, "docstring"),
        ("x = 1\n# so it\n# wants more", 3, "comment"),
        ("x = 1  # at the\n# most", 1, "comment"),
        ("raise ValueError(f'{x}: a number is wanted')", 1, "string"),
        ("print('starts the broker anew')", 1, "string"),
        ("option(help='Files, at the most.')", 1, "string"),
    ],
)
def test_an_avoided_word_is_found(source: str, line: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    faults = [f for text in of_python(path, source, is_test=False) for f in _words(text)]
    assert len(faults) == 1
    assert faults[0].startswith(f"{path}:{line}: {kind}: ")


@pytest.mark.parametrize(
    "source",
    [
        "told = wants(anew)",
        "x = b'he told me twice'",
        "x = {'told': 1}",
        '"""Return what `told` and `in place of` hold."""',
        "# `anew` is a name here",
        "# tell the two apart, tell them apart",
        "# foretold, wantsome",
    ],
)
def test_names_and_payloads_are_not_text(source: str, tmp_path: Path) -> None:
    texts = of_python(tmp_path / "module.py", source, is_test=False)
    assert [fault for text in texts for fault in _words(text)] == []


def test_strings_of_a_test_are_payloads_unless_somebody_reads_them(tmp_path: Path) -> None:
    source = "send('he told me twice')\nassert x, 'he told me twice'\n"
    texts = of_python(tmp_path / "test_it.py", source, is_test=True)
    assert len([fault for text in texts for fault in _words(text)]) == 1


def test_code_in_a_page_is_not_prose(tmp_path: Path) -> None:
    page = (
        "A `told` page.\n\n```python\ntold = 1\n```\n[x](told.md) <!-- told -->\n\nIt is told.\n"
    )
    (text,) = of_markdown(tmp_path / "page.md", page)
    (fault,) = _words(text)
    assert fault.startswith(f"{tmp_path / 'page.md'}:8: prose: 'told'")


@pytest.mark.parametrize(
    ("docstring", "faults"),
    [
        ("Return the length.", 0),
        ("Return the length.\n\nIs it long?", 0),
        ("How long is it?", 1),
        ("What it holds.", 1),
        ("Whether it is open.", 1),
        ("Return the length", 1),
        ("Return the length of what\nis held.", 1),
        ("Which of them is\nlong?", 2),
    ],
)
def test_a_docstring_is_judged_by_its_beginning(docstring: str, faults: int) -> None:
    source = f'def f():\n    """{textwrap.indent(docstring, "    ").strip()}"""\n'
    (text,) = docstrings(Path("module.py"), ast.parse(source))
    assert len(_docstring_faults(text)) == faults


@pytest.mark.parametrize(
    ("help", "faults"),
    [
        ("Seconds to wait.", 0),
        ("Seconds to wait.  [default: until Ctrl-C]", 0),
        ("seconds to wait.", 1),
        ("Seconds [0.2]", 1),
        ("", 1),
        (None, 1),
    ],
)
def test_a_help_text_is_judged_by_its_phrase(help: str | None, faults: int) -> None:
    assert len(_help_faults("flatmq watch", click.Option(["--seconds"], help=help))) == faults
