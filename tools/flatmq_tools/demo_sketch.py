"""Run the host sketch and say what its heap did: `demo_sketch.py HOST PORT DEVICE READINGS`.

Runs in either interpreter, with boards/host and lib on its path; demo.py starts it. The sketch
stays as people copy it: its publish_reading is replaced by one that looks at the heap first.
"""

import gc
import sys

import main as sketch

try:
    from micropython import mem_total  # type: ignore[import-not-found]
except ImportError:
    mem_total = None  # CPython has no such count

_publish_reading = sketch.publish_reading
_first = [0, 0]  # claimed now: the look itself is not to show
_last = [0, 0]


def _metered(client, topic, number):
    if mem_total is not None:
        if number == 2:  # after the first: on the way it loaded what is loaded once
            gc.collect()
            _first[0] = gc.mem_alloc()
            _first[1] = mem_total()
        elif number == sketch.READINGS:
            _last[0] = gc.mem_alloc()
            _last[1] = mem_total()
    return _publish_reading(client, topic, number)


def main():
    """Lines that begin with @ are for demo.py."""
    host, port, device, readings = sys.argv[1:5]
    sketch.HOST = host
    sketch.PORT = int(port)
    sketch.DEVICE = device.encode()
    sketch.READINGS = int(readings)
    sketch.publish_reading = _metered
    print("@sensor", sketch.sensor.name.decode(), sketch.sensor.path)
    if hasattr(sys.stdout, "flush"):
        sys.stdout.flush()
    pending = sketch.main()
    if _last[1]:
        # Between the two lie whole turns: reading, publishing, waiting, acknowledgement.
        print("@heap", _first[0], _last[0], _last[1] - _first[1], sketch.READINGS - 2)
    print("@end", pending)
    return 1 if pending else 0


if __name__ == "__main__":
    sys.exit(main())
