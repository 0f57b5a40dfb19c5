"""A turn of a sketch allocates nothing: its loop, its packs, and each sensor that it may have.

The drivers that MicroPython brings are fakes here, which allocate nothing as the real ones do not
for the calls that sketches make; see docs/sketches.md.
"""

import ast
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from device import frames, on_device
from flatmq_tools import bytecode
from sketches.board_bench import HERE, SHARED

OPERATIONS = HERE / "operations" / "station_loop.py"
HEAP = "160k"
# What runs when a sketch starts, connects, or is given a command.
MAY_BE_ON_HEAP = {
    "attached": "attached",
    "bme280": "BME280.__init__ probe",
    "boot_id": "next_boot",
    "chip_rp2": "Chip.recall",
    "clock": "Clock._look",  # until the clock is set
    "crashes_part": "crashes.kept",  # once
    "ds18b20": "DS18B20.__init__ DS18B20.__init__.<genexpr> probe",
    "ha_part": (
        "HomeAssistant._show_updates HomeAssistant.__init__ HomeAssistant.__init__.<genexpr> "
        "HomeAssistant._add HomeAssistant._add.<genexpr> Record.__init__ "
        "Record.__init__.<genexpr> Record.pieces _shown _shown.<genexpr>"
    ),
    "kept": "Kept.__init__ Kept.keep Kept._store _connect",
    "parts": "Parts.__init__ _made named",
    # Once for each connection, and the key of the password.
    "scram": "Scram.__call__ Scram._prove Scram._verify pbkdf2",
    "settings": "_table _check _read",
    # When the board starts.
    "slots_esp32": "check",  # before the program starts
    "slots": "Archive.__init__ Archive.stat _crashed boot load mount run keep store",
    "station": "Station.__init__ Station.run Station._greet.<listcomp>",
    "updates_part": "said updates",
    "wifi": "Wifi._step",  # with each try to connect
}


@pytest.fixture(scope="module")
def sketch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="flatmq-sketch-") as name:
        folder = Path(name)
        fakes = (HERE / "fakes").glob("*.py")
        for source in [*SHARED.glob("*.py"), *fakes, OPERATIONS, HERE / "bme280_registers.py"]:
            bytecode.compile_module(source, folder / f"{source.stem}.mpy", source.name)
        yield folder


def _operations() -> list[str]:
    tree = ast.parse(OPERATIONS.read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name[0] != "_" and name != "made"]


@pytest.mark.parametrize("name", _operations())
def test_a_turn_with(name: str, sketch: Path) -> None:
    arguments = ("station_loop", name, "0", "4")
    told = on_device.run("run_operation.py", *arguments, heap=HEAP, before=sketch)
    assert told == ["0", "0", "0"]


def test_a_sensor_that_always_raises_is_reported_for_hours(sketch: Path) -> None:
    """By the scripted clock: a status every ten minutes, every reading, and a steady heap."""
    told = on_device.run(str(HERE / "failing_hours.py"), heap=HEAP, before=sketch)
    statuses, last, packs, grown = map(int, told)
    assert statuses in (29, 30, 31)
    assert 350 <= last <= 360
    assert packs == 300
    assert grown == 0


@pytest.mark.parametrize("module", sorted(path.stem for path in SHARED.glob("*.py")))
def test_frames_of(module: str, sketch: Path) -> None:
    found = frames.on_heap(sketch / f"{module}.mpy")
    assert found == set(MAY_BE_ON_HEAP.get(module, "").split())
