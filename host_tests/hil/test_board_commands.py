"""`flatmq boards`, `flash`, `deploy` and `logs`, with a board that is emulated.

What their commands on the pages do, the tests of the pages show.
"""

import functools
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import typed_command
from flatmq_rigs.certificates import Issued
from flatmq_tools import boards, flash, logs, remote, settings
from flatmq_tools.remote import Remote
from hil import plugged as plugged_in
from hil.emulated_board import EmulatedBoard
from images import downloads
from observer import until
from typed_command import flatmq, said

RP2040, RP2350 = 0xE48BFF56, 0xE48BFF59


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plug in the ports (device, VID, PID) with which it is called, and no others."""
    plug = functools.partial(plugged_in.ports, monkeypatch)
    plug()
    return plug


# boards


def test_boards_lists_what_is_connected_and_what_is_known(plugged: Callable[..., None]) -> None:
    plugged(("/dev/ttyACM7", 0x2E8A, 0x0005), ("/dev/ttyS0", None, None), ("/dev/ttyUSB1", 1, 2))
    shown = said("boards")
    (pico,) = [line for line in shown.splitlines() if "/dev/ttyACM7" in line]
    assert "2e8a:0005" in pico
    assert "pico, pico_2, pico_2_w, pico_w" in pico
    (stranger,) = [line for line in shown.splitlines() if "/dev/ttyUSB1" in line]
    assert "0001:0002" in stranger
    assert "?" in stranger
    assert "/dev/ttyS0" not in shown
    for name in boards.names():
        assert boards.load(name).title in shown


@pytest.mark.parametrize(("ports", "texts"), [
    ([("/dev/ttyACM0", 0x2E8A, 5), ("/dev/ttyACM1", 0x2E8A, 5)],
     ["2 ports may be the board", "--port /dev/ttyACM0", "--port /dev/ttyACM1"]),
    ([("/dev/ttyUSB1", 1, 2)], ["/dev/ttyUSB1 (0001:0002 Board)"]),
], ids=["several", "none"])  # fmt: skip
def test_another_number_of_boards_is_an_error(
    ports: list[tuple[str, int, int]], texts: list[str], plugged: Callable[..., None]
) -> None:
    plugged(*ports)
    done = flatmq("logs")
    assert done.exit_code == 1
    for text in texts:
        assert text in done.output


# deploy and logs

MAIN = """\
import flatmq, helper
print("main", flatmq.__version__, flatmq.__file__, helper.__file__, helper.WORD)
"""


def _sketch(folder: Path) -> Path:
    sketch = folder / "sketch [red]"
    sketch.mkdir(exist_ok=True)
    (sketch / "main.py").write_text(MAIN)
    (sketch / "helper.py").write_text("WORD = 'one'\n")
    return sketch


def _on(board: EmulatedBoard, code: str, files: dict[str, bytes] | None = None) -> list[str]:
    """Write files to a board, and return what code prints there."""
    with Remote(board.address) as desk:
        desk.enter()
        desk.write(files or {})
        return desk.run(code)


@contextmanager
def _logs(port: str) -> Iterator[Callable[[], str]]:
    """Run `flatmq logs`; yields a function that returns what it has shown."""
    out = io.BytesIO()
    with typed_command.at_work(lambda over: logs.main(port, out, stop=over)):
        yield lambda: out.getvalue().decode(errors="replace")


COUNTS_ITS_BOOTS = b"""\
import time
try:
    with open("/boots") as f:
        n = int(f.read()) + 1
except OSError:
    n = 1
with open("/boots", "w") as f:
    f.write(str(n))
while True:
    print("boot", str(n) + ".")
    time.sleep_ms(50)
