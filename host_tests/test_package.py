"""The code that reaches a board: packages for mip, and the manifest for frozen modules."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import pty
import select
import subprocess
import sys
import threading
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mpremote import mip

import flatmq
import sizes
from conftest import LIB, ROOT, interpreter_command, ran
from flatmq_rigs import packages
from flatmq_tools import bytecode, interpreter

MODULES = {
    path.relative_to(bytecode.SOURCES).with_suffix("").as_posix()
    for path in bytecode.SOURCES.rglob("*.py")
    if path.stem not in bytecode.DESK_ONLY
}
ANSWER = 60.0  # seconds that an installation may take
AGAIN = "python -m flatmq_rigs packages writes them"


def _listed(part: str) -> dict[str, str]:
    """Return where each file of a part goes, and where it is in the checkout."""
    file = packages.path(part)
    package: dict[str, Any] = json.loads(file.read_text())
    folder = file.parent.relative_to(ROOT)
    return {target: str(folder / source) for target, source in package["urls"]}


def _manifest(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], set[str]]:
    """The metadata and the files of the manifest, read as MicroPython's makefiles do."""
    metadata: dict[str, str] = {}
    files: set[str] = set()
    folder = ROOT / "firmware"

    def package(name: str, names: tuple[str, ...] | None = None, base_path: str = ".") -> None:
        found = folder / base_path / name
        chosen = names or tuple(str(path.relative_to(found)) for path in found.rglob("*.py"))
        for file in chosen:
            assert (found / file).is_file(), f"{found / file} is missing"
            files.add(f"{name}/{file}")

    monkeypatch.chdir(folder)
    source = (folder / "manifest.py").read_text()
    exec(source, {"metadata": metadata.update, "package": package})
    return metadata, files


def test_the_packages_are_up_to_date() -> None:
    for part in packages.PARTS:
        assert packages.path(part).read_text() == packages.document(part), AGAIN
    found = {module for part in packages.PARTS for module in packages.modules(part)}
    # Updates need a board that `flatmq image` has made.
    found |= {module for module in MODULES if module.startswith(("ota/", "prompt", "signed"))}
    assert found == MODULES, "name what nothing imports in packages.PARTS"


@pytest.mark.parametrize("part", packages.PARTS)
def test_a_package_has_what_its_modules_import(part: str) -> None:
    """By another reading of the sources than the one that found the modules."""
    listed = _listed(part)
    assert {f"lib/{target}" for target in listed} == set(listed.values())
    for target in listed:
        is_for_types = False
        for line in (LIB / target).read_text().splitlines():
            words = line.split()
            is_for_types = line == "if TYPE_CHECKING:" or (is_for_types and line[:1] in " ")
            if is_for_types:
                continue
            if words[:1] == ["from"] and words[1].startswith("."):
                dots = len(words[1]) - len(words[1].lstrip("."))
                folder = "/".join(target.split("/")[:-dots])
                module = words[1][dots:].replace(".", "/")
                names = line.partition(" import ")[2].split(",")
                for name in [module] if module else [name.split()[0] for name in names]:
                    if not any((LIB / folder / f"{name}{end}").exists() for end in ("", ".py")):
                        name = "__init__"  # noqa: PLW2901 - what is imported is in there
                    is_there = any(
                        f"{folder}/{name}{end}" in listed for end in (".py", "/__init__.py")
                    )
                    assert is_there or name in bytecode.DESK_ONLY, f"{target}: {line.strip()}"


def test_a_part_alone_is_small() -> None:
    """The core has nothing of the other parts, nor have these of each other.

    Exceptions are TLS, which a program for umqtt may use, the messages of MQTT 5, which a program
    for asyncio may receive, and SenML, which writes numbers for Home Assistant.
    """
    core = set(packages.modules("package"))
    own = {part: set(packages.modules(part)) - core for part in packages.PARTS}
    del own["package"]
    assert own["tls"] < own["umqtt"]
    own["umqtt"] -= own["tls"]
    own["ha"] -= own["senml"]
    own["aio"] -= own["mqtt5"] & {"message"}
    assert all(own.values())
    assert sum(map(len, own.values())) == len(set().union(*own.values()))
    assert not core & {"spool", "senml", "stream_uart"}


def test_the_manifest_has_every_file_and_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata, files = _manifest(monkeypatch)
    assert files == {f"flatmq/{module}.py" for module in MODULES}
    assert metadata["version"] == flatmq.__version__


