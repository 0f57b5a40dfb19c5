"""The files on a board: their paths, and the same bytes each time."""

import ast
import json
import shutil
from pathlib import Path

import pytest

from conftest import ran
from flatmq_tools import boards, bytecode, contents, interpreter
from flatmq_tools.errors import ToolError

MODULES = {
    "mine/main.py": "import helper\nimport wifi\n",
    "mine/helper.py": "def late():\n    from sensors import bme\n    return bme\n",
    "shared/wifi.py": "import settings\n",
    "shared/settings.py": "import json\n",
    "shared/sensors/__init__.py": "",
    "shared/sensors/bme.py": "import struct\n",
    "shared/unused.py": "import nothing_at_all\n",
}


@pytest.fixture
def sketch(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(folder: Path) -> Path:
    for name, text in MODULES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder / "mine"


def outside_of_the_client(files: dict[str, bytes]) -> list[str]:
    return [path for path in files if not path.startswith("/lib/flatmq/")]


def test_what_the_sketch_uses_and_the_whole_client(sketch: Path) -> None:
    files = contents.contents(sketch, {"wifi": {"ssid": "x"}})
    assert outside_of_the_client(files) == [
        "/helper.mpy",
        "/lib/sensors/__init__.mpy",
        "/lib/sensors/bme.mpy",
        "/lib/settings.mpy",
        "/lib/wifi.mpy",
        "/main.py",
        "/settings.json",
    ]
    assert files["/main.py"] == (sketch / "main.py").read_bytes()
    assert json.loads(files["/settings.json"]) == {"wifi": {"ssid": "x"}}
    client = {path for path in files if path.startswith("/lib/flatmq/")}
    assert client == {
        f"/lib/flatmq/{file.relative_to(bytecode.SOURCES).with_suffix('.mpy').as_posix()}"
        for file in bytecode.SOURCES.rglob("*.py")
        if file.stem not in bytecode.DESK_ONLY and not file.stem.startswith("umqtt")
    }
    compiled = {path: data for path, data in files.items() if path.endswith(".mpy")}
    assert len(compiled) == len(files) - 2
    assert {data[:2] for data in compiled.values()} == {b"M\x06"}
    # A traceback on the board names the module.
    assert b"flatmq.wire" in files["/lib/flatmq/wire.mpy"]
    assert b"sensors.bme" in files["/lib/sensors/bme.mpy"]


@pytest.mark.parametrize("name", ["flatmq.umqtt_robust", "umqtt.simple"])
def test_the_face_of_umqtt_comes_with_who_uses_it(name: str, sketch: Path) -> None:
    (sketch / "main.py").write_text(f"from {name} import MQTTClient\n")
    assert "/lib/flatmq/umqtt_robust.mpy" in contents.contents(sketch, {})


def test_a_module_of_the_sketch_keeps_its_lines_and_its_assertions(
    sketch: Path, tmp_path: Path
) -> None:
    """The client has neither: they would take memory."""
    (sketch / "helper.py").write_text("def check():\n    pass\n    assert not 5, 'five'\n")
    (tmp_path / "helper.mpy").write_bytes(contents.contents(sketch, {})["/helper.mpy"])
    done = ran(
        [*(interpreter.command("64k") or []), "-c", "import helper; helper.check()"],
        cwd=tmp_path,
        timeout=60,
    )
    assert 'File "helper", line 3, in check\nAssertionError: five' in done.stdout + done.stderr


def test_source_is_left_as_it_is(sketch: Path) -> None:
    files = contents.contents(sketch, {}, source=True)
    assert files["/helper.py"] == (sketch / "helper.py").read_bytes()
    assert files["/lib/flatmq/wire.py"] == (bytecode.SOURCES / "wire.py").read_bytes()
    assert not [path for path in files if path.endswith(".mpy")]
    assert "/settings.json" not in files  # without settings


def test_a_module_of_the_sketch_goes_before_a_shared_one(sketch: Path) -> None:
    (sketch / "wifi.py").write_text("OWN = 1\n")
    files = contents.contents(sketch, {})
    assert "/wifi.mpy" in files
    assert "/lib/wifi.mpy" not in files
    assert "/lib/settings.mpy" not in files


def test_the_same_bytes_from_another_folder(sketch: Path, tmp_path: Path) -> None:
    """Nothing says where it was compiled, or when."""
    other = made(tmp_path / "somewhere" / "else")
    for module in ("wifi.py", "settings.py"):
        shutil.copystat(__file__, other.parent / "shared" / module)
    files = contents.contents(sketch, {"a": 1})
    assert contents.contents(other, {"a": 1}) == files
    assert not [path for path, data in files.items() if str(tmp_path).encode() in data]


# Modules of MicroPython's firmware: built in, and frozen by ports/{rp2,esp32}/boards/manifest.py.
FIRMWARE = {
    *("array", "binascii", "errno", "esp32", "gc", "io", "json", "machine", "micropython"),
    *("network", "os", "random", "rp2", "select", "socket", "struct", "sys", "time", "vfs"),
    *("dht", "ds18x20", "neopixel", "ntptime", "onewire"),
}


@pytest.mark.parametrize("name", boards.names())
def test_nothing_is_missing_on_a_board(name: str) -> None:
    """Each board's own sketch, and whatever its files import."""
    files = contents.contents(contents.find_sketch(boards.load(name).sketch), {}, source=True)
    there = {path.removeprefix("/lib").lstrip("/").split("/")[0] for path in files}
    for path in outside_of_the_client(files):
        for node in ast.walk(ast.parse(files[path])):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            for module in names:
                first = module.split(".")[0]
                assert first in FIRMWARE or {first, f"{first}.py"} & there, f"{path}: {module}"


def test_a_sketch_by_name_and_by_path(sketch: Path) -> None:
    assert contents.find_sketch("host") == contents.SKETCHES / "host"
    assert contents.find_sketch(str(sketch)) == sketch
    with pytest.raises(ToolError, match=r"nowhere: no sketch: .*there are .*host"):
        contents.find_sketch("nowhere")


def test_a_sketch_that_is_none(sketch: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"no sketch: it has no main\.py"):
        contents.contents(tmp_path, {})
    (sketch / "helper.py").write_text("x = 1\ndef\n")
    with pytest.raises(ToolError, match=r"helper\.py: line 2: "):
        contents.contents(sketch, {})
    (sketch / "helper.py").write_bytes(b"# coding: latin-1\nx = '\xff'\n")
    with pytest.raises(ToolError, match=r"helper\.py: 'utf-8' codec can't decode byte 0xff"):
        contents.contents(sketch, {})
    (sketch / "helper.py").write_bytes(b"x = 1\0\n")
    with pytest.raises(ToolError, match=r"helper\.py: .*null bytes"):
        contents.contents(sketch, {})


def test_a_main_that_a_board_cannot_compile_is_named_here(sketch: Path) -> None:
    (sketch / "main.py").write_text("match 1:\n    case 1:\n        pass\n")
    with pytest.raises(ToolError, match=r"main\.py: (?s:.*)line 1"):
        contents.contents(sketch, {})
