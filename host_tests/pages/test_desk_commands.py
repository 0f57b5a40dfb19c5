"""The commands of the pages run, with something real for what their values name.

Those of `flatmq pipeline` are in `pipeline/test_page_commands.py`. `COVERED` names the tests that
stand for some others.
"""

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sizes
import typed_command
from conftest import ROOT, ran
from flatmq import Client
from flatmq_tools import boards, ports, settings
from flatmq_tools.broker import LOOPBACK, find_mosquitto
from flatmq_tools.ota import keys, package
from hil import emulated_board, plugged
from hil.emulated_board import EmulatedBoard
from images import downloads
from observer import retain
from pages.commands import everything
from tls.secure_broker import SecureBroker

PACK = [{"bn": "pico/", "n": "boot", "v": 7}, {"n": "seq", "v": 1}, {"n": "temp", "v": 21.5}]
SIZE = 0x40000  # bytes of a made-up firmware
_MODULE = """
import os
for folder in ("/lib", "/lib/flatmq"):
    try:
        os.mkdir(folder)
    except OSError:
        pass
open("/lib/flatmq/module.py", "w").close()
"""
PLAIN = {"192.168.1.10", "127.0.0.1", "localhost:1883", "broker.local:1883"}
SECURE = "broker.example"

# These are not typed here, as they take minutes, a board or a download. The test that is named
# does what they do, by other words.
COVERED = {
    "make pipeline": ("pipeline/test_pipeline_demo.py",
        "test_everything_that_boards_send_is_in_the_tables"),
    "make release": ("test_release.py", "test_another_checkout_gives_the_same_bytes"),
    "python -m flatmq_rigs board": ("hil/test_hil.py", "test_everything"),
    "flatmq emulate pico_w --firmware RPI_PICO_W.uf2": ("emulate/test_emulate.py",
        "test_the_exit_status"),
    "flatmq emulate esp32 --firmware ESP32_GENERIC.bin --qemu qemu/build/qemu-system-xtensa": (
        "emulate/test_qemu.py", "test_a_qemu_without_a_radio"),
    "mpremote mip install build/mip/package.json": ("test_package.py",
        "test_mpremote_installs_a_part_of_a_release"),
    "mpremote mip install build/release/mpy6/package.json": ("test_package.py",
        "test_mpremote_installs_a_part_of_a_release"),
    "flatmq ota prompt 192.168.1.10 pico-1 --signing-key fleet.key": ("ota/test_prompt.py",
        "test_lines_run_on_the_board"),
    "python -m flatmq_rigs scale build/demo": ("pipeline/test_pipeline_rigs.py",
        "test_ingests_share_and_nothing_is_lost"),
}  # fmt: skip
COMMANDS = {
    words: page
    for words, page in everything().items()
    if words[:2] != ("flatmq", "pipeline") and words[0] != "spark-submit"
}
# The pipeline needs a later Python.
LATER = () if sys.version_info >= (3, 11) else ("pipeline]",)
HERE_RUN = [
    words for words in COMMANDS if " ".join(words) not in COVERED and not words[-1].endswith(LATER)
]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecureBroker]:
    """A broker with a pack, and listeners with TLS."""
    secure = SecureBroker()
    retain(secure.broker.host, secure.broker.port, "dev/pico/telemetry", json.dumps(PACK))
    yield secure
    secure.stop()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedBoard]:
    with pytest.MonkeyPatch.context() as larger:  # it is given the sketches of several boards
        larger.setattr(emulated_board, "BLOCKS", 2 * emulated_board.BLOCKS)
        with EmulatedBoard(tmp_path_factory.mktemp("board")) as running:
            yield running


@pytest.fixture
def silent() -> Iterator[str]:
    """A port at which nothing answers."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield f"socket://{LOOPBACK}:{server.getsockname()[1]}"


class Desk:
    """A folder in which somebody types the commands, with the files that they name."""

    def __init__(self, folder: Path, broker: SecureBroker, board: EmulatedBoard) -> None:
        self.folder = folder
        self.broker = broker
        self.board = board

    def word(self, word: str, words: tuple[str, ...]) -> str:
        if word in PLAIN:
            return self.broker.broker.address
        if word == SECURE:
            return f"localhost:{self.broker.ports['mutual' if '--cert' in words else 'broker']}"
        return word.replace("BASE64", self.broker.pins["broker"])

    def until(self, *words: str, ready: Callable[[str], None], text: str) -> None:
        """Run a command until it has printed `text`, and end it with Ctrl-C.

        `ready` is called with each line that it prints.
        """
        command = [sys.executable, "-m", "flatmq_tools.cli", *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
        with typed_command.running(command, self.folder, environment) as process:
            typed_command.until(text, process, each=ready)
            typed_command.interrupt(process)


@pytest.fixture
def desk(
    tmp_path: Path,
    broker: SecureBroker,
    board: EmulatedBoard,
    silent: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    """A desk with a Pico W and an ESP32 connected, and a Pico that shows its boot drive."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "OWN", "absent.json")
    plugged.ports(monkeypatch, (board.address, 0x2E8A, 5), (silent, 0x303A, 0x4001))
    plugged.drive(monkeypatch, tmp_path)
    config = tmp_path / "esptool.cfg"
    config.write_text("[esptool]\nconnect_attempts = 1\n")
    monkeypatch.setenv("ESPTOOL_CFGFILE", str(config))
    monkeypatch.setenv("SSL_CERT_FILE", broker.path("ca.pem"))
    return Desk(tmp_path, broker, board)


