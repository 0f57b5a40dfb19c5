"""ds18x20: of it, what allocates nothing on a board either."""

import bench
from onewire import OneWireError


class DS18X20:
    def __init__(self, onewire):
        self._bus = onewire
        self.buf = bytearray(9)
        self._measured = False

    def scan(self):
        return [rom for rom in self._bus.scan() if rom[0] in (0x10, 0x22, 0x28)]

    def convert_temp(self):
        if not bench.one_wire:
            raise OneWireError
        self._measured = True

    def read_scratch(self, rom):
        if not bench.one_wire:
            raise OneWireError
        found = None
        for number in bench.one_wire:
            if rom == number:
                found = bench.one_wire[number]
        if not found:  # nobody pulls the line down: each byte is 255
            raise Exception("CRC error")
        if not self._measured:  # a sensor that has not measured yet says 85 degrees
            found = b"\x50\x05\x4b\x46\x7f\xff\x0c\x10\x1c"
        for i in range(9):
            self.buf[i] = found[i]
        return self.buf
