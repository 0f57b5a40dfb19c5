"""dht: the driver's bytes."""

import bench


class DHT22:
    def __init__(self, pin):
        self.buf = bytearray(5)

    def measure(self):
        if bench.dht is None:
            raise OSError(110)
        for i in range(5):
            self.buf[i] = bench.dht[i]
        if self.buf[0] + self.buf[1] + self.buf[2] + self.buf[3] & 255 != self.buf[4]:
            raise Exception("checksum error")
