"""The uses of private names across modules that the lint refuses."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from conftest import ROOT
from flatmq_rigs import private_access

OWNER = """
_LIMIT = 4

def _helper(): ...

class Session:
    _kind = "session"
    def __init__(self):
        self._size = self.room = 1
    def _write(self): ...

class Child(Session):
    def write(self):
        return self._size + self._write() + _LIMIT

def make() -> Session: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from .owner import Session as Exported\n")
    (package / "owner.py").write_text(OWNER)
    return package


def _found(folder: Path, source: str) -> list[str]:
    """Return what is printed for a module that is beside `owner`, without the folder."""
    (folder / "user.py").write_text(textwrap.dedent(source))
    found = private_access.findings([folder])
    return [str(each).replace(f"{folder}/", "") for each in found]


@pytest.mark.parametrize(
    ("source", "line", "name", "owner"),
    [
        ("from .owner import _LIMIT", 1, "_LIMIT", "owner.py:2"),
        ("def later():\n from package.owner import _helper", 2, "_helper", "owner.py:4"),
        ("from package import owner\nowner._LIMIT", 2, "_LIMIT", "owner.py:2"),
        ("import package.owner as o\no._helper()", 2, "_helper", "owner.py:4"),
        ("from .owner import Session\nSession._kind", 2, "_kind", "owner.py:7"),
        ("from .owner import Session\nprint(Session()._size)", 2, "_size", "owner.py:9"),
        ("def f(any): return any._size", 1, "_size", "owner.py:9"),
        ("def f(any): any._size = 1", 1, "_size", "owner.py:9"),
        ("def f(any): getattr(any, '_size', 0)", 1, "_size", "owner.py:9"),
        ("def f(any): setattr(any, '_size', 0)", 1, "_size", "owner.py:9"),
        ("from re import _parser", 1, "_parser", "re"),
    ],
)
def test_uses_of_what_another_module_defines(
    source: str, line: int, name: str, owner: str, folder: Path
) -> None:
    assert _found(folder, source) == [f"user.py:{line}: {name} is private to {owner}"]


@pytest.mark.parametrize(
    ("base", "body", "name", "owner"),
    [
        ("Session", "def f(self): return self._size", "_size", "owner.py:9"),
        ("Session", "def f(self): self._size = 2", "_size", "owner.py:9"),
        ("Session", "def f(self): self._size += 2", "_size", "owner.py:9"),
        ("Session", "def f(self): self._a, (self._size, *b) = 2, x", "_size", "owner.py:9"),
        ("Session", "def _write(self): ...", "_write", "owner.py:10"),
        ("Session", "_kind = 'mine'", "_kind", "owner.py:7"),
        ("Session", "def f(self): super()._write()", "_write", "owner.py:10"),
        ("Child", "def f(self): return self._size", "_size", "owner.py:9"),
        ("Middle", "def f(self): return self._size", "_size", "owner.py:9"),
        ("Exported", "def f(self): return self._size", "_size", "owner.py:9"),
        ("owner.Session", "def f(self): return self._size", "_size", "owner.py:9"),
    ],
)
def test_a_subclass_uses_or_overrides_what_its_base_defines(
    base: str, body: str, name: str, owner: str, folder: Path
) -> None:
    source = (
        "from . import Exported, owner\nfrom .owner import Child, Session\n"
        f"class Middle(Child): ...\nclass User({base}):\n  {body}\n"
    )
    found = _found(folder, source)
    assert found == [f"user.py:5: {name} is private to {owner}"]


@pytest.mark.parametrize(
    "use",
    [
        "def f(self, s: Session): s._size",
        "def f(self, s: 'Session | None'): s._size",
        "def f(self):\n  s = Session()\n  s._size",
        "def f(self):\n  with Session() as s:\n   s._size",
        "def f(self):\n  s = make()\n  s._size",
        "def f(self):\n  s = self.give()\n  s._size",
        "def f(self): self.session._size",
        "def f(self): self.given._size",
        "def f(self): self.declared._size",
        "def f(self): self.next.next.session._size",
    ],
)
def test_a_class_is_known_though_this_module_has_the_same_name(use: str, folder: Path) -> None:
    source = f"""\
from .owner import Session, make
class User:
 declared: Session
 next: "User"
 def __init__(self, given: Session):
  self._size = 0
  self.session = Session()
  self.given = given
 def give(self) -> Session: ...
 {use}
"""
    (found,) = _found(folder, source)
    assert found.endswith(": _size is private to owner.py:9")


@pytest.mark.parametrize(
    "source",
    [
        "from .owner import Session\nclass User(Session):\n def f(self): self._mine = self.room",
        "class User:\n def __init__(self): self._size = 1\n def same(self, o): return o._size",
        "class User:\n __slots__ = ('_size', 'b')\ndef f(user): user._size",
        "class User:\n def f(self):\n  with x as self._size: ...\n  self._size",
        "from . import owner\nowner.__doc__, owner.make().__class__, [_ for _ in ()]",
        "import os\nos._exit(0)",
        "from collections import namedtuple\nP = namedtuple('P', 'x')\nP(1)._replace(x=2)",
        "import _thread\n_thread.get_ident()",
        "class A:\n def f(self): return self._b\nclass B(A):\n _b = 1",
        "def f(any): any._size  # private access: there is no other way",
        "# private access: of a library\ndef f(any):\n any._size\n any._other",
    ],
)
def test_what_is_permitted(source: str, folder: Path) -> None:
    assert _found(folder, source) == []


def test_two_classes_of_one_name_are_two(folder: Path) -> None:
    source = """\
        def one():
            class User:
                _one = 1
                def f(self): return self._one
        def two():
            class User:
                _two = 1
                def f(self): return self._two
        """
    assert _found(folder, source) == []


def test_a_submodule_may_have_a_private_name(folder: Path) -> None:
    (folder / "_part.py").write_text("value = 1\n")
    assert _found(folder, "from . import _part\nfrom ._part import value") == []


@pytest.mark.parametrize(
    "comment", ["value = 1  # private access: once", "# private access: once"]
)
def test_a_comment_that_permits_nothing_is_reported(comment: str, folder: Path) -> None:
    assert _found(folder, comment) == [
        "user.py:1: no private access in this line, remove the comment"
    ]


def test_a_reason_is_needed(folder: Path) -> None:
    assert _found(folder, "def f(any): any._size  # private access:")


def test_a_name_that_no_module_defines(folder: Path) -> None:
    (found,) = _found(folder, "def f(any): any._nowhere()")
    assert found == "user.py:1: _nowhere is private, and no module in these folders defines it"


def test_many_owners_are_counted(folder: Path) -> None:
    for n in range(5):
        (folder / f"more{n}.py").write_text("class A:\n _size = 1\n")
    (found,) = _found(folder, "def f(any): any._size")
    assert found.count(".py:") == 4
    assert found.endswith(" and 3 more")


@pytest.mark.parametrize(("name", "status"), [("package", 0), ("nowhere", 2)])
def test_the_status_is_that_of_a_lint(name: str, status: int, folder: Path) -> None:
    command = [sys.executable, "-m", "flatmq_rigs.private_access", str(folder.parent / name)]
    done = subprocess.run(command, cwd=ROOT / "tools", capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    (folder / "user.py").write_text("from .owner import _LIMIT\n")
    if not status:
        done = subprocess.run(
            command, cwd=ROOT / "tools", capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stdout == (f"{folder}/user.py:1: _LIMIT is private to {folder}/owner.py:2\n")
