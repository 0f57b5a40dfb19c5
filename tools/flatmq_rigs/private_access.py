"""`python -m flatmq_rigs.private_access FOLDER...`: report private names used across modules.

A name with one leading underscore belongs to the module that defines it: as an attribute or a
method of a class, or at module level. These are refused, and printed with the module that defines
the name:

    from client import _limit       importing it
    client._limit                   the attribute of an imported module or class
    session._limit                  the attribute of an object whose class is elsewhere
    getattr(session, "_limit")      the same in words
    self._limit, def _limit         using or overriding what a base class elsewhere defines

The class of an object is known where an annotation or a call gives it. Otherwise the name decides:
an object's `_limit` may be used in every module that has a class with a `_limit`.

The comment `# private access: REASON` at the end of a line permits what that line does, and on a
line of its own what the whole file does. Use it where a library offers no other way. A comment
that permits nothing is reported.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Documented, in spite of their names.
PUBLIC = frozenset(
    ("_asdict", "_exit", "_field_defaults", "_fields", "_getframe", "_make", "_replace")
)
_PERMITTED = re.compile(r"# private access: \S")
_HOPS = 8  # re-exports that are followed
_SHOWN = 3  # definitions in a line of output
_BY_NAME = ("getattr", "setattr", "hasattr", "delattr")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Finding:
    """A use of a private name outside its module. `owners` are "file:line" of definitions."""

    file: Path
    line: int
    name: str
    owners: tuple[str, ...]

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        if not self.name:
            return f"{where}: no private access in this line, remove the comment"
        if not self.owners:
            return f"{where}: {self.name} is private, and no module in these folders defines it"
        owners = ", ".join(self.owners[:_SHOWN])
        more = len(self.owners) - _SHOWN
        return f"{where}: {self.name} is private to {owners}{f' and {more} more' * (more > 0)}"


def is_private(name: str) -> bool:
    """Return whether the name has exactly one leading underscore and is not in PUBLIC."""
    return name[:1] == "_" and name[1:2] not in ("", "_") and name not in PUBLIC


@dataclass
class _Class:
    """A class: its bases as written, its private names, and what is known of its attributes."""

    module: _Module
    name: str
    bases: list[ast.expr]
    private: dict[str, int] = field(default_factory=dict)
    """Private attributes and methods: name -> line of the first definition."""
    types: dict[str, ast.expr] = field(default_factory=dict)
    """For each attribute, its annotation or the call that makes it."""
    returns: dict[str, ast.expr] = field(default_factory=dict)
    """For each method, the annotation of what it returns."""


@dataclass
class _Module:
    """A parsed file."""

    file: Path
    name: str
    is_package: bool
    tree: ast.Module
    classes: dict[ast.ClassDef, _Class] = field(default_factory=dict)
    top: dict[str, int] = field(default_factory=dict)
    """Private names at module level: name -> line."""
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Local name -> module and the name in it; "" for the module itself."""
    returns: dict[str, ast.expr] = field(default_factory=dict)
    """For each function at module level, the annotation of what it returns."""

    def class_named(self, name: str) -> _Class | None:
        """The first class of that name, at whatever level."""
        return next((each for each in self.classes.values() if each.name == name), None)


def _module_name(file: Path) -> tuple[str, bool]:
    """The dotted name by which the file is imported, and whether it is a package."""
    parts = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), file.stem == "__init__"


