"""`python -m emulate.real`: `flatmq emulate` with the emulator itself, and FLATMQ_FIRMWARE."""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flatmq_rigs import emulated
from flatmq_tools import boards
from tls.secure_broker import SecureBroker

JOIN = (
    "import json, network, ntptime, socket, time\n"
    "wifi = json.load(open('settings.json'))['wifi']\n"
    "wlan = network.WLAN(network.WLAN.IF_STA)\n"
    "wlan.active(True)\n"
    "wlan.connect(wifi['ssid'])\n"
    "while not wlan.isconnected():\n    time.sleep_ms(20)\n"
    "from flatmq import Client\n"
    "client = Client(b'board', 'mqtt.example.com')\n"
)
PROGRAMS = {
    "fails": "print('up')\n{}['no such key']\n",
    "hangs": "while True:\n    pass\n",
    "stops": "from machine import WDT\nWDT(timeout=1000)\nwhile True:\n    pass\n",
    "by_name": (
        f"{JOIN}ntptime.settime()\n"
        "client.connect(120000)\n"
        "client.publish(b'year', b'%d' % time.gmtime()[0], 1)\n"
        "client.wait(120000)\n"
        "socket.socket().connect(('10.0.0.1', 80))\n"
    ),
    "crashes": (
        f"{JOIN}from flatmq import crash\n"
        "held = [None] * 9000\n"
        "def main():\n"
        "    crashes = crash.Crashes(client, b'dev/board/crash')\n"
        "    client.start()\n"
        "    for _ in range(200):\n        client.poll(20)\n        crashes.poll()\n"
        "    n = 0\n"
        "    for size in 512, 64, 16:\n"
        "        try:\n"
        "            while True:\n                held[n] = bytearray(size)\n"
        "                n += 1\n"
        "        except MemoryError:\n            pass\n"
        "    held[n] = bytearray(512)\n"
        "crash.guard(main, 1)\n"
    ),
    "prints": (
        f"{JOIN}import gc\n"
        "from flatmq.log import Log\n"
        "client.connect(120000)\n"
        "log = Log(client, b'log')\n"
        "def asked():\n"
        "    before = gc.mem_alloc()\n    print('a line')\n    return gc.mem_alloc() - before\n"
        "asked()\ngc.disable()\n"
        "client.publish(b'bytes', b'%d' % max([asked() for _ in range(50)]), 1)\n"
        "client.wait(120000)\n"
    ),
}
YEAR = time.gmtime().tm_year
TLS = (
    "--until dev/+/telemetry --for {n[6]}s --broker 127.0.0.1:{port} --tls --pin {pin} "
    "--set broker.host=broker.example --set broker.port={port} --set broker.tls."
)
OFTEN = "--set device.spool=true --set device.interval=2"
LOSSES = "--reset-at {n[1]}s --wifi-loss {n[2]}s:6s --power-cut {n[5]}s"
FAILED = "the program failed: "
SLOW = 60  # s in which an emulated ESP32 does what a Pico W does in ten
# What happens, the sketch and options, the status, and what the last line begins with. Times are
# multiples of ten seconds, or longer where the board is slow.
ROWS = (
    ("the stock sketch", "--until dev/+/telemetry", 0, "seen: dev/+/telemetry"),
    ("TLS by an authority", TLS + "ca={ca}", 0, "seen: dev/+/telemetry"),
    ("TLS by a pin", TLS + "pin={pin}", 0, "seen: dev/+/telemetry"),
    ("TLS by another pin", TLS + "pin={other}", 1, "not seen: dev/+/telemetry"),
    ("no such message", "--until no/such --for 5s", 1, "not seen: no/such"),
    ("an exception", "fails --for {n[1]}s", 1, FAILED + "KeyError: no such key"),
    ("a loop without an end", "hangs --for 3s", 0, "the program did not fail"),
    ("a watchdog that is not fed", "stops --for {n[1]}s", 1, FAILED + "its watchdog ran out"),
    ("names and the time", f"by_name --until year={YEAR}", 0, f"seen: year={YEAR}"),
    ("another port", "by_name --for {n[2]}s", 1, FAILED + "OSError: [Errno 104] ECONNRESET"),
    ("a crash in a full heap, published after the reset",
     "crashes --until dev/board/crash --for {n[3]}s", 0, "seen: dev/board/crash"),
    ("bytes of heap per published print", "prints --until bytes=0", 0, "seen: bytes=0"),
    ("reset, Wi-Fi lost, power cut", f"--for {{n[7]}}s {LOSSES} {OFTEN}", 0,
     "the program did not fail"),
)  # fmt: skip


def lost(output: str) -> int:
    """Return how many readings did not arrive, between the first and the last of each boot."""
    boots: dict[str, set[int]] = {}
    for boot, seq in re.findall(r'"boot","v":(\d+)},\{"n":"seq","v":(\d+)', output):
        boots.setdefault(boot, set()).add(int(seq))
    return sum(max(seqs) - min(seqs) + 1 - len(seqs) for seqs in boots.values())


def main(arguments: list[str] | None = None) -> int:
    """Run every row; 1 if one is not as it says."""
    parser = argparse.ArgumentParser(prog="emulated", description=__doc__)
    parser.add_argument("--board", default="pico_w", help="Board.  [default: pico_w]")
    parser.add_argument("--only", default="", help="Part of the names of the rows to run.")
    given = parser.parse_args(arguments)
    board = given.board
    firmware = emulated.needed(board)
    table = Table(f"on an emulated {boards.load(board).title}", "ends with", "s", "lost", "")
    bad = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        secure = SecureBroker()
        stack.callback(secure.stop)
        slow = boards.load(board).port == "esp32"
        words_of = {
            "n": [n * (SLOW if slow else 10) for n in range(8)],
            "port": secure.ports["named"],
            "ca": secure.path("ca.pem"),
            "pin": secure.pins["named"],
            "other": secure.pins["other"],
        }
        for name, text in PROGRAMS.items():
            sketch = Path(folder, name)
            sketch.mkdir()
            (sketch / "main.py").write_text(text)
        for what, words, status, said in ROWS:
            if given.only not in what or (slow and "watchdog" in what):  # QEMU's never runs out
                continue
            command = [sys.executable, "-m", "flatmq_tools.cli", "emulate", board]
            began = time.monotonic()
            done = subprocess.run(
                [*command, "--firmware", firmware, *words.format(**words_of).split()],
                cwd=folder,
                env={**os.environ, "COLUMNS": "200"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            last = done.stdout.strip().splitlines()[-1]
            gaps = lost(done.stdout)
            good = done.returncode == status and last.startswith(said) and not gaps
            bad += not good
            if not good:
                print(done.stdout)
            spent = f"{time.monotonic() - began:.0f}"
            table.add_row(what, last, spent, str(gaps), "ok" if good else "FAILED")
    Console(width=140).print(table)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