"""


@pytest.mark.parametrize("unplugs", [False, True])
def test_logs_goes_on_over_resets(tmp_path: Path, unplugs: bool) -> None:
    with EmulatedBoard(tmp_path, unplugs=unplugs) as board:
        with Remote(board.address) as desk:
            desk.enter()
            desk.write({"/main.py": COUNTS_ITS_BOOTS})
            desk.reset()
        with _logs(board.address) as shown:
            for count in (1, 2):
                until("its word", lambda count=count: f"boot {count}." in shown())
                board.press_reset()
            until("its word", lambda: "boot 3." in shown())


def test_logs_ends_after_its_time() -> None:
    with typed_command.serial_line() as (_, port):
        assert "Ctrl-C ends it" in said("logs", "--port", port, "--seconds", "0.5")


def test_deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deploy runs the new files, skips unchanged ones, and keeps settings given once.

    An older source does not hide what is new.
    """
    monkeypatch.setattr(settings, "OWN", "absent.json")
    sketch = _sketch(tmp_path)
    with EmulatedBoard(tmp_path) as board:
        deploy = ("deploy", "pico_w", "--port", board.address, "--sketch", sketch)
        old = {"/lib/flatmq/__init__.py": b"1/0\n", "/helper.py": b"WORD = 'old'\n"}
        _on(board, "", {**old, "/mine.txt": b"kept"})
        shown = said(*deploy, "--set", "wifi.ssid=home")
        assert "sketch [red] goes to the " in shown
        assert " 0 unchanged" in shown
        assert "does not start with these settings: broker.host is empty" in shown
        shown = said(
            *deploy,
            "--set",
            "wifi.ssid=home",
            "--set",
            "broker.host=x",
            "--set",
            "device.parts=[/tim]",
        )
        assert "does not start with these settings: device.parts: [/tim] is not one of" in shown
        (there,) = _on(board, "import os; print(sorted(os.listdir('/')))")
        assert there == "['helper.mpy', 'lib', 'main.py', 'mine.txt', 'settings.json']"
        with _logs(board.address) as shown:
            board.press_reset()
            until("the sketch", lambda: re.search(r"main 0\..*\n", shown()) is not None)
        words = re.search(r"main \S+ (\S+) (\S+) (\S+)", shown())
        assert words
        assert words.groups() == ("/lib/flatmq/__init__.mpy", "helper.mpy", "one")
        (sketch / "helper.py").write_text("WORD = 'two'\n")
        (wrote,) = re.findall(r"1 files written, (\d+) bytes", said(*deploy))
        assert int(wrote) < 100
        look = "import json; print(json.load(open('/settings.json'))['wifi']['ssid'])"
        assert _on(board, look) == ["home"]