def _files(words: tuple[str, ...], broker: SecureBroker) -> None:
    """Make the files and folders that a command reads, and that a download would be."""
    reads = dict(itertools.pairwise(words))
    for kind, mine in (("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key.pem")):
        names = re.findall(rf"broker\.tls\.{kind}=(\S+)", " ".join(words))
        for name in filter(None, [reads.get(f"--{kind}"), *names]):
            Path(name).write_bytes(Path(broker.path(mine)).read_bytes())
    for name in words:
        if words[:3] == ("flatmq", "ota", "pack") and name.endswith(".bin"):
            Path(name).write_bytes(downloads.application(boards.load(words[3]), 40_000))
        elif name.endswith((".uf2", ".bin")):
            known = boards.load(words[2])
            file = Path(name)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(
                downloads.uf2(known, downloads.program(known, SIZE))
                if name.endswith(".uf2")
                else downloads.esp32(known, SIZE)
            )
    if "--ota-key" in words or "--signing-key" in words:
        keys.generate(Path(reads.get("--signing-key", "fleet.key")))
    if "--sketch" in words:
        Path(reads["--sketch"]).mkdir()
        Path(reads["--sketch"], "main.py").write_text("print('mine')\n")


# What runs a command, by the words that it begins with

Runner = Callable[[Desk, tuple[str, ...]], None]
RUNNERS: dict[tuple[str, ...], Runner] = {}


def runs(*words: str) -> Callable[[Runner], Runner]:
    """Note that a function runs the commands that begin with these words."""

    def note(runner: Runner) -> Runner:
        RUNNERS[words] = runner
        return runner

    return note


