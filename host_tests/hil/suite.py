"""The steps of `flatmq_rigs board`: what each does on the board, and the rows that it gives."""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from device import on_device
from flatmq_tools import bytecode
from flatmq_tools.remote import Remote, RemoteError

from .desk import Desk

HERE = Path(__file__).parent
DEVICE = HERE.parent / "device"
HOME = "/hil"  # the folder on the board that all goes to; nothing else on it is changed
MOUNTED = "/lib"  # where the image of an emulated ESP32 has modules
REPEATS = 10  # of each operation, with the counter and with the heap locked
SILENCE = 300.0  # seconds that the board may take for a step without a word
SLOW_SILENCE = 1800.0  # the same for an emulated ESP32, where a spool's flash takes seconds
MESSAGES = 100  # at each QoS
JOIN_MS = 60_000  # until a Wi-Fi that does not let the board in is given up
KEEPALIVE = 4  # s, while Wi-Fi is lost: it is noticed after three halves of it
BURST = 60  # messages acknowledged before the reset
SCRIPTED = ("publishing", "receiving", "receiving_in_pieces", "connection")
_ASIDE = "main.py.aside"


@dataclass(frozen=True)
class Where:
    """The network that the board joins and the hosts it reaches; None for what there is not."""

    port: str
    wifi: tuple[str, str] | None = None  # name, password
    broker: tuple[str, int] | None = None  # as the board reaches it
    desk: tuple[str, int] | None = None  # as this machine does
    is_ready: bool = False  # all modules are on the board, where it looks for them


@dataclass(frozen=True)
class Row:
    """A line of the table. `ok` is None where nothing was run."""

    what: str
    figure: str
    ok: bool | None = True

    @property
    def mark(self) -> str:
        return "not run" if self.ok is None else "ok" if self.ok else "FAILED"