def test_deploy_puts_certificates_and_takes_them_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private key does not stay on a board whose settings do not name it any more."""
    monkeypatch.setattr(settings, "OWN", "absent.json")
    one = Issued("board", authority=True)
    cert, key = one.write(tmp_path / "files", "mine")
    with EmulatedBoard(tmp_path) as board:
        deploy = ("deploy", "pico_w", "--port", board.address, "--sketch", _sketch(tmp_path))
        tls = ("--set", f"broker.tls.ca={cert}", "--set", f"broker.tls.cert={cert}",
               "--set", f"broker.tls.key={key}")  # fmt: skip
        look = "import os; print('tls' in os.listdir('/') and sorted(os.listdir('/tls')))"
        for options, there in ((tls, ["ca.der", "cert.der", "key.der"]), (tls[:2], ["ca.der"])):
            said(*deploy, *options)
            assert _on(board, look) == [str(there)]
            (ca,) = _on(board, "print(open('/tls/ca.der', 'rb').read().hex())")
            assert bytes.fromhex(ca) == one.der


@pytest.mark.parametrize("fault", [{"swallows": 1}, {"reset_ms": 800}], ids=str)
def test_deploy_resets_the_board(tmp_path: Path, fault: dict[str, int]) -> None:
    """It ends after the reset, and leaves main.py to run."""
    sketch = _sketch(tmp_path)
    (sketch / "main.py").write_text(COUNTS_ITS_BOOTS.decode())
    with EmulatedBoard(tmp_path, **fault) as board:
        said("deploy", "pico", "--port", board.address, "--sketch", sketch)
        with _logs(board.address) as shown:  # it may interrupt nothing
            until("its word", lambda: "boot 1." in shown())
        assert board.resets == 1


@pytest.mark.parametrize(("main", "swallows", "oldest", "text"), [
    ("", 100, None, "the board was not reset in 3 tries"),
    ("#" * 500_000, 0, None, "bytes of room"),
    ("", 0, (9, 9), "9.9 or later is needed: `flatmq flash`"),
], ids=["not reset", "no room", "old MicroPython"])  # fmt: skip
def test_deploy_says_what_is_wrong(
    main: str,
    swallows: int,
    oldest: tuple[int, int] | None,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if oldest:
        monkeypatch.setattr(remote, "OLDEST", oldest)
    sketch = _sketch(tmp_path)
    (sketch / "main.py").write_text(main or MAIN)
    with EmulatedBoard(tmp_path, swallows=swallows) as board:
        done = flatmq("deploy", "pico_w", "--port", board.address, "--sketch", sketch)
        assert done.exit_code == 1
        assert text in done.output
        assert "the board restarts" not in done.output
        if not swallows:
            assert _on(board, "import os; print(os.listdir('/'))") == ["[]"]


# flash by a boot drive


def _uf2(*families: int) -> bytes:
    """A UF2 file with a page for each family."""
    pico = boards.load("pico")
    return b"".join(downloads.uf2(pico, b"\xa5" * 256, family) for family in families)


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return plugged_in.drive(monkeypatch, tmp_path)


def test_flash_asks_a_running_board_for_its_boot_drive(
    tmp_path: Path, drive: Path, plugged: Callable[..., None]
) -> None:
    file = tmp_path / "image.uf2"
    file.write_bytes(_uf2(*[RP2040] * 200))
    hidden = drive.rename(tmp_path / "hidden")
    with EmulatedBoard(tmp_path, show_drive=lambda: hidden.rename(drive) and None) as board:
        said("flash", "pico_w", file, "--port", board.address)
    assert (drive / "image.uf2").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("board", "name", "data", "words"),
    [
        ("pico_w", "x.uf2", _uf2(RP2350), "rp2350-arm-s (0xe48bff59); the Raspberry Pi Pico W"),
        ("pico_w", "x.uf2", _uf2(RP2040, 0x1234), "unknown (0x1234)"),
        ("pico_w", "x.uf2", _uf2(RP2040)[:-4] + b"gone", "block 0 does not begin and end as one"),
        ("pico_w", "x.uf2", b"\0" * 700, "700 bytes are no multiple of 512"),
        ("pico_w", "RPI_PICO-20260406.uf2", _uf2(RP2040), "for the Raspberry Pi Pico (pico)"),
        ("pico_2_w", "x.uf2", _uf2(RP2350, 0xE48BFF57), "RP2350 not found. Hold BOOTSEL"),
        ("esp32_s3", "x.bin", b"\xe9" + b"\0" * 99, "for esp32; the ESP32-S3"),
        ("esp32_s3", "x.bin", b"\0" * 99, "no firmware for esp32s3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_flash_does_not_take_what_does_not_fit(
    board: str,
    name: str,
    data: bytes,
    words: str,
    tmp_path: Path,
    drive: Path,
    plugged: Callable[..., None],
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    done = flatmq("flash", board, file)
    assert done.exit_code == 1
    assert words in done.output
    assert not (drive / name).exists()


def test_flash_says_when_the_drive_does_not_take_it(
    tmp_path: Path, drive: Path, plugged: Callable[..., None]
) -> None:
    file = tmp_path / "image.uf2"
    file.write_bytes(_uf2(*[RP2040] * 200))
    (drive / "image.uf2").symlink_to("/dev/full")
    done = flatmq("flash", "pico", file)
    assert done.exit_code == 1
    assert "after 0 of 102,400 bytes. Unplug the board" in done.output


# flash by esptool


@pytest.mark.parametrize(("name", "data", "offset"), [
    ("esp32", b"\xe9" + b"\0" * 99, 0x1000),
    ("esp32", b"\xff" * 0x1000 + b"\xe9" + b"\0" * 99, 0),
    ("esp32_c3", b"\xe9" + b"\0" * 11 + b"\5\0" + b"\0" * 99, 0),
    ("esp32_c3", b"\0" * 8 + b"littlefs" + b"\0" * 99, 0x200000),
], ids=["firmware", "a whole flash", "firmware at 0", "a filesystem"])  # fmt: skip
def test_where_it_goes_in_flash(name: str, data: bytes, offset: int, tmp_path: Path) -> None:
    assert flash.esp_offset(boards.load(name), tmp_path / "x.bin", data) == offset
