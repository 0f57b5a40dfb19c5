"""A QEMU that is none: `python -m emulate.qemu_stand_in MACHINES ARGUMENTS`.

With `-machine help` it lists MACHINES, which are separated by commas. Otherwise it takes the files
out of the flash and runs main.py with the MicroPython of this machine, at the serial line that the
arguments name. It answers at the monitor, where system_reset runs main.py again.
"""

import json
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from emulate.files import BOOT, ESP32, leashed, unpack
from flatmq_tools import boards, interpreter

FROM_ROM = "ets Jul 29 2019 12:21:46\r\n\r\nrst:0x%s,boot:0x13 (SPI_FAST_FLASH_BOOT)\r\n"
POWER_ON, BY_ITSELF = "1 (POWERON_RESET)", "c (SW_CPU_RESET)"
RESET = 42  # the status of sys.exit(42), which stands for machine.reset()
END = 'MicroPython v1.28.0 on 2026-08-01\r\nType "help()" for more information.\r\n>>> '


def connected(name: str) -> socket.socket:
    host, _, port = sys.argv[sys.argv.index(name) + 1].removeprefix("tcp:").partition(":")
    return socket.create_connection((host, int(port)))


class Machine:
    """The board at its line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._line = connected("-serial")
        self._program: subprocess.Popen[bytes] | None = None

    def boot(self, cause: str = POWER_ON) -> None:
        """Run the program from its beginning, in a thread that waits for its end."""
        running, self._program = self._program, None
        if running is not None:
            running.kill()
            running.wait()
        threading.Thread(target=self._run, args=(cause,), daemon=True).start()

    def _run(self, cause: str) -> None:
        command = interpreter.command("256k")
        assert command is not None
        status = RESET
        while status == RESET:
            self._line.sendall((FROM_ROM % cause).encode())
            self._program = program = subprocess.Popen(
                leashed([*command, "-c", f"{BOOT}\nimport main"]),
                cwd=self._folder,
                stdin=self._line,
                stdout=self._line,
                stderr=self._line,
            )
            status = program.wait()
            cause = BY_ITSELF
        if program is self._program:
            self._line.sendall(END.encode())


def main() -> None:
    """List the machines, or be one until the monitor's connection ends."""
    if "help" in sys.argv:
        print("Supported machines are:")
        for name in sys.argv[1].split(","):
            print(f"{name:20} a machine")
        return
    with connected("-qmp") as monitor, tempfile.TemporaryDirectory() as name:
        board = boards.load("esp32" if "esp32" in sys.argv[1].split(",") else "esp32_c3")
        flash = Path("flash.bin").absolute()
        unpack(board, flash.read_bytes()[board.flash.filesystem :], Path(name))
        Path(name, "esp32.py").write_text(ESP32.format(flash=str(flash)))
        machine = Machine(Path(name))
        machine.boot()
        monitor.sendall(b'{"QMP": {}}\n')
        for line in monitor.makefile("rb"):
            if json.loads(line)["execute"] == "system_reset":
                machine.boot()
            monitor.sendall(b'{"return": {}}\n')


if __name__ == "__main__":
    main()
