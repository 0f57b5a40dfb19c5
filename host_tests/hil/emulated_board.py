"""A board that is none: MicroPython on this machine behind a TCP port, as emulators show theirs.

Its address is `socket://127.0.0.1:PORT`. It has a littlefs in a file, `machine.reset()`, which
kills the interpreter at once, soft resets, a main.py that runs at start-up, and Wi-Fi, whose
absence silences a proxy in front of the broker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import socket
import subprocess
import termios
import threading
import tty
from collections.abc import Callable
from pathlib import Path

from flatmq_rigs.proxy import Proxy
from flatmq_tools import interpreter

HERE = Path(__file__).parent / "emulated"
BLOCKS = 128  # of 4,096 bytes, of flash
HEAP = "384k"  # of 64-bit objects: about what a Pico has
_RAW = b"raw REPL; CTRL-B to exit\r\n>"
_FRIENDLY = b">>> "


class EmulatedBoard:
    """A board that runs until `stop`; use it as a context manager.

    folder: where its flash is kept. air: what its Wi-Fi reaches the broker by, None for a board
    that is not to reach one. wifi: the network that is there. unplugs: a reset closes the
    connection, as it does with a board whose USB is its own; else it stays, as behind a USB-UART.
    boots_ms: how long it takes to boot; what is sent to it meanwhile it gets later.
    radio: whether it has a `network` at all.
    show_drive: called when its boot loader is asked for.
    swallows: how many calls of `machine.reset()` return without a reset.
    reset_ms: how long `machine.reset()` takes; Ctrl-C stops it until then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        air: Proxy | None = None,
        wifi: tuple[str, str] = ("net", "word"),
        unplugs: bool = False,
        radio: bool = True,
        boots_ms: int = 0,
        show_drive: Callable[[], None] = lambda: None,
        swallows: int = 0,
        reset_ms: int = 0,
    ) -> None:
        self.flash = folder / "flash.bin"
        if not self.flash.exists():
            self.flash.write_bytes(b"\xff" * BLOCKS * 4096)
        self.resets = 0
        self._air = air
        self._wifi = wifi
        self._unplugs = unplugs
        self._radio = radio
        self._boots_ms = boots_ms
        self._show_drive = show_drive
        self._swallows = swallows
        self._reset_ms = reset_ms
        if air:
            air.refuse()  # nothing gets through before it has joined
        self._port = socket.create_server(("127.0.0.1", 0))
        self._desk = socket.create_server(("127.0.0.1", 0))
        self._wake, self._tell = os.pipe()
        self._terminal = -1
        self._asking: socket.socket | None = None
        self._client: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""  # the last of what it printed
        self._held: bytes | None = b""  # what came while it has not started; None once it has
        self._boot("hard")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        """The address to which mpremote connects."""
        return f"socket://127.0.0.1:{self._port.getsockname()[1]}"

    def __enter__(self) -> EmulatedBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        os.write(self._tell, b"x")
        self._thread.join()
        self._halt()
        for end in (self._port, self._desk, self._client):
            if end:
                end.close()
        for pipe in (self._wake, self._tell):
            os.close(pipe)

    def press_reset(self) -> None:
        os.write(self._tell, b"r")

    # In the thread, but for the first boot and the last halt

    def _boot(self, mode: str) -> None:
        found = interpreter.command(HEAP)
        if found is None:
            raise RuntimeError(interpreter.MISSING)
        self._terminal, end = pty.openpty()
        tty.setraw(end)
        # While a program runs Ctrl-C interrupts it; the REPL turns that off for itself.
        settings = termios.tcgetattr(end)
        settings[3] |= termios.ISIG
        termios.tcsetattr(end, termios.TCSANOW, settings)
        self._process = subprocess.Popen(
            [
                *found, "-i", str(HERE / "boot.py"), str(self.flash), str(BLOCKS),
                str(self._desk.getsockname()[1]), mode, *self._wifi,
                "radio" if self._radio else "none", str(self._boots_ms), str(self._reset_ms),
            ],
            stdin=end, stdout=end, stderr=end, start_new_session=True,
            # Ctrl-C goes to whom the terminal controls. No more than a system call.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )  # fmt: skip
        os.close(end)
        self._said = b""
        # Interrupted before it has its own file system it would have this machine's.
        self._held = b""

    def _halt(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            os.close(self._terminal)
            if self._asking:
                self._asking.close()
                self._asking = None

    def _serve(self) -> None:
        while True:
            sources = [self._wake, self._terminal, self._desk, self._port]
            ends = [self._asking, self._client]
            ready = select.select([*sources, *(end for end in ends if end)], [], [])[0]
            if self._wake in ready:
                if os.read(self._wake, 1) == b"x":
                    return
                self._reset()
                continue
            if self._desk in ready:
                self._asking = self._desk.accept()[0]
            if self._port in ready:
                self._unplug()
                self._client = self._port.accept()[0]
                self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._client in ready:
                self._hear()
            if self._terminal in ready:
                self._print()
            if self._asking in ready:
                self._obey()

    def _hear(self) -> None:
        assert self._client is not None
        data = b""
        with contextlib.suppress(ConnectionError):
            data = self._client.recv(4096)
        if not data:
            self._unplug()
        elif self._held is None:
            with contextlib.suppress(OSError):
                os.write(self._terminal, data)
        else:
            self._held += data

    def _print(self) -> None:
        try:
            data = os.read(self._terminal, 4096)
        except OSError:  # it has ended
            data = b""
        if not data:
            # By Ctrl-D, which is a soft reset. In the raw REPL it comes back to that.
            is_raw = self._said.rfind(_RAW) > self._said.rfind(_FRIENDLY)
            self._halt()
            self._send(b"MPY: soft reboot\r\n")
            self._boot("raw" if is_raw else "soft")
            if is_raw:
                self._held = b"\x01"
            return
        self._said = (self._said + data)[-65536:]
        self._send(data)

    def _send(self, data: bytes) -> None:
        if self._client:
            with contextlib.suppress(OSError):
                self._client.sendall(re.sub(rb"(?<!\r)\n", b"\r\n", data))

    def _obey(self) -> None:
        assert self._asking is not None
        words = []
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = self._asking.recv(64).split()
        if not words:
            self._asking.close()
            self._asking = None
            return
        if words == [b"reset"]:
            if not self._swallows:
                self._reset()
                return
            self._swallows -= 1
            self._asking.sendall(b"swallowed\n")
            return
        if words == [b"up"]:
            os.write(self._terminal, self._held or b"")
            self._held = None
        if words == [b"bootloader"]:
            self._unplug()
            self._show_drive()
        if self._air and words == [b"air", b"on"]:
            self._air.refuse(False)
        elif self._air and words == [b"air", b"off"]:
            self._air.refuse()
            self._air.strike("silence")
        with contextlib.suppress(OSError):
            self._asking.sendall(b"done\n")

    def _reset(self) -> None:
        self._halt()
        self.resets += 1
        if self._air:
            self._air.refuse()
            self._air.strike("silence")
        if self._unplugs:
            self._unplug()
        self._boot("hard")

    def _unplug(self) -> None:
        if self._client:
            self._client.close()
            self._client = None
