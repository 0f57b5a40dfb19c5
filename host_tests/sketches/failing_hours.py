"""Hours of the scripted clock with a sensor and an LED that raise each time; see the test.

Prints the statuses of the last five hours, the count in the last one, the readings that were sent
in them, and the bytes by which the heap has grown. The broker acknowledges everything at once.
"""

import gc

import packets

packets.speak("4")

import bench  # noqa: E402
from station_loop import made  # noqa: E402

import chip_rp2  # noqa: E402


class Broken:
    def start(self):
        pass

    def read(self, pack):
        raise OSError(5)

    def value(self, on):
        raise OSError(5)


seen = [0, 0, 0]  # statuses, the last count, packs


def answer(written):
    """Return what a broker answers at once."""
    answers = b""
    while written:
        n, at = written[1], 2
        if n > 127:
            n, at = (n & 127) + (written[2] << 7), 3
        kind, body, written = written[0], written[at : at + n], written[at + n :]
        if kind == 0xC0:
            answers += packets.PINGRESP
        elif kind == 0x82:
            answers += b"\x90\x03" + body[:2] + b"\1"
        else:
            end = 2 + body[1]
            answers += b"\x40\x02" + body[end : end + 2]
            seen[2] += body[2:end].endswith(b"/telemetry")
            if body[end + 2 :].startswith(b"online, failed: broken "):
                seen[0] += 1
                seen[1] = int(body[end + 25 :].split(b",")[0])
    return answers


bench.adc[4] = 14000
it, link = made(chip_rp2.Chip(), [Broken()], Broken(), interval=60)
used = 0
for second in range(6 * 3600):
    if second == 3600:
        seen[:] = [0, 0, 0]
        gc.collect()
        used = gc.mem_alloc()
    it.turn()
    link.feed(answer(bytes(link._written[: link._n])))
    link._n = 0
    it.turn()
    link.now = link.now + 1000 & 0x3FFFFFFF
link.feed(b"")
gc.collect()
print("SEEN", *seen, gc.mem_alloc() - used)
