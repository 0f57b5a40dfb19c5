"""Flash in RAM for littlefs on MicroPython, whose power can be cut at any program or erase."""

import micropython

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
        """Have power, and count from 0."""
        self.dead = False
        self.writes = self.erases = self.programmed = 0
        self.worn = [0] * self.blocks
        self.cut_at = cut_at
        self.how = how

    def image(self):
        return bytes(self.data)

    def restore(self, image):
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

    def _is_collecting(self):
        """Return whether the collector asks, for a file of an earlier life."""
        try:
            bytearray(1)
        except MemoryError:
            return True
        return False

    # What littlefs calls. Dead, it answers without allocating: the collector may ask.

    def readblocks(self, block, buf, at=0):
        if self.dead:
            return -5
        at += block * self.size
        try:
            buf[:] = self.view[at : at + len(buf)]
        except MemoryError:  # the collector asks, for a file of an earlier life
            return -5
        return 0

    def writeblocks(self, block, buf, at=0):
        if self.dead or self._is_collecting():
            return -5
        at += block * self.size
        if self._cut():
            if self.how == TORN:
                self._clear(at, buf, len(buf) // 2)
            raise PowerCut
        self._clear(at, buf, len(buf))
        self.programmed += len(buf)
        return 0

    def ioctl(self, op, block):
        if op == 4:
            return self.blocks
        if op == 5:
            return self.size
        if op == 6:
            if self.dead or self._is_collecting():
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


class PlainChip(Chip):
    """Without cuts. `own` counts what it allocates itself."""

    own = 0

    def readblocks(self, block, buf, at=0):
        before = micropython.mem_total()
        at += block * self.size
        buf[:] = self.view[at : at + len(buf)]
        self.own += micropython.mem_total() - before
        return 0

    def writeblocks(self, block, buf, at=0):
        before = micropython.mem_total()
        at += block * self.size
        self.data[at : at + len(buf)] = buf
        self.programmed += len(buf)
        self.own += micropython.mem_total() - before
        return 0

    def ioctl(self, op, block):
        before = micropython.mem_total()
        done = Chip.ioctl(self, op, block)
        self.own += micropython.mem_total() - before
        return done

    def asked(self):
        """Bytes of heap that were asked for by all others."""
        return micropython.mem_total() - self.own