def test_what_no_board_imports_compiles_for_one() -> None:
    """Whoever copies the folder gets it, too."""
    for name in bytecode.DESK_ONLY:
        assert bytecode.mpy((bytecode.SOURCES / f"{name}.py").read_text("utf-8"), f"{name}.py")


def test_github_has_the_files() -> None:
    """A URL there is made of the package's own and of what it lists, and ".." is not resolved."""
    for part in packages.PARTS:
        file = packages.path(part)
        folder = f"github:owner/flatmq/{file.parent.relative_to(ROOT).as_posix()}"
        for _target, source in json.loads(file.read_text())["urls"]:
            url = mip._rewrite_url(f"{folder.removesuffix('/.')}/{source}")
            start, _, path = url.partition("/HEAD/")
            assert start == "https://raw.githubusercontent.com/owner/flatmq"
            assert ".." not in path
            assert (ROOT / path).is_file()


@contextlib.contextmanager
def serial_board(folder: Path) -> Iterator[str]:
    """Yield the serial device of a MicroPython whose raw REPL is at its other end.

    `folder` is where it runs, and folder/lib where it looks for modules.
    """
    # Two terminals back to back: each side believes that it is at the end of a line.
    board, board_end = pty.openpty()
    desk, desk_end = pty.openpty()
    for end in (board_end, desk_end):
        tty.setraw(end)
    done, tell_done = os.pipe()

    def bridge() -> None:
        while True:
            ready = select.select([board, desk, done], [], [])[0]
            if done in ready:
                return
            for source in ready:
                os.write(desk if source == board else board, os.read(source, 4096))

    process = subprocess.Popen(
        interpreter_command("micropython", "512k"),
        stdin=board_end,
        stdout=board_end,
        stderr=board_end,
        cwd=folder,
        env=interpreter.environment(folder / "lib"),
    )
    thread = threading.Thread(target=bridge)
    thread.start()
    try:
        yield os.ttyname(desk_end)
    finally:
        process.kill()
        process.wait()
        os.write(tell_done, b"x")
        thread.join()
        for end in (board, board_end, desk, desk_end, done, tell_done):
            os.close(end)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, which had another one before."""
    into = tmp_path_factory.mktemp("release")
    old = into / "mpy6" / "flatmq" / "rare" / "gone.mpy"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    folder = packages.release(into)
    assert folder == old.parents[2] and not old.exists()
    return folder


@pytest.fixture(scope="module")
def served(released: Path) -> Iterator[str]:
    """The URL of the folder, by HTTP."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(released))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _install(package: str, folder: Path) -> None:
    """`mpremote mip install`, and the board can import every module that it got."""
    installed = folder / "lib"
    installed.mkdir()
    part = package.rpartition("/")[2].removesuffix(".json")
    names = [
        f"flatmq.{module.removesuffix('/__init__').replace('/', '.')}"
        for module in packages.modules(part)
        if module != "__init__"
    ]
    with serial_board(folder) as device:
        mpremote = [sys.executable, "-m", "mpremote", "connect", device, "resume"]
        done = ran([*mpremote, "mip", "install", package], timeout=ANSWER)
        assert done.returncode == 0, done.stdout + done.stderr
        code = f"for name in {names}: __import__(name)\nimport flatmq; "
        code += "print(flatmq.__file__, flatmq.__version__)"
        done = ran([*mpremote, "exec", code], timeout=ANSWER)
    (first,) = (installed / "flatmq").glob("__init__.*")
    expected = f"{first} {flatmq.__version__}"
    assert done.stdout.strip() == expected, done.stdout + done.stderr


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("part", sizes.sample(packages.PARTS, 2))
def test_mpremote_installs_a_part_from_the_checkout(part: str, tmp_path: Path) -> None:
    _install(str(packages.path(part)), tmp_path)
    expected = {target: (ROOT / source).read_bytes() for target, source in _listed(part).items()}
    assert files(tmp_path / "lib") == expected


@pytest.mark.parametrize("part", sizes.sample(packages.PARTS, 2))
def test_mpremote_installs_a_part_of_a_release(
    part: str, released: Path, served: str, tmp_path: Path
) -> None:
    """The same modules, compiled, from a server."""
    _install(f"{served}/{part}.json", tmp_path)
    found = files(tmp_path / "lib")
    assert set(found) == {target.replace(".py", ".mpy") for target in _listed(part)}
    for target, data in found.items():
        assert data == (released / target).read_bytes()
        assert f"mpy{data[1]}" == released.name
