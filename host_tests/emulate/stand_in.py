"""An emulator that is none: `python -m emulate.stand_in ORDER` instead of the real child process.

It takes the files out of the image and runs main.py with the MicroPython of this machine, whose
broker is where the network of the order has it.
"""

import json
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from emulate.files import leashed, unpack
from flatmq_tools import boards, interpreter
from flatmq_tools.emulate.network import Network
from flatmq_tools.emulate.order import Order
from flatmq_tools.image import uf2

BANNER = 'MicroPython v1.28.0 on 2026-08-01\nType "help()" for more information.\n>>> '


def report(**event: object) -> None:
    """Print an event, with this machine's time as the board's."""
    line = json.dumps({"ms": round(time.monotonic() * 1000) - BEGAN, **event})
    sys.stdout.write(line + "\n")  # in one piece: two threads report
    sys.stdout.flush()


def content(image: Path) -> bytes:
    """Return the filesystem of a Pico W's image."""
    board = boards.load("pico_w")
    flash = board.flash
    data = bytearray(flash.filesystem_size)
    for address, block in uf2.pages(uf2.read(image.read_bytes()), board.flashing.family).items():
        at = address - flash.address - flash.filesystem
        if at >= 0:
            data[at : at + len(block.data)] = block.data
    return bytes(data)


def run(order: Order) -> None:
    """Run the program; report the time until standard input closes, and end the program then."""
    network = Network(order.broker, order.ports)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unpack(boards.load("pico_w"), content(Path(order.image)), folder)
        settings = json.loads((folder / "settings.json").read_text())
        broker = settings["broker"]
        broker["host"], broker["port"] = network.target(broker["host"], broker["port"])
        (folder / "settings.json").write_text(json.dumps(settings))
        report(serial=1)
        command = interpreter.command("256k")
        assert command is not None
        path = ["-c", "import sys; sys.path[:] = ['', 'lib']; import main"]
        program = subprocess.Popen(
            leashed([*command, *path]),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=log, args=(program,), daemon=True).start()
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            report()
        program.kill()
        program.wait()


def log(program: subprocess.Popen[str]) -> None:
    """Pass on what the program prints, and what MicroPython does at its end."""
    assert program.stdout is not None
    for line in program.stdout:
        report(log=line)
    report(log=BANNER)


BEGAN = round(time.monotonic() * 1000)
if __name__ == "__main__":
    run(Order.read(sys.argv[1]))
