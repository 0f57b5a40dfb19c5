"""A board of the pipeline's demo: `demo_sketch.py HOST PORT NAME READINGS`.

The Station of boards/shared as a board runs it, in a real MicroPython, with a reading a second;
its chip is this machine, read by the sensor of boards/host. At the end it says what it did, and
sleeps. Runs in the folder in which its boot id is kept, with lib, boards/shared and boards/host
to import from. FLATMQ_USER and FLATMQ_PASSWORD of the environment are for the broker.
"""

import os
import sys

sys.modules["machine"] = sys  # Station asks it for a name alone, and gets one here

import boot_id  # noqa: E402

_next_boot = boot_id.next_boot
boot_id.next_boot = lambda: _next_boot("boot_id")  # on a board it is in /

from flatmq.port import ticks_add, ticks_diff, ticks_ms  # noqa: E402
from flatmq.senml import label  # noqa: E402
from sensor import open_sensor  # noqa: E402
from station import Station  # noqa: E402

PATIENCE_MS = 20000  # for the last acknowledgements


class Machine:
    """A chip, as Station needs it: see boards/shared/chip_rp2.py.

    It sleeps by ending the process.
    """

    kind = "host"
    spool_head = 512

    def __init__(self):
        self.asleep = False
        self._sensor = open_sensor()
        self._label = label(b"host/" + self._sensor.name)

    def start(self):
        pass

    def read(self, pack):
        return pack.number(self._label, self._sensor.read())

    def watch(self):
        pass

    def feed(self):
        pass

    def release(self):
        pass

    def sleep(self, ms):
        self.asleep = True


def main():
    host, port, name, readings = sys.argv[1:5]
    settings = {
        "device": {"name": name, "interval": 1, "spool": False, "watchdog": False, "sleep": False},
        "broker": {
            "host": host,
            "port": int(port),
            "user": os.getenv("FLATMQ_USER"),
            "password": os.getenv("FLATMQ_PASSWORD"),
        },
    }
    chip = Machine()
    station = Station(settings, chip, [])
    station.client.start()
    while station.seq < int(readings) or station.unsent:
        station.turn(20)
    station.sleep_for = 1  # waits until everything is acknowledged, and reports "asleep"
    end = ticks_add(ticks_ms(), PATIENCE_MS)
    while not chip.asleep and ticks_diff(end, ticks_ms()) > 0:
        station.turn(20)
    print("@told", station.boot, station.seq, station.lost, station.client.pending)
    return 0 if chip.asleep else 1


if __name__ == "__main__":
    sys.exit(main())
