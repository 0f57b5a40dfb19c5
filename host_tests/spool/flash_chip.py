"""Flash in RAM for littlefs on MicroPython, whose power can be cut at any program or erase."""

STOP = 0  # the cut comes before
TORN = 1  # half of it is done; a block half erased is garbage


class PowerCut(BaseException):
    """No OSError: nobody catches it, as nobody goes on after a power cut."""


class Chip:
    """NOR flash: a program can only clear bits, an erase sets those of a block.

    `writes` counts programs and erases; the one of number `cut_at` (from 1) does not succeed, in
    the way `how`, and after it nothing does until `power_on`.
    """

    def __init__(self, blocks, size=1024):
        self.size = size
        self.blocks = blocks
        self.data = bytearray(b"\xff" * (blocks * size))
        self.view = memoryview(self.data)
        self.power_on()

    def power_on(self, cut_at=0, how=STOP):
        """Counts anew."""
        self.dead = False
        self.writes = self.erases = self.programs = self.programmed = 0
        self.worn = [0] * self.blocks
        self.cut_at = cut_at
        self.how = how

    def image(self):
        """All bytes."""
        return bytes(self.data)

    def restore(self, image):
        """Have these bytes."""
        self.data[:] = image

    def _cut(self):
        self.writes += 1
        if self.writes == self.cut_at:
            self.dead = True
        return self.dead

    def _clear(self, at, buf, n):
        old = int.from_bytes(self.view[at : at + n], "little")
        new = old & int.from_bytes(buf[:n], "little")
        self.data[at : at + n] = new.to_bytes(n, "little")

    # What littlefs calls. Dead, it answers without allocating: the collector may ask.

    def readblocks(self, block, buf, at=0):
        if self.dead:
            return -5
        at += block * self.size
        buf[:] = self.view[at : at + len(buf)]
        return 0

    def writeblocks(self, block, buf, at=0):
        if self.dead:
            return -5
        at += block * self.size
        if self._cut():
            if self.how == TORN:
                self._clear(at, buf, len(buf) // 2)
            raise PowerCut
        self._clear(at, buf, len(buf))
        self.programs += 1
        self.programmed += len(buf)
        return 0

    def ioctl(self, op, block):
        if op == 4:
            return self.blocks
        if op == 5:
            return self.size
        if op == 6:
            if self.dead:
                return -5
            at = block * self.size
            if self._cut():
                if self.how == TORN:
                    half = self.size // 2
                    self.data[at : at + half] = b"\x5a" * half
                raise PowerCut
            self.data[at : at + self.size] = b"\xff" * self.size
            self.erases += 1
            self.worn[block] += 1
        return 0
