"""The writers of each part of a client's state: the modules named here, and no others.

A part that is not named is written by one module besides those that set a client up.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import flatmq

SETUP = {"setup", "v5/setup"}
PUBLISH = {"__init__", "v5/__init__"}  # `publish` of each version
QUEUE = {"engine", "dial", "queue", "rare/handover", "rare/connecting"}
# Attributes, and their writers.
WRITERS: dict[str, set[str]] = {
    # The queue, and what waits in it
    "end": {*PUBLISH, *QUEUE, "v5/fallback"},
    "kept": {*PUBLISH, *QUEUE, "rare/strays"} - {"dial"},
    "pending": {*PUBLISH, *QUEUE, "rare/strays", "rare/parts"} - {"dial"},
    "sent": {"engine", "dial", "alone", "queue"},
    "gone": {"engine", "rare/strays", "rare/connecting"},
    "full": {"__init__", "engine", "rare/strays", "rare/handover", "rare/connecting"},
    "last_id": {*PUBLISH, "subs", "alone", "rare/parts"},
    "stop": {"engine", "queue", "rare/strays", "rare/handover"},
    "renamed": {"engine", "alone", "rare/qos2", "rare/strays", "rare/connecting"},
    "alone": {"dial", "alone", "rare/connecting", "v5/packets", "v5/flow"},
    "large": {"rare/parts"},
    # The message that is published
    "topic": {*PUBLISH, "v5/alias", "v5/connack"},
    "head qos": {"__init__", "v5/alias"},
    # The connection
    "state": {"__init__", "engine", "dial"},
    "connected began": {"engine", "dial"},
    "trusted": {"dial", "v5/packets"},
    "since tries": {"engine", "dial", "alone"},
    "error": {"engine", "dial", "rare/connecting", "v5/fallback"},
    "due": {
        "__init__", "engine", "dial", "rare/connecting", "rare/strays", "waiting", "v5/connack",
        "v5/packets", "v5/replies",
    },
    "leaving": {"__init__", "dial", "rare/connecting"},
    "quiet": {"rare/connecting"},
    "asked": {"engine", "dial", "waiting"},
    "interval tick": {"rare/saying", "v5/connack"},
    "hello": {"wire", "v5/fallback"},
    "password": {"rare/saying", "v5/fallback", "v5/hello"},
    "link": {"rare/saying", "bulk_cpython", "umqtt_rare"},
    # What comes in
    "done limit": {"dial", "rare/several", "rare/strays", "subscribing"},
    "apart": {"rare/strays", "subs"},
    "received": {"rare/qos2", "rare/handover", "bulk_cpython"},
    "unsure": {"dial", "engine", "rare/qos2"},
    "index": {"message", "subscribing"},
    "two": {"engine", "rare/pieces", "rare/handover", "v5/acks"},
    "subs": {"engine", "dial", "subscribing", "v5/subscribing"},
    # Hooks, each for one module that is built on the client
    "gate": {"spool", "umqtt_rare"},
    "on_dropped": {"spool", "aio"},
}  # fmt: skip
# What a client is called, and in its methods `self`.
_NAMES = {"c", "client", "core", "self.client", "self._client", "self.core"}


def state(source: str) -> set[str]:
    """Return the attributes that the class Client declares in the source of its module."""
    body = next(
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "Client"
    )
    return {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def written(source: str) -> Iterator[tuple[str, int]]:
    """Return the attributes of a client that a module writes, and the lines."""
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(source), True)]
    while waiting:
        node, ours = waiting.pop()
        if isinstance(node, ast.ClassDef):
            ours = node.name in ("Client", "Client5")
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = ast.unparse(node.value)
            if owner in _NAMES or (owner == "self" and ours):
                yield node.attr, node.lineno
        waiting += [(child, ours) for child in ast.iter_child_nodes(node)]


def wrong(folder: Path = Path(flatmq.__file__).parent) -> list[str]:
    """Return what is written by a module that must not, or named here and not written."""
    declared = state((folder / "__init__.py").read_text(encoding="utf-8"))
    lines: dict[str, dict[str, int]] = defaultdict(dict)
    for path in sorted(folder.rglob("*.py")):
        module = path.relative_to(folder).with_suffix("").as_posix()
        if module not in SETUP:
            for name, line in written(path.read_text(encoding="utf-8")):
                if name in declared:
                    lines[name].setdefault(module, line)
    found = []
    named = {name: modules for names, modules in WRITERS.items() for name in names.split()}
    for name, writers in sorted(lines.items()):
        allowed = named.pop(name, None)
        if allowed is None:
            if len(writers) > 1:
                found.append(f"{name}: several modules write it, {', '.join(sorted(writers))}")
            continue
        found += [
            f"flatmq/{module}.py:{line}: must not write {name} of a client"
            for module, line in sorted(writers.items())
            if module not in allowed
        ]
        found += [f"{name}: {module} does not write it" for module in sorted(allowed - {*writers})]
    return found + [f"{name}: nothing writes it" for name in sorted(named)]