class Suite:
    """All steps with one board.

    `rows` has the results, `head` the names of their columns. `say` is called with the progress.
    """

    head = ("on the board", "figure", "")

    def __init__(
        self,
        where: Where,
        say: Callable[[str], None],
        wrote: Callable[[int, int], None] = lambda done, size: None,
    ) -> None:
        self.rows: list[Row] = []
        self.board = "a board"
        self._where = where
        self._say_ = say
        self._wrote = wrote
        self._remote = Remote(where.port, SLOW_SILENCE if where.is_ready else SILENCE)
        self._token = f"hil-{secrets.token_hex(4)}"
        self._network = ""  # why there is none

    @property
    def ok(self) -> bool:
        """True if every row that was run is as required."""
        return all(row.ok is not False for row in self.rows)

    def run(self) -> None:
        """Does everything. Raises RemoteError or DeskError when it cannot even begin."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._remote)
            desk = None
            if self._where.desk:
                desk = stack.enter_context(Desk(*self._where.desk, self._token))
            self._say("interrupting what runs on the board ...")
            self._remote.enter()
            stack.callback(self._leave)
            self._begin()
            self._deploy()
            with self._step("heap taken"):
                self._memory()
            with self._step("bytes per operation"):
                self._proofs(SCRIPTED, "a scripted peer", None)
            self.with_network(desk)

    # The document

    @property
    def name(self) -> str:
        """The name of its section in the document."""
        return "board-esp32" if "ESP32" in self.board else "board"

    def lines(self) -> list[tuple[str, ...]]:
        """The rows of the table."""
        return [(row.what, row.figure.replace("|", "/"), row.mark) for row in self.rows]

    def section(self) -> str:
        """Return the beginning of its section, before the table."""
        bad = sum(row.ok is False for row in self.rows)
        skipped = sum(row.ok is None for row in self.rows)
        title, command = "On a board", "python -m flatmq_rigs board"
        firmware = os.environ.get("EMULATE")
        if firmware:
            title = f"On an emulated {'ESP32' if 'ESP32' in self.board else 'Pico W'}"
            command = f"EMULATE={Path(firmware).name} {command}"
        return (
            f"## {title}\n\n`{command}`, {self.board}: {len(self.rows)} rows, {bad} failed, "
            f"{skipped} not run."
        )

    # Helpers

    def _scrubbed(self, text: str) -> str:
        wifi = self._where.wifi
        return text.replace(wifi[1], "***") if wifi and wifi[1] else text

    def _say(self, text: str) -> None:
        self._say_(self._scrubbed(text))

    def _row(self, what: str, figure: str, ok: bool | None = True) -> None:
        row = Row(self._scrubbed(what), self._scrubbed(figure), ok)
        self.rows.append(row)
        self._say(f"{row.what}: {row.figure}  [{row.mark}]")

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """A step that fails is a row, and does not keep the others from being run."""
        try:
            yield
        except RemoteError as error:
            self._row(what, str(error).splitlines()[-1], False)
            self._say(str(error))
            self._fresh()

    def _fresh(self) -> None:
        """A board that has just been reset, with an empty heap."""
        self._remote.restart()
        self._look_at_home()

    def _look_at_home(self) -> None:
        """Let the board find the modules, after a reset."""
        if not self._where.is_ready:
            self._remote.run(f"import sys; sys.path.insert(0, {HOME!r})")
            return
        # The Ctrl-C of a connection while the board boots may have kept it from finding them.
        while self._remote.run("import sys; print(sys.path[0])") != [MOUNTED]:
            self._say("interrupted while it booted; again ...")
            self._remote.restart()

    def _printed(self, code: str) -> dict[str, list[list[str]]]:
        """Return the lines that begin with @, by their first word; show the others."""
        printed: dict[str, list[list[str]]] = {}

        def hear(line: str) -> None:
            if line.startswith("@"):
                word, *rest = line[1:].split()
                printed.setdefault(word, []).append(rest)
            elif line:
                self._say(f"  {line}")

        self._remote.run(code, hear)
        return printed

    # Steps

    def _begin(self) -> None:
        """A board whose own program does not run meanwhile."""
        self.board = self._remote.check()
        self._say(self.board)
        (radio,) = self._remote.run(
            "try:\n import network, socket\n print(1)\nexcept ImportError:\n print(0)\n"
        )
        if radio == "0":
            self._network = "the board has no network"
        self._remote.run(
            f"import os\nif 'main.py' in os.listdir('/'): os.rename('/main.py', '/{_ASIDE}')\n"
        )
        self._fresh()

    def _leave(self) -> None:
        """The board as it was. A folder that stays would be in nobody's way, and is said."""
        try:
            self._remote.enter()
            self._remote.run(
                "import os\n"
                "def _clear(p):\n"
                " for e in os.ilistdir(p):\n"
                "  q = p + '/' + e[0]\n"
                "  if e[1] & 0x4000: _clear(q)\n"
                "  else: os.remove(q)\n"
                " os.rmdir(p)\n"
                f"if {HOME[1:]!r} in os.listdir('/'): _clear({HOME!r})\n"
                f"if {_ASIDE!r} in os.listdir('/'): os.rename('/{_ASIDE}', '/main.py')\n"
            )
            self._remote.reset()
        except RemoteError as error:
            self._say(
                f"the board could not be left as it was: its main.py is {_ASIDE} now, and "
                f"{HOME} can be removed ({error})"
            )

    def _put(self, files: dict[str, bytes]) -> None:
        """Write the files that differ from those on the board."""
        changed = self._remote.different(files)
        size = sum(map(len, changed.values()))
        self._say(f"deploying {len(changed)} files, {size:,} bytes ...")
        done = 0

        def moved(path: str, n: int) -> None:
            nonlocal done
            done += n
            self._wrote(done, size)

        self._remote.write(changed, moved)

    def _deploy(self) -> None:
        if self._where.is_ready:
            self._remote.run(
                f"import os\nif {HOME[1:]!r} not in os.listdir('/'): os.mkdir({HOME!r})"
            )
            return
        files = compiled()
        self._put(files)
        left = self._remote.different(files)
        client = sum(len(data) for path, data in files.items() if "/flatmq/" in path)
        self._row(".mpy files of the client", f"{client:,} bytes of flash", not left)

    def _memory(self) -> None:
        printed = self._printed("import board_proof as b; b.held()")
        taken = {step: int(n) for step, n in printed["held"]}
        for step, words in (
            ("import", "`from flatmq import Client`"),
            ("made", "`Client(...)`, default sizes"),
            ("subscribed", "the first `subscribe`"),
        ):
            self._row(f"heap taken after {words}", f"{taken[step]:,} bytes", taken[step] > 0)

    def _proofs(self, modules: tuple[str, ...], peer: str, broker: tuple[str, int] | None) -> None:
        count = 0
        bad = []
        for module in modules:
            names = on_device.operations(module)
            printed = self._printed(
                "import board_proof; "
                f"board_proof.prove({module!r}, {names!r}, {REPEATS}, {broker!r})"
            )
            for _, name, asked, kept, refused in printed.get("proof", []):
                count += 1
                if (int(asked), int(kept), refused) != (0, 0, "0"):
                    words = ", heap lock refused" if refused == "1" else ""
                    bad.append(f"{module}.{name}: {kept} bytes in {REPEATS}{words}")
            for _, name, *what in printed.get("failed", []):
                bad.append(f"{module}.{name}: {' '.join(what)}")
            missing = len(names) - len(printed.get("proof", [])) - len(printed.get("failed", []))
            if missing:
                bad.append(f"{module}: {missing} gave no answer")
        figure = "; ".join(bad) if bad else f"0 in {count} operations, {2 * REPEATS} times each"
        self._row(f"bytes per operation, {peer}", figure, not bad)

    def with_network(self, desk: Desk | None) -> None:
        """The steps that need one; rows that say why they were not run where there is none."""
        steps: list[tuple[str, Callable[[Desk], None]]] = [
            ("bytes per operation, a broker", self._socket_proofs),
            *(
                (f"out and back at QoS {qos}", lambda desk, qos=qos: self._exchange(desk, qos))
                for qos in (0, 1, 2)
            ),
            ("Wi-Fi lost and regained", self._lose_wifi),
            ("reset in a burst at QoS 1", self._reset_in_burst),
            ("reset in a burst through the spool", self._reset_spooled),
        ]
        if desk is None or self._where.broker is None:
            self._network = "BOARD_BROKER is not set"
        elif not self._network:
            with self._step("joining the network"):
                self._network = "the board did not get to the broker"
                self._fresh()
                self._join(is_row=True)
                host, port = self._where.broker
                self._printed(f"import board_network as b; b.reach({host!r}, {port})")
                self._network = ""
        for what, step in steps:
            if self._network:
                self._row(what, self._network, None)
            elif what.startswith("Wi-Fi") and not self._where.wifi:
                self._row(what, "BOARD_WIFI is not set", None)
            elif desk:
                with self._step(what):
                    self._join()  # again, where there was a reset
                    step(desk)

    def _join(self, *, is_row: bool = False) -> None:
        wifi = self._where.wifi
        if wifi is None:
            return
        printed = self._printed(
            f"import board_network as b; b.join({wifi[0]!r}, {wifi[1]!r}, {JOIN_MS})"
        )
        if is_row:
            self._row("Wi-Fi joined after", f"{int(printed['joined'][0][0]):,} ms")

    @property
    def _there(self) -> str:
        """The arguments of everything that talks to the broker."""
        assert self._where.broker is not None
        host, port = self._where.broker
        return f"{host!r}, {port}, {self._token.encode()!r}"

    def _socket_proofs(self, desk: Desk) -> None:
        self._proofs(("sockets",), "a broker", self._where.broker)

    def _exchange(self, desk: Desk, qos: int) -> None:
        printed = self._printed(
            f"import board_network as b; b.exchange({self._there}, {qos}, {MESSAGES})"
        )
        _, back, wrong, ms = map(int, printed["exchanged"][0])
        topic = f"exchange{qos}"
        lost = len(desk.missing(topic, MESSAGES))
        repeated = desk.repeated(topic)
        self._row(
            f"out and back at QoS {qos}",
            f"{MESSAGES} sent, {lost} lost, {repeated} repeated, {back} back, "
            f"{wrong} out of order, {ms:,} ms",
            (lost, wrong, back) == (0, 0, MESSAGES) and (qos == 1 or not repeated),
        )

    def _lose_wifi(self, desk: Desk) -> None:
        assert self._where.wifi is not None
        ssid, password = self._where.wifi
        printed = self._printed(
            "import board_network as b; "
            f"b.lose_wifi({self._there}, {ssid!r}, {password!r}, {KEEPALIVE})"
        )
        lost = desk.missing("wifi", 10)
        self._row("loss of Wi-Fi noticed after", f"{int(printed['noticed'][0][0]):,} ms")
        ms, back, wrong = map(int, printed["recovered"][0])
        self._row(
            "Wi-Fi regained: everything sent after",
            f"{ms:,} ms, {len(lost)} of 10 lost",
            not lost and back == 10 and not wrong,
        )

    def _reset_in_burst(self, desk: Desk) -> None:
        acknowledged, accepted = self._burst("burst", BURST)
        lost = desk.missing("burst", acknowledged)
        self._row(
            "reset in a burst at QoS 1",
            f"{acknowledged} acknowledged, {len(lost)} of them lost, "
            f"{accepted - acknowledged} more were on their way",
            not lost and accepted > acknowledged >= BURST,
        )

    def _reset_spooled(self, desk: Desk) -> None:
        acknowledged, accepted = self._burst("spooled_burst", BURST)
        self._join()
        printed = self._printed(f"import board_network as b; b.drain({self._there})")
        left = int(printed["drained"][0][0])
        lost = desk.missing("spooled", accepted)
        self._row(
            "reset in a burst through the spool",
            f"{accepted} accepted, {len(lost)} of them lost, {left} sent after the reset",
            not lost and left >= accepted - acknowledged > 0,
        )

    def _burst(self, function: str, messages: int) -> tuple[int, int]:
        """Run a function that ends in a reset.

        Returns how many messages were acknowledged, and accepted, before it.
        """
        self._remote.run_until_reset(
            f"import board_network as b; b.{function}({self._there}, {messages})",
            lambda line: None if line.startswith("@") else self._say(line),
        )
        self._look_at_home()
        printed = self._printed("import board_network as b; b.state()")
        acknowledged, accepted = map(int, printed["state"][0])
        return acknowledged, accepted


def compiled() -> dict[str, bytes]:
    """Return what goes to the board: path there, and .mpy."""
    with tempfile.TemporaryDirectory(prefix="flatmq-hil-") as name:
        folder = bytecode.compiled(Path(name))
        helpers = [
            DEVICE / f"{stem}.py" for stem in ("proof", "packets", "scripted_link", "reader")
        ]
        modules = [DEVICE / "operations" / f"{stem}.py" for stem in (*SCRIPTED, "sockets")]
        for source in [*helpers, *modules, *(HERE / "device").glob("*.py")]:
            bytecode.compile_module(source, folder / f"{source.stem}.mpy", source.name)
        return {
            f"{HOME}/{path.relative_to(folder)}": path.read_bytes()
            for path in sorted(folder.rglob("*.mpy"))
        }
