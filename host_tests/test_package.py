"""What reaches a board: package.json for mip, and the manifest for frozen modules."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
import threading
import tty
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flatmq
from conftest import LIB, ROOT, interpreter_command
from flatmq_tools import interpreter

FILES = {f"flatmq/{path.name}" for path in (LIB / "flatmq").glob("*.py")}
ANSWER = 60.0  # seconds that an installation may take


def _package() -> dict[str, Any]:
    package: dict[str, Any] = json.loads((ROOT / "package.json").read_text())
    return package


def _manifest() -> tuple[dict[str, str], set[str]]:
    """The metadata and the files of the manifest, read as MicroPython's makefiles do."""
    metadata: dict[str, str] = {}
    files: set[str] = set()
    folder = ROOT / "firmware"

    def package(name: str, names: tuple[str, ...] | None = None, base_path: str = ".") -> None:
        found = folder / base_path / name
        chosen = names or tuple(path.name for path in found.glob("*.py"))
        for file in chosen:
            assert (found / file).is_file(), f"{found / file} is missing"
            files.add(f"{name}/{file}")

    source = (folder / "manifest.py").read_text()
    exec(source, {"metadata": metadata.update, "package": package})
    return metadata, files


def test_every_file_is_in_the_package() -> None:
    listed = dict(_package()["urls"])
    assert set(listed) == FILES
    assert {f"lib/{target}" for target in listed} == set(listed.values())


def test_every_file_is_in_the_manifest() -> None:
    assert _manifest()[1] == FILES


def test_one_version() -> None:
    assert _package()["version"] == flatmq.__version__
    assert _manifest()[0]["version"] == flatmq.__version__


def test_what_a_board_loads_is_within_the_package() -> None:
    """Imports among the files, wherever they stand, name files that are listed."""
    for target in FILES:
        source = (LIB / target).read_text()
        for line in source.splitlines():
            words = line.split()
            if words[:1] == ["from"] and words[1].startswith("."):
                name = words[1][1:] or words[3]
                assert f"flatmq/{name}.py" in FILES, f"{target}: {line.strip()}"


@contextlib.contextmanager
def serial_board(folder: Path) -> Iterator[str]:
    """A MicroPython whose raw REPL is at the serial device that this yields; `folder` is where
    it runs, and folder/lib where it looks for modules."""
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


def test_mpremote_installs_it(tmp_path: Path) -> None:
    """`mpremote mip install` from this folder, and the board can import what it got."""
    (tmp_path / "lib").mkdir()
    with serial_board(tmp_path) as device:
        mpremote = [sys.executable, "-m", "mpremote", "connect", device, "resume"]
        done = subprocess.run(
            [*mpremote, "mip", "install", str(ROOT / "package.json")],
            capture_output=True,
            text=True,
            timeout=ANSWER,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        installed = tmp_path / "lib"
        assert {str(path.relative_to(installed)) for path in installed.rglob("*.py")} == FILES
        for target in FILES:
            assert (installed / target).read_bytes() == (LIB / target).read_bytes(), target
        done = subprocess.run(
            [*mpremote, "exec", "import flatmq; print(flatmq.__file__, flatmq.__version__)"],
            capture_output=True,
            text=True,
            timeout=ANSWER,
            check=False,
        )
    expected = f"{installed}/flatmq/__init__.py {flatmq.__version__}"
    assert done.stdout.strip() == expected, done.stdout + done.stderr


def test_wheel_has_both_packages(tmp_path: Path) -> None:
    """What pip installs on the desk imports from anywhere, without what the tools need."""
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("flatmq-*.whl")
    typed = {"flatmq/py.typed", "flatmq/port.pyi"}
    names = set(zipfile.ZipFile(wheel).namelist())
    assert typed <= names
    assert "pyspark_mqtt.py" in names  # where Spark looks for format("mqtt")
    where = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); "
         "import flatmq, flatmq_tools; print(flatmq.__file__, flatmq_tools.__file__)"],
        capture_output=True, text=True, timeout=ANSWER, check=False,
    )  # fmt: skip
    assert where.stdout.split() == [
        f"{wheel}/flatmq/__init__.py",
        f"{wheel}/flatmq_tools/__init__.py",
    ], where.stderr