@runs("pip", "install")
def _pip(desk: Desk, words: tuple[str, ...]) -> None:
    """Up to the point where pip would change what the tests run in."""
    if words[2].startswith("build/release/"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", desk.folder]
        subprocess.run(command, cwd=ROOT, check=True)
        (wheel,) = desk.folder.glob(Path(words[2]).name)
        words = (*words[:2], str(wheel))
    command = [sys.executable, "-m", *words, "--dry-run", "--no-build-isolation"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stderr, done.stderr


@runs("flatmq", "boards")
def _boards(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk.board.address in typed_command.said(*words[1:])


@runs("flatmq", "image")
def _image(desk: Desk, words: tuple[str, ...]) -> None:
    typed_command.said(*words[1:])
    assert sum(file.stat().st_size for file in (desk.folder / "build").iterdir()) > SIZE


@runs("flatmq", "ota")
def _ota(desk: Desk, words: tuple[str, ...]) -> None:
    """With a board that has taken the version before."""
    if words[2] == "push":
        made = package.make("pico_w", None, "2")
        Path(words[5]).write_bytes(made.written())
        said = json.dumps({"counter": made.counter, "state": "good"})
        near = desk.broker.broker
        retain(near.host, near.port, "dev/pico-1/ota/status", said)
        assert "pico-1 runs 2" in typed_command.said(*words[1:])
    else:
        typed_command.said(*words[1:])
        assert Path(words[3] if words[2] == "keygen" else words[4]).stat().st_size


@runs("flatmq", "flash")
def _flash(desk: Desk, words: tuple[str, ...]) -> None:
    file = desk.folder / words[3]
    if file.suffix == ".uf2":
        typed_command.said(*words[1:])
        copied = desk.folder / "drives" / "RPI-RP2" / file.name
        assert copied.read_bytes() == file.read_bytes()
    else:
        done = typed_command.flatmq(*words[1:])  # at the port nothing answers esptool
        assert "esptool could not flash it. Hold BOOT" in done.output


@runs("flatmq", "deploy")
def _deploy(desk: Desk, words: tuple[str, ...]) -> None:
    port = [] if words[2] == "pico_w" else ["--port", desk.board.address]
    assert "written" in typed_command.said(*words[1:], *port)


@runs("flatmq", "logs")
def _logs(desk: Desk, words: tuple[str, ...]) -> None:
    if "--broker" in words:
        assert "Ctrl-C ends it" in typed_command.said(*words[1:], "--seconds", "0")
        return
    with typed_command.serial_line() as (end, port):

        def ready(line: str) -> None:
            if "Ctrl-C ends it" in line:
                os.write(end, b"hello\r\n")

        desk.until(*words[1:], "--port", port, ready=ready, text="hello")


@runs("flatmq", "bridge")
def _bridge(desk: Desk, words: tuple[str, ...]) -> None:
    with typed_command.serial_line() as (end, port):
        greeting = threading.Thread(target=lambda: os.read(end, 1) and os.write(end, b"hello\r\n"))
        greeting.start()  # once the bridge has opened the line
        given = [port if word == "/dev/ttyACM0" else word for word in words[1:]]
        desk.until(*given, ready=lambda _line: None, text="board | hello")
        greeting.join()


@runs("flatmq", "watch")
def _watch(desk: Desk, words: tuple[str, ...]) -> None:
    assert "temp 21.5" in typed_command.said(*words[1:], "--packs", "1")


@runs("flatmq", "crashes")
def _crashes(desk: Desk, words: tuple[str, ...]) -> None:
    assert "no crash of" in typed_command.said(*words[1:])


@runs("flatmq", "time")
def _time(desk: Desk, words: tuple[str, ...]) -> None:
    assert typed_command.said(*words[1:], "--seconds", "0") == ""


@runs("flatmq", "fleet")
def _fleet(desk: Desk, words: tuple[str, ...]) -> None:
    typed_command.said(*words[1:], "--devices", "3", "--seconds", "1", "--rate", "2")


@runs("flatmq", "tls")
def _tls(desk: Desk, words: tuple[str, ...]) -> None:
    typed_command.said(*words[1:])
    assert "BEGIN CERTIFICATE" in (desk.folder / "ca.pem").read_text()


@runs("make")
def _make(desk: Desk, words: tuple[str, ...]) -> None:
    """Run a target with what is installed here."""
    target, given = words[1], [_in(desk.folder, word) for word in words[2:]]
    # What a stamp stands for is installed, or this test would not run.
    makefile = (ROOT / "Makefile").read_text("utf-8")
    stamps = {f"-o.venv/{name}" for name in re.findall(r"\$\(VENV\)/(\w+\.stamp)", makefile)}
    assert len(stamps) > 3
    done = ran(["make", *sorted(stamps), target, *given, "READINGS=3"], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def _in(folder: Path, word: str) -> str:
    """Return an assignment to a variable of make, with a file of `folder` if it names a file."""
    name, _, value = word.partition("=")
    return f"{name}={folder / value}" if name == "FIRMWARE" else word


@runs("mosquitto")
def _mosquitto(desk: Desk, words: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    (conf,) = re.findall(r"```\n(listener .*?)```", text, re.DOTALL)
    held = ports.HeldPort()
    assert "listener 1883\n" in conf
    (desk.folder / words[2]).write_text(
        conf.replace("listener 1883", f"listener {held.number} {LOOPBACK}")
    )
    program = find_mosquitto()
    assert program
    with subprocess.Popen([program, *words[1:]], stderr=subprocess.DEVNULL) as process:
        try:
            client = Client(b"tutorial", LOOPBACK, held.number)
            client.start()
            while not client.connected:
                assert process.poll() is None
                client.poll(20)
            client.disconnect()
        finally:
            process.kill()
            held.release()


@runs("mpremote", "rm")
def _mpremote(desk: Desk, words: tuple[str, ...]) -> None:
    connect = [sys.executable, "-m", "mpremote", "connect", desk.board.address]
    subprocess.run([*connect, "exec", _MODULE], check=True)  # what is to be removed
    done = subprocess.run([*connect, *words[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@runs("mpremote", "cp")
def _copy(desk: Desk, words: tuple[str, ...]) -> None:
    connect = [sys.executable, "-m", "mpremote", "connect", desk.board.address]
    subprocess.run([*connect, *words[1:]], cwd=ROOT, check=True)
    copied = subprocess.run([*connect, "cat", words[-1]], capture_output=True, check=True).stdout
    assert copied.splitlines() == (ROOT / words[2]).read_bytes().splitlines()
    subprocess.run([*connect, "rm", words[-1]], check=True)  # else it runs in the other tests


def _kind(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kind of command of which a sample has one: itself, if it runs in this process."""
    ended = words[0] == "flatmq" and (words[1] not in ("logs", "bridge") or "--broker" in words)
    return words if ended else words[:2]


@pytest.mark.parametrize(
    "words",
    sizes.one_each(HERE_RUN, _kind),
    ids=lambda words: f"{COMMANDS[words]} {' '.join(words)}",
)
def test_it_runs(words: tuple[str, ...], desk: Desk) -> None:
    runner = RUNNERS.get(words[:1]) or RUNNERS.get(words[:2])
    assert runner, "nothing runs this command"
    words = tuple(desk.word(word, words) for word in words)
    if words[:2] == ("make", "firmware"):
        file = desk.folder / "RPI_PICO_W.uf2"
        pico = boards.load("pico_w")
        file.write_bytes(downloads.uf2(pico, downloads.program(pico, SIZE)))
    elif words[0] == "flatmq":
        _files(words, desk.broker)
    runner(desk, words)


def test_the_pages_have_commands() -> None:
    assert len(HERE_RUN) > 30


@pytest.mark.parametrize("command", COVERED)
def test_another_test_does_what_it_does(command: str) -> None:
    assert command in {" ".join(words) for words in COMMANDS}
    name, test = COVERED[command]
    assert f"def {test}(" in (ROOT / "host_tests" / name).read_text("utf-8")