def _targets(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Return the targets of an assignment, and what gives the type of each.

    Tuples are taken apart. The type is given by an annotation, a call or a name.
    """
    waiting: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(node, ast.Assign):
        waiting = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign):
        waiting = [(node.target, node.annotation)]
    elif isinstance(node, ast.For | ast.AsyncFor):
        waiting = [(node.target, None)]
    elif isinstance(node, ast.With | ast.AsyncWith):
        waiting = [
            (item.optional_vars, item.context_expr) for item in node.items if item.optional_vars
        ]
    while waiting:
        target, kind = waiting.pop()
        if isinstance(target, ast.Tuple | ast.List):
            waiting += [(each, None) for each in target.elts]
        elif isinstance(target, ast.Starred):
            waiting.append((target.value, None))
        else:
            is_known = isinstance(node, ast.AnnAssign) or isinstance(kind, ast.Call | ast.Name)
            yield target, kind if is_known else None


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Return all statements of a body, those inside `if`, `try` and loops too.

    Those of the functions and classes in it are left out.
    """
    for node in body:
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inner = [each for each in ast.walk(node) if isinstance(each, ast.stmt)]
            yield from (each for each in inner if each is not node)


def _arguments(function: _Function) -> list[ast.arg]:
    rest = [each for each in (function.args.vararg, function.args.kwarg) if each]
    return [
        *function.args.posonlyargs,
        *function.args.args,
        *function.args.kwonlyargs,
        *rest,
    ]


def _read_class(module: _Module, node: ast.ClassDef) -> None:
    made = module.classes[node] = _Class(module, node.name, node.bases)
    for each in _statements(node.body):
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)) and is_private(each.name):
            made.private.setdefault(each.name, each.lineno)
        if isinstance(each, _FUNCTIONS) and each.returns is not None:
            made.returns[each.name] = each.returns
        for target, kind in _targets(each):
            if not isinstance(target, ast.Name):
                continue
            names = [target.id]
            if target.id == "__slots__" and isinstance(each, ast.Assign):
                slots = [slot for slot in ast.walk(each.value) if isinstance(slot, ast.Constant)]
                names = [str(slot.value) for slot in slots]
            for name in filter(is_private, names):
                made.private.setdefault(name, each.lineno)
            if kind is not None:
                made.types.setdefault(target.id, kind)
    for function in node.body:
        if isinstance(function, _FUNCTIONS) and function.args.args:
            _read_method(made, function)


def _read_method(made: _Class, function: _Function) -> None:
    """Read what a method assigns to the attributes of its object."""
    own = function.args.args[0].arg
    annotated = {each.arg: each.annotation for each in _arguments(function)}
    for each in ast.walk(function):
        if not isinstance(each, ast.stmt):
            continue
        for target, kind in _targets(each):
            if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
                continue
            if target.value.id != own:
                continue
            if is_private(target.attr):
                made.private.setdefault(target.attr, each.lineno)
            known = kind
            if isinstance(kind, ast.Name) and isinstance(each, ast.Assign):
                known = annotated.get(kind.id)
            if known is not None:
                made.types.setdefault(target.attr, known)


