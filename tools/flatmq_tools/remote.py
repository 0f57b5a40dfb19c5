"""A board on a line: what mpremote does with it, with the patience that slow boards need.

An address is anything that mpremote connects to: /dev/ttyACM0, COM3, socket://127.0.0.1:4321,
rfc2217://host:2217.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from mpremote.transport import TransportError, TransportExecError
from mpremote.transport_serial import SerialTransport

from .errors import ToolError

PATIENCE = 60.0  # seconds that a board may be silent, where nothing else is said
RETURN = 120.0  # seconds that a board may need from its reset to its REPL
_FIRST_TRY = 3.0  # seconds for the REPL to answer; doubles with each try
_PAUSE = 0.5  # seconds between two tries
OLDEST = (1, 26)  # MicroPython
_CHUNK = 2048  # bytes of a file that go with one command

# One round trip for all files: what is there, and how much room.
_LOOK = """
import os, hashlib
def _look(path):
    h = hashlib.sha256()
    b = bytearray(512)
    m = memoryview(b)
    with open(path, "rb") as f:
        while True:
            n = f.readinto(b)
            if not n:
                return h.digest()
            h.update(m[:n])
for _p in {paths!r}:
    try:
        print(repr((_p, os.stat(_p)[6], _look(_p))))
    except OSError:
        pass
_p = os.statvfs("/")
print(repr(("", _p[0] * _p[3], b"")))
"""
_FOLDERS = """
import os
for _p in {paths!r}:
    try:
        os.mkdir(_p)
    except OSError:
        os.stat(_p)
"""
_REMOVE = """
import os
for _p in {paths!r}:
    try:
        os.remove(_p)
        print(_p)
    except OSError:
        pass
"""
_WHAT = """
import sys
i = sys.implementation
print((getattr(i, "_machine", sys.platform),) + tuple(i[1][:2]))
"""
# Ctrl-C is turned off: that of the next connection would come before the reset on a slow board.
_RESET = """
import machine, micropython, time
micropython.kbd_intr(-1)
print("@reset")
time.sleep_ms(50)
machine.reset()
"""
_MARK = "import sys; sys.modules['@before the reset'] = sys"
_IS_MARKED = "import sys; print('@before the reset' in sys.modules)"
_RESETS = 3  # tries
_SILENT = 1.0  # seconds after "@reset" in which code that goes on would have ended


class RemoteError(ToolError):
    """The board cannot be reached, or what it was asked to do failed."""


class _NoResetError(RemoteError):
    """The code that was to reset the board ended, and the board still runs."""


class _Transport(SerialTransport):
    """mpremote's, which waits longer: emulators and first imports take their time."""

    def __init__(self, address: str, patience: float) -> None:
        self._patience = patience
        super().__init__(address, timeout=patience)
        line = getattr(self.serial, "_socket", None)  # pyserial has no other way
        if isinstance(line, socket.socket):  # a command is several writes: 40 ms each otherwise
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read_until(
        self, min_num_bytes, ending, timeout=None, data_consumer=None, timeout_overall=None
    ):
        timeout = timeout or self._patience
        return super().read_until(min_num_bytes, ending, timeout, data_consumer, timeout_overall)

    def exec_raw(self, command, timeout=None, data_consumer=None):
        return super().exec_raw(command, timeout or self._patience, data_consumer)

    def skip_answers(self, patience: float) -> None:
        """Read past the answers to all that was sent before, however late they come.

        Raises TransportError if the board does not answer in `patience` seconds.
        """
        mark = secrets.token_hex(4)
        self.serial.write(f"print('{mark}')\x04".encode())
        end = f"{mark}\r\n\x04\x04".encode()
        if not self.read_until(1, end, timeout_overall=patience).endswith(end):
            raise TransportError("could not enter raw repl")


