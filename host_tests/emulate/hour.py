"""`python -m emulate.hour`: the station sketch on an emulated Pico W, with FLATMQ_FIRMWARE.

Each minute it loses the Wi-Fi or the broker. Its readings say what its heap is like.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from flatmq_rigs import emulated, results
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker
from observer import Observer

SECTION = "emulated-hour"
INTERVAL = 5  # s between two readings
AWAY = 10  # s without Wi-Fi, or without the broker
MORE = 512  # bytes that the heap may hold at the end beyond those after the first losses
_TOPIC = "dev/hour/telemetry"
_ROWS = {
    "used": "bytes of heap in use",
    "piece": "largest free piece, bytes",
    "connects": "connections so far",
    "failed": "readings of a sensor that failed",
    "lost": "readings without room",
}


def run(minutes: int, firmware: str) -> tuple[int, list[dict[str, float]]]:
    """Return the status of `flatmq emulate`, and the readings in the order of their arrival."""
    command = [sys.executable, "-m", "flatmq_tools.cli", "emulate", "pico_w"]
    options = [str(Path(__file__).with_name("station")), "--firmware", firmware]
    for name, value in (("name", "hour"), ("spool", "true"), ("interval", INTERVAL)):
        options += ["--set", f"device.{name}={value}"]
    for minute in range(1, minutes, 2):
        options += ["--wifi-loss", f"{60 * minute}s:{AWAY}s"]
    with (
        broker.mosquitto() as near,
        Proxy(near.host, near.port) as proxy,
        Observer(near.host, near.port, _TOPIC) as desk,
    ):
        away = [*options, "--broker", f"{proxy.host}:{proxy.port}", "--for", f"{minutes}min"]
        began = time.monotonic()
        with subprocess.Popen([*command, *away]) as process:
            while process.poll() is None:
                second = (time.monotonic() - began) % 120
                lost = time.monotonic() - began > 60 and second < AWAY
                proxy.refuse(lost)
                if lost and proxy.open:
                    proxy.strike("reset")
                time.sleep(0.2)
        packs = [json.loads(payload) for payload in desk.payloads(_TOPIC)]
    return process.returncode, [{each["n"]: each["v"] for each in pack} for pack in packs]


def main(arguments: list[str] | None = None) -> int:
    """Run it; 1 if a reading is missing, the board was reset, or the heap grew."""
    parser = argparse.ArgumentParser(prog="hour", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60, help="Time of the board's clock.")
    parser.add_argument("--results", type=Path, help="Markdown file with the section to rewrite.")
    given = parser.parse_args(arguments)
    firmware = emulated.needed("pico_w")
    status, readings = run(given.minutes, firmware)
    first, last = readings[0], readings[-1]
    seqs = {int(reading["seq"]) for reading in readings}
    boots = {reading["boot"] for reading in readings}
    missing = max(seqs) - len(seqs)
    # Both ways of loss have loaded their code by then.
    warm = next((each for each in readings if each["seq"] * INTERVAL > 240), last)
    good = not status and len(boots) == 1 and not missing and not last["lost"]
    good = good and last["used"] <= warm["used"] + MORE
    rows = [
        (text, *(results.number(each[key]) for each in (first, warm, last)))
        for key, text in _ROWS.items()
    ]
    text = (
        f"## An hour on an emulated Pico W\n\n`python -m flatmq_rigs emulated-hour`: the station "
        f"sketch for {given.minutes} minutes of the board's clock, a reading each {INTERVAL} s, "
        f"through the spool. Each minute the Wi-Fi or the broker is away for {AWAY} s.\n"
        f"{len(seqs):,} readings arrived, {missing} are missing, {len(readings) - len(seqs)} came "
        f"twice; {len(boots)} boot.\n\n"
        f"{results.table(('', 'first reading', 'after 4 minutes', 'last'), rows)}\n"
    )
    print(text, "ok" if good else "FAILED")
    if given.results:
        results.write(given.results, SECTION, text)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
