"""Hold English to the words that the project uses, and help texts to complete phrases."""

import ast
import inspect
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click

from conftest import ROOT
from flatmq_rigs.__main__ import main as rigs
from flatmq_tools import cli

# A pattern of whole words, and what to write instead. A space matches a line break too.
AVOIDED: dict[str, str] = {
    r"told|tell(?:s|ing)?(?! \w+ (?:\w+ )?apart)(?! apart)": "say, report, return, know",
    r"anew": "again, from scratch",
    r"wants|wanted": "needs, expects; in an error: must be",
    r"at the (?:most|least)": "at most, at least",
    r"in place of": "instead of",
    r"for good(?! (?:reasons?|measure))": "permanently, after a while",
    r"(?:if|where|when) not (?:told|given) (?:else|otherwise)": "unless given",
    r"hears? (?:of|about)": "learns of, receives",
    r"(?:takes?|knows?|sees?|needs?|wants?|gets?) (?:it|them|this) not": "does not ...",
    r"(?:knows?|takes?|gets?|needs) not": "does not ...",
    r"not anymore than": "no more than",
    r"(?:after|for) so long(?! as)": "for N seconds, after N seconds",
    r"(?:is|are) (?:not )?spoken": "is (not) supported",
    r"where(?:of|in|upon|by)|there(?:of|in|upon)|here(?:of|in|by)": "of which, in it, so",
    r"lest|ere|whilst|nought|naught|amongst|betwixt|oft": "so that ... not, before, while, among",
    r"till": "until",
}
PATTERN = re.compile(
    rf"\b(?:{'|'.join(f'({words})' for words in AVOIDED)})\b".replace(" ", r"[\s#]+"),
    re.IGNORECASE,
)
# What is not English: code and addresses; in Markdown fenced code and comments too.
CODE = re.compile(r"``.+?``|`[^`]+`|\]\([^)]*\)|https?://\S+", re.DOTALL)
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2 *$|<!--.*?-->", re.DOTALL | re.MULTILINE)
SENTENCE = re.compile(r"[A-Za-z]{2,} +[A-Za-z]+ +[A-Za-z]{2,}")
QUESTION = r"(?:what|which|how|whether|why|when|who|whose|where)\b"
ASKS = re.compile(QUESTION, re.IGNORECASE)
MAY_ASK = re.compile(rf"[\"']{{3}}\s*{QUESTION}", re.IGNORECASE)

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(tree: ast.Module) -> list[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, _Documented))
    return [text for node in nodes if (text := ast.get_docstring(node))]


def sentences(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module that read as English, and the parts of an f-string."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else ""
        if isinstance(text, str) and SENTENCE.search(text):
            yield inspect.cleandoc(text)


def comments(source: str) -> str:
    """Return the comments of a module, one line each: a phrase may go over two."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT)


def words(text: str) -> Iterator[str]:
    """Yield each avoided word of a text, with what to write instead."""
    for found in PATTERN.finditer(CODE.sub("_", text)):
        yield f"{found[0]!r}; write: {list(AVOIDED.values())[found.lastindex - 1]}"


def faults(name: str, source: str) -> set[str]:
    """Describe each avoided word of a file, and each docstring that asks.

    The strings of a test are payloads.
    """
    if name.endswith(".md"):
        return {f"{name}: {word}" for word in words(FENCED.sub("_", source))}
    if not (PATTERN.search(source) or MAY_ASK.search(source)):  # so it is not parsed for nothing
        return set()
    tree = ast.parse(source)
    documented = docstrings(tree)
    found = {f"{name}: {text[:60]!r} asks" for text in documented if ASKS.match(text)}
    spoken = [] if name.startswith("host_tests/") else sentences(tree)
    for text in {*documented, comments(source), *spoken}:
        found |= {f"{name}: {text.strip()[:60]!r}: {word}" for word in words(text)}
    return found


def test_the_files_avoid_unusual_words() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    files = [Path(name) for name in listed if name != "host_tests/test_style.py"]
    assert len(files) > 100
    found = [
        fault
        for path in files
        if (ROOT / path).is_file()
        for fault in faults(str(path), (ROOT / path).read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command under a group, with the words that call it."""
    yield name, command
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), each)
            assert child is not None
            yield from commands(child, f"{name} {each}")


COMMANDS = dict([*commands(cli.main, "flatmq"), *commands(rigs, "flatmq_rigs")])


def test_help_is_complete_phrases_and_the_same_for_the_same_option() -> None:
    phrases: dict[tuple[str, str | None, str], dict[str, str]] = defaultdict(dict)
    found = []
    for name, command in COMMANDS.items():
        first = (command.help or "").strip().split("\n")[0]
        if not (first[:1].isupper() and first.endswith(".")):
            found.append(f"{name}: {first!r}")
        for option in command.params:
            if isinstance(option, click.Option):
                phrase = re.sub(r"\s*\[default: [^\]]*\]$", "", option.help or "")
                if not (phrase[:1].isupper() and phrase.endswith(".")):
                    found.append(f"{name} {option.opts[-1]}: {phrase!r}")
                same = (option.opts[-1], option.metavar, type(option.type).__name__)
                phrases[same][phrase] = name
    found += [f"{key[0]}: {texts}" for key, texts in phrases.items() if len(texts) > 1]
    assert not found, "\n".join(found)