class Remote:
    """A board whose REPL is at `address`; use it as a context manager.

    It may be silent for `patience` seconds while it does something. RemoteError says what
    failed.
    """

    def __init__(self, address: str, patience: float = PATIENCE) -> None:
        self.address = address
        self._patience = patience
        self._transport: _Transport | None = None
        self._was_open = False

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the board to itself."""
        transport, self._transport = self._transport, None
        if transport is not None:
            with contextlib.suppress(OSError):
                if transport.in_raw_repl:
                    transport.exit_raw_repl()
                transport.close()

    def enter(self, *, soft_reset: bool = False, patience: float = RETURN) -> None:
        """Interrupt the running program and enter the REPL, trying for `patience` seconds.

        After a reset a board is not there, or does not listen, for a while. A port that
        could never be opened is not tried again.

        soft_reset: its heap starts empty, and main.py does not run.
        """
        deadline = time.monotonic() + patience
        wait = min(_FIRST_TRY, patience)
        again = False
        while True:
            try:
                # mpremote prints what it got instead of an answer.
                with contextlib.redirect_stdout(io.StringIO()):
                    if self._transport is None:
                        self._transport = _Transport(self.address, self._patience)
                        self._was_open = True
                    self._transport.enter_raw_repl(soft_reset, timeout_overall=wait)
                    if again:  # this may have been the answer to an earlier try
                        self._transport.skip_answers(wait)
                    return
            except Exception as error:  # pyserial lets much through when a device goes
                if time.monotonic() >= deadline or not self._was_open:
                    reached = self._transport is not None
                    self.close()
                    raise RemoteError(
                        f"{self.address}: the board's REPL does not answer. Is MicroPython on it, "
                        "and is no other program using the port? If its program cannot be "
                        "interrupted, flash it again."
                        if reached
                        else f"{self.address}: cannot be opened ({error}). Is the board plugged "
                        "in, and is no other program using the port?"
                    ) from error
                if not isinstance(error, (TransportError, ValueError)):
                    self.close()
            wait = min(2 * wait, max(_FIRST_TRY, deadline - time.monotonic()))
            again = True
            time.sleep(min(_PAUSE, patience))

    def run(self, code: str, hear: Callable[[str], None] | None = None) -> list[str]:
        """Run code on the board and return the lines that it prints; `hear` gets each at once.

        Raises RemoteError with the traceback when it raises.
        """
        transport = self._listening()
        lines: list[str] = []
        line = bytearray()

        def consume(data: bytes) -> None:
            for byte in data:
                if byte in (10, 4):  # the end of a line, and of all
                    if line or byte == 10:
                        lines.append(line.decode(errors="replace").rstrip("\r"))
                        if hear is not None:
                            hear(lines[-1])
                    line.clear()
                else:
                    line.append(byte)

        try:
            transport.exec(code, data_consumer=consume)
        except TransportExecError as error:
            raise RemoteError(f"on the board: {error.error_output.strip()}") from error
        except (OSError, TransportError, ValueError) as error:
            self.close()
            raise RemoteError(f"{self.address}: the board fell silent ({error})") from error
        return lines

    def check(self) -> str:
        """Describe the board and its MicroPython.

        Raises RemoteError if that is too old for .mpy files, or for the client.
        """
        (line,) = self.run(_WHAT)
        what, *version = ast.literal_eval(line)
        told = ".".join(map(str, version))
        if tuple(version) < OLDEST:
            raise RemoteError(
                f"MicroPython {told} is on the board; {'.'.join(map(str, OLDEST))} or later is "
                "needed: `flatmq flash` puts it there"
            )
        return f"{what}, MicroPython {told}"

    def reset(self) -> None:
        """Reset the board as its button does, and leave it to its main.py.

        Raises RemoteError if it is not reset.
        """
        for _ in range(_RESETS):
            try:
                self._run_to_reset(_RESET)
                return
            except _NoResetError:
                self.enter()
        self._refuse_reset()

    def restart(self) -> None:
        """Reset the board and enter its REPL.

        Raises RemoteError if what was in its memory is still there afterwards.
        """
        if self._transport is None or not self._transport.in_raw_repl:
            self.enter()
        for _ in range(_RESETS):
            self.run(_MARK)
            with contextlib.suppress(_NoResetError):
                self._run_to_reset(_RESET)
            self.enter()
            if not self._is_marked():
                return
        self._refuse_reset()

    def _refuse_reset(self) -> NoReturn:
        raise RemoteError(
            f"{self.address}: the board was not reset in {_RESETS} tries. Press its reset button, "
            "or unplug it, and try again."
        )

    def _is_marked(self) -> bool:
        """Return whether the memory is the one in which _MARK was run."""
        return self.run(_IS_MARKED) == ["True"]

    def leave_for(self, code: str) -> None:
        """Start code that has no end, and leave the board to it."""
        transport = self._listening()
        try:
            transport.exec_raw_no_follow(code)
            time.sleep(0.3)  # the code sleeps for a third of it, so that this gets out
        except (OSError, TransportError) as error:
            raise RemoteError(f"{self.address}: the board fell silent ({error})") from error
        finally:
            transport.in_raw_repl = False
            self.close()

    def run_until_reset(self, code: str, hear: Callable[[str], None] | None = None) -> None:
        """Run code that prints "@reset" and resets the board, and enter the REPL again.

        `hear` gets each line before that. Raises RemoteError if there was no reset.
        """
        self.run(_MARK)
        self._run_to_reset(code, hear)
        self.enter()
        if self._is_marked():
            raise RemoteError(f"{self.address}: the board was not reset")

    def _run_to_reset(self, code: str, hear: Callable[[str], None] | None = None) -> None:
        """Run code that prints "@reset" and resets the board. _NoResetError if it ended otherwise.

        After "@reset" the connection goes away, or the first byte decides: in the raw REPL code
        ends with Ctrl-D, and a board that boots begins with something else, or is silent."""
        transport = self._listening()
        line = bytearray()
        is_due = False
        try:
            transport.exec_raw_no_follow(code)
            end = time.monotonic() + self._patience
            while time.monotonic() < end:
                if not transport.serial.inWaiting():
                    time.sleep(0.01)
                    continue
                byte = transport.serial.read(1)[0]
                if byte == 4:
                    raise _NoResetError(f"the code ended without a reset: {self._rest(line)}")
                if is_due:
                    return
                end = time.monotonic() + self._patience
                line.append(byte)
                if byte == 10:
                    text = line.decode(errors="replace").strip()
                    line.clear()
                    if text.startswith("@reset"):
                        is_due = True
                        end = time.monotonic() + _SILENT
                    elif hear is not None:
                        hear(text)
            if not is_due:
                raise RemoteError(f"{self.address}: the board fell silent")
        except OSError:
            return  # a board whose USB is its own goes with it
        except TransportError as error:
            raise RemoteError(f"{self.address}: {error}") from error
        finally:
            transport.in_raw_repl = False
            self.close()

    def _rest(self, line: bytearray) -> str:
        """The last line of what code that has ended printed, or of its traceback."""
        assert self._transport is not None
        more = self._transport.read_until(1, b"\x04", timeout=1)
        lines = (bytes(line) + more).decode(errors="replace").replace("\x04", "").split("\n")
        return next((each.strip() for each in reversed(lines) if each.strip()), "it did nothing")

    def different(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Those of the files (path on the board: what is to be in it) that the board has not.

        Raises RemoteError when there is not the room for them.
        """
        there: dict[str, tuple[int, bytes]] = {}
        for line in self.run(_LOOK.format(paths=list(files))):
            path, size, digest = ast.literal_eval(line)
            there[path] = (size, digest)
        room = there.pop("")[0]
        changed = {
            path: data
            for path, data in files.items()
            if there.get(path, (0, b""))[1] != hashlib.sha256(data).digest()
        }
        needed = sum(len(data) for data in changed.values())
        room += sum(there[path][0] for path in changed if path in there)
        if needed > room:
            raise RemoteError(
                f"the board has {room:,} bytes of room, {needed:,} are needed: remove files "
                "(`mpremote rm`), or flash it again"
            )
        return changed

    def has(self, path: str) -> bool:
        """Return whether there is a file at that path on the board."""
        code = "import os\ntry:\n os.stat({!r})\n print(1)\nexcept OSError:\n print(0)"
        return self.run(code.format(path)) == ["1"]

    def remove(self, paths: Iterable[str]) -> list[str]:
        """Remove those of the files that are there, and return them."""
        return self.run(_REMOVE.format(paths=list(paths)))

    def write(
        self, files: Mapping[str, bytes], progress: Callable[[str, int], None] | None = None
    ) -> None:
        """Write files, and make the folders that they need.

        `progress` is called with the path and the number of bytes written since the last
        call.
        """
        folders = _folders(files)
        if folders:
            self.run(_FOLDERS.format(paths=folders))
        transport = self._listening()
        for path, data in files.items():
            done = 0

            def moved(written: int, size: int, path: str = path) -> None:
                nonlocal done
                if progress is not None:
                    progress(path, written - done)
                done = written

            try:
                transport.fs_writefile(path, data, chunk_size=_CHUNK, progress_callback=moved)
            except TransportExecError as error:
                raise RemoteError(f"{path}: {error.error_output.strip()}") from error
            except (OSError, TransportError, ValueError) as error:
                raise RemoteError(f"{path}: {error}") from error

    def _listening(self) -> _Transport:
        if self._transport is None or not self._transport.in_raw_repl:
            raise RemoteError(f"{self.address}: not connected")
        return self._transport


def _folders(paths: Iterable[str]) -> list[str]:
    """The folders that files at these paths lie in, each after the one that it lies in."""
    found: dict[str, None] = {}
    for path in paths:
        parts = path.strip("/").split("/")[:-1]
        for i in range(len(parts)):
            found["/" + "/".join(parts[: i + 1])] = None
    return list(found)
