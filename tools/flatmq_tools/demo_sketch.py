"""Run the host sketch and report what it did: `demo_sketch.py HOST PORT DEVICE READINGS`.

DEVICE and READINGS replace those of the sketch; `-` leaves them as they are. Runs in either
interpreter, with boards/host and lib on its path; demo.py starts it and reads the lines that
begin with @. The sketch stays as people copy it, and as they change it: only the client's
`publish` is replaced, by one that looks at the heap, and prints what the client accepted.
"""

import gc
import sys
from binascii import crc32

from flatmq import Client

try:
    from micropython import mem_total  # type: ignore[import-not-found]
except ImportError:
    mem_total = None  # CPython has no such count

_publish = Client.publish
_accepted = [0]  # claimed now: the look itself must not allocate
_first = [0, 0, 0]  # messages accepted, bytes in use, bytes allocated since the start
_last = [0, 0, 0]


def _look():
    if mem_total is None or not _accepted[0]:
        return  # the first publish loads what is loaded once
    if not _first[0]:
        gc.collect()
        _note(_first)
    _note(_last)


def _note(into):
    into[0] = _accepted[0]
    into[1] = gc.mem_alloc()
    into[2] = mem_total()


def _report(topic, payload, qos):
    _accepted[0] += 1
    if payload.__class__ is str:
        payload = payload.encode()
    print("@sent", qos, crc32(payload, crc32(topic.encode() if topic.__class__ is str else topic)))


def _counted(self, topic, payload=b"", qos=0, retain=False):
    _look()
    # No local name of its own: a larger frame would be on the heap.
    retain = _publish(self, topic, payload, qos, retain)
    if retain is not None:
        _report(topic, payload, qos)
    return retain


def main():
    """Run the sketch. Returns 0 if the broker has acknowledged all messages, else 1."""
    host, port, device, readings = sys.argv[1:5]
    Client.publish = _counted
    import main as sketch

    sketch.HOST = host
    sketch.PORT = int(port)
    if device != "-":
        sketch.DEVICE = device.encode()
    if readings != "-":
        sketch.READINGS = int(readings)
    # What people may have taken out of their sketch is not missed.
    print("@every", getattr(sketch, "EVERY_MS", 0))
    if hasattr(sys.stdout, "flush"):
        sys.stdout.flush()
    try:
        pending = sketch.main()
    except KeyboardInterrupt:
        print()  # a line may have been interrupted
        raise
    finally:
        if _last[0] > _first[0]:
            # Between the two lie whole turns: reading, publishing, waiting, acknowledgement.
            print("@heap", _first[1], _last[1], _last[2] - _first[2], _last[0] - _first[0])
    return 1 if pending else 0


if __name__ == "__main__":
    sys.exit(main())