def _read(file: Path) -> _Module:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text, str(file))
    module = _Module(file, *_module_name(file), tree)
    for statement in _statements(tree.body):
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)) and is_private(statement.name):
            module.top.setdefault(statement.name, statement.lineno)
        if isinstance(statement, _FUNCTIONS) and statement.returns is not None:
            module.returns[statement.name] = statement.returns
        for target, _ in _targets(statement):
            if isinstance(target, ast.Name) and is_private(target.id):
                module.top.setdefault(target.id, statement.lineno)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            _read_class(module, node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                module.imported[local] = (alias.name if alias.asname else local, "")
        elif isinstance(node, ast.ImportFrom):
            source = _source(module, node)
            for alias in node.names:
                module.imported[alias.asname or alias.name] = (source, alias.name)
    return module


def _source(module: _Module, node: ast.ImportFrom) -> str:
    """The absolute name of the module that an import takes from."""
    if not node.level:
        return node.module or ""
    package = module.name.split(".")
    drop = node.level - module.is_package
    package = package[: len(package) - drop] if drop else package
    return ".".join([*package, *([node.module] if node.module else [])])


class _Project:
    """The names of all modules together."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.modules = [_read(file) for file in files]
        self._by_name: dict[str, list[_Module]] = {}
        self._owners: dict[str, list[str]] = {}
        for module in self.modules:
            self._by_name.setdefault(module.name, []).append(module)
            for name, line in module.top.items():
                self._owners.setdefault(name, []).append(f"{module.file}:{line}")
            for each in module.classes.values():
                for name, line in each.private.items():
                    self._owners.setdefault(name, []).append(f"{module.file}:{line}")

    def module(self, name: str, near: _Module) -> _Module | None:
        """The module of that name; of several, the one in the folder of `near`."""
        found = self._by_name.get(name, [])
        same = [each for each in found if each.file.parent == near.file.parent]
        return next(iter(same or found), None)

    def owners(self, name: str, user: _Module) -> tuple[str, ...]:
        """Return where other modules define the name."""
        found = self._owners.get(name, [])
        return tuple(each for each in found if each.rpartition(":")[0] != str(user.file))

    def origin(self, module: _Module, name: str) -> tuple[_Module, str] | None:
        """Return the module and name that a name means, through imports and re-exports.

        Returns None if it is not of the project.
        """
        for _ in range(_HOPS):
            if name not in module.imported or module.class_named(name):
                return module, name
            source, original = module.imported[name]
            found = self.module(source, module)
            if found is None or not original:
                return None
            module, name = found, original
        return None

    def find(self, module: _Module, expression: ast.expr) -> tuple[_Module, str] | None:
        """The same for `name` or `module.name`."""
        if isinstance(expression, ast.Name):
            return self.origin(module, expression.id)
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            source, original = module.imported.get(expression.value.id, ("", ""))
            found = self.module(f"{source}.{original}" if original else source, module)
            return self.origin(found, expression.attr) if found else None
        return None

    def resolve(self, module: _Module, expression: ast.expr | None) -> _Class | None:
        """Return the class that an annotation or a base names.

        The forms are `Client`, `client.Client`, `Client | None` or one of these in quotes.
        """
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            try:
                expression = ast.parse(expression.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(expression, ast.BinOp):
            return self.resolve(module, expression.left) or self.resolve(module, expression.right)
        found = self.find(module, expression) if expression is not None else None
        return found[0].class_named(found[1]) if found else None

    def made_by(self, module: _Module, callee: ast.expr) -> _Class | None:
        """The class of what a call of `callee`, a class or a function, gives."""
        found = self.find(module, callee)
        if found is None:
            return None
        where, name = found
        return where.class_named(name) or self.resolve(where, where.returns.get(name))

    def lineage(self, found: _Class) -> list[_Class]:
        """The class and all its bases that are in the project."""
        line = [found]
        for each in line:
            for base in each.bases:
                known = self.resolve(each.module, base)
                if known is not None and known not in line:
                    line.append(known)
        return line

    def foreign(self, user: _Module, found: _Class, name: str) -> tuple[str, ...]:
        """Return where a class, or a base of it, outside the module `user` defines the name."""
        return tuple(
            f"{each.module.file}:{each.private[name]}"
            for each in self.lineage(found)
            if name in each.private and each.module is not user
        )


class _Visitor(ast.NodeVisitor):
    """A collector of the findings of one module."""

    def __init__(self, project: _Project, module: _Module) -> None:
        self.findings: list[Finding] = []
        self._project = project
        self._module = module
        self._classes: list[_Class] = []
        self._types: list[dict[str, ast.expr]] = []  # of the names in each enclosing function

    def _refuse(self, node: ast.AST, name: str, owners: tuple[str, ...]) -> None:
        line = getattr(node, "end_lineno", 0)
        self.findings.append(Finding(self._module.file, line, name, owners))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = _source(self._module, node)
        for alias in node.names:
            if not is_private(alias.name):
                continue
            if self._project.module(f"{source}.{alias.name}", self._module) is None:
                found = self._project.module(source, self._module)
                line = found.top.get(alias.name) if found else None
                owners = (f"{found.file}:{line}",) if found and line else (source,)
                self._refuse(alias, alias.name, owners)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        found = self._module.classes[node]
        self._classes.append(found)
        for each in _statements(node.body):
            names = [target.id for target, _ in _targets(each) if isinstance(target, ast.Name)]
            if isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
                names.append(each.name)
            for name in filter(is_private, names):
                owners = self._project.foreign(self._module, found, name)
                if owners:
                    line = each.lineno
                    self.findings.append(Finding(self._module.file, line, name, owners))
        self.generic_visit(node)
        self._classes.pop()

    def _visit_function(self, node: _Function) -> None:
        types = {
            each.arg: each.annotation for each in _arguments(node) if each.annotation is not None
        }
        for each in ast.walk(node):
            if isinstance(each, ast.stmt):
                for target, kind in _targets(each):
                    if isinstance(target, ast.Name) and kind is not None:
                        types.setdefault(target.id, kind)
        self._types.append(types)
        self.generic_visit(node)
        self._types.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if is_private(node.attr):
            self._check(node, node.value, node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _BY_NAME and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                self._check(node, node.args[0], str(name.value))
        self.generic_visit(node)

    def _check(self, node: ast.expr, of: ast.expr, name: str) -> None:
        found = self._class_of(of)
        owners = self._project.foreign(self._module, found, name) if found else ()
        is_imported = isinstance(of, ast.Name) and of.id in self._module.imported
        if owners or is_imported or not self._owns(found, name):
            self._refuse(node, name, owners or self._project.owners(name, self._module))

    def _owns(self, found: _Class | None, name: str) -> bool:
        """Return whether a class of this module defines the name.

        If the class of the object is known, only classes related to it count.
        """
        return any(
            name in each.private
            and (
                found is None
                or each in self._project.lineage(found)
                or found in self._project.lineage(each)
            )
            for each in self._module.classes.values()
        )

    def _class_of(self, of: ast.expr, depth: int = _HOPS) -> _Class | None:
        """The class of the object that an expression gives, if that can be seen."""
        if not depth:
            return None
        if isinstance(of, ast.Call):
            if isinstance(of.func, ast.Name) and of.func.id == "super" and self._classes:
                return self._classes[-1]
            found = self._project.made_by(self._module, of.func)
            if found is None and isinstance(of.func, ast.Attribute):
                holder = self._class_of(of.func.value, depth - 1)
                found = self._known(holder, of.func.attr, depth, is_call=True)
            return found
        if isinstance(of, ast.Name):
            if of.id in ("self", "cls") and self._classes:
                return self._classes[-1]
            for types in reversed(self._types):
                if of.id in types:
                    return self._typed(self._module, types[of.id], depth)
            return self._project.resolve(self._module, of)
        if isinstance(of, ast.Attribute):
            holder = self._class_of(of.value, depth - 1)
            return self._known(holder, of.attr, depth)
        return None

    def _known(
        self, holder: _Class | None, name: str, depth: int, *, is_call: bool = False
    ) -> _Class | None:
        """The class of an attribute, or of what a method returns, of objects of a class."""
        for each in self._project.lineage(holder) if holder else ():
            kind = each.returns.get(name) if is_call else each.types.get(name)
            if kind is not None:
                return self._typed(each.module, kind, depth)
        return None

    def _typed(self, module: _Module, kind: ast.expr, depth: int) -> _Class | None:
        """The class that an annotation, a call or a name in a module gives."""
        if isinstance(kind, ast.Call):
            if module is self._module:
                return self._class_of(kind, depth - 1)
            return self._project.made_by(module, kind.func)
        return self._project.resolve(module, kind)


def findings(folders: Iterable[Path]) -> list[Finding]:
    """Return all findings in the Python files of the folders.

    Raises SyntaxError, which names the file that has one.
    """
    files = sorted({file for folder in folders for file in folder.rglob("*.py")})
    project = _Project(files)
    found: set[Finding] = set()
    for module in project.modules:
        visitor = _Visitor(project, module)
        visitor.visit(module.tree)
        lines, whole = _permits(module.file)
        used = {each.line for each in visitor.findings}
        unused = lines - used if used or not whole else lines | whole
        found.update(Finding(module.file, line, "", ()) for line in unused)
        if not whole:
            found.update(each for each in visitor.findings if each.line not in lines)
    return sorted(found)


def _permits(file: Path) -> tuple[set[int], set[int]]:
    """The lines of the comments that permit something: in their line, and in the whole file."""
    lines: set[int] = set()
    whole: set[int] = set()
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT and _PERMITTED.search(token.string):
                is_alone = not token.line[: token.start[1]].strip()
                (whole if is_alone else lines).add(token.start[0])
    return lines, whole


def main(folders: list[str]) -> int:
    """Print the findings; return 1 if there are any, 2 if a folder is missing, else 0."""
    missing = [name for name in folders if not Path(name).is_dir()]
    if missing or not folders:
        print(f"folders must exist, not {missing}" if missing else __doc__, file=sys.stderr)
        return 2
    found = findings(Path(name) for name in folders)
    for each in found:
        print(each)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
