"""The desk of an update: keys, versions of a sketch, and a board that is a folder."""

import io
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from conftest import interpreter_command, ran
from flatmq_tools import broker, contents, desk_client, interpreter
from flatmq_tools.ota import package, push

HERE = Path(__file__).parent
SKETCH = (HERE / "sketch.py").read_text("utf-8")
KIND = "pico_w"
# Modules that these sketches never load: with them, each update would take twice as long.
UNUSED = tuple(
    f"/lib/flatmq/{name}"
    for name in ("aio", "ha", "journal", "senml", "spool", "store", "stream_tls", "stream_uart",
                 "stream_web", "v5/")
)  # fmt: skip
_LIVES = 12
_DEADLINE = 100.0  # s of a life, and of a push


class Pushed(NamedTuple):
    """A push that runs, or has run."""

    future: Future[int]
    text: io.StringIO

    def ended(self) -> tuple[int, str]:
        """Wait for it; return its status and what it said."""
        return self.future.result(_DEADLINE), self.text.getvalue()


class Desk:
    """Keys, a broker, and the board pico-1 with version 1."""

    def __init__(self, folder: Path, near: broker.Broker, key: Path) -> None:
        self.folder = folder
        self.board = folder / "board"
        self.near = near
        self.key = key
        self._made = 0
        self._over = threading.Event()
        self._pushes = ThreadPoolExecutor()

    def text(self, name: str, fault: str, minutes: float) -> str:
        """Return the main.py of a version of the sketch."""
        given = {"FOLDER": str(self.board), "PORT": self.near.port, "VERSION": name,
                 "FAULT": fault, "MINUTES": minutes}  # fmt: skip
        head, mark, rest = SKETCH.partition('FAULT = ""\nMINUTES = 1\n')
        assert mark
        lines = "".join(f"{key} = {value!r}\n" for key, value in given.items())
        return head + lines + rest

    def version(self, name: str, fault: str = "", minutes: float = 1) -> dict[str, bytes]:
        """Return the files of a version of the sketch."""
        sketch = self.folder / f"sketch-{name}-{fault}"
        sketch.mkdir(exist_ok=True)
        (sketch / "main.py").write_text(self.text(name, fault, minutes), "utf-8")
        files = contents.contents(sketch, {})
        return {path: data for path, data in files.items() if not path.startswith(UNUSED)}

    def install(self) -> None:
        slots = package.Slots(self.key.with_name(f"{self.key.name}.pub"))
        for path, data in package.slotted(self.version("1"), KIND, slots).items():
            file = self.board / path.removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        (self.board / "goal").write_text("")

    def package(self, name: str = "2", fault: str = "", minutes: float = 1) -> Path:
        """Pack a version; each is newer than all before it."""
        self._made += 1
        archive = package.archive(package.modules(self.version(name, fault, minutes)))
        counter = 2_000_000_000 + self._made
        file = self.folder / f"{self._made}.package"
        file.write_bytes(package.Package(KIND, name, counter, archive=archive).written())
        return file

    def push(self, file: Path, target: str = "pico-1", key: Path | None = None) -> Pushed:
        """Begin to push a package."""
        text = io.StringIO()
        future = self._pushes.submit(
            push.main, desk_client.Desk(self.near), target, file, key or self.key, _DEADLINE,
            Console(file=text, width=200), self._over.is_set,
        )  # fmt: skip
        return Pushed(future, text)

    def stop(self) -> None:
        self._over.set()
        self._pushes.shutdown()

    def life(self, pieces: int = 0) -> str:
        """Have the board run until it is reset or its sketch ends; return what it printed."""
        done = ran(self.command(pieces), cwd=self.board, timeout=_DEADLINE)
        assert done.returncode == 0, interpreter.last_words(done)
        return done.stdout

    def command(self, pieces: int = 0) -> list[str | Path]:
        """Return the command that runs the board; after so many pieces it is reset by chance."""
        run = interpreter_command("micropython", "400k")
        return [*run, HERE / "board_process.py", self.board, str(pieces)]

    def lives(self, goal: str) -> list[str]:
        """Have it run until that version has said all that there is to say.

        Return the versions that ran, one for each life.
        """
        (self.board / "goal").write_text(goal)
        ran = []
        for _ in range(_LIVES):
            text = self.life()
            ran.append(text.partition("@runs ")[2].partition("\n")[0])
            if "@ended" in text:
                return ran
        raise AssertionError(f"it does not end: {ran}")
