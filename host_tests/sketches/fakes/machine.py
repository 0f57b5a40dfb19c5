"""machine, as rp2 and esp32 have it and as far as the sketches need it."""

import os
import sys
import time

import bench


class Pin:
    IN = 0
    OUT = 1
    OPEN_DRAIN = 2
    PULL_UP = 1

    def __init__(self, name, mode=-1, pull=-1):
        self.name = name
        self.init(mode, pull)

    def init(self, mode=-1, pull=-1):
        pass

    def value(self, on):
        bench.use("led")
        bench.pins[self.name] = on


class ADC:
    CORE_TEMP = 4

    def __init__(self, channel):
        self._channel = channel

    def read_u16(self):
        bench.use("chip")
        return bench.adc[self._channel]


def _copy(registers, at, buf):  # of its own, so that no frame is on the heap
    for i in range(len(buf)):
        buf[i] = registers[at]
        at += 1


class I2C:
    def __init__(self, number, *, sda, scl, freq=400000):
        pass

    def scan(self):
        bench.use("i2c")
        return list(bench.i2c)

    def readfrom_mem(self, address, register, n):
        return bytes(self._of(address)[register : register + n])

    def readfrom_mem_into(self, address, register, buf):
        _copy(self._of(address), register, buf)

    def writeto_mem(self, address, register, buf):
        registers = self._of(address)
        registers[register] = buf[0]
        if register == 0xF4 and not registers[0xF2] & 7:  # a BME280 skips the humidity
            registers[0xFD] = 0x80
            registers[0xFE] = 0

    def _of(self, address):
        if address not in bench.i2c:
            raise OSError(5)
        return bench.i2c[address]


class WDT:
    def __init__(self, *, timeout):
        bench.use("wdt")
        bench.watch(timeout)

    def feed(self):
        bench.turn()
        bench.use("feed")


class _Mem32:
    def __getitem__(self, address):
        return bench.mem32.get(address, 0)

    def __setitem__(self, address, value):
        bench.mem32[address] = value
        bench.tell("mem32", hex(address), hex(value))


mem32 = _Mem32()


PWRON_RESET, WDT_RESET, DEEPSLEEP_RESET = 1, 3, 4
_SLEPT = "/slept"


class RTC:
    kept = b""

    def memory(self, data=None):
        if data is None:
            return RTC.kept
        RTC.kept = data

    def datetime(self, value):
        bench.tell("clock", *value)


try:
    with open(_SLEPT, "rb") as f:
        RTC.kept = f.read()
    os.remove(_SLEPT)
    _cause = DEEPSLEEP_RESET if bench.esp32 else WDT_RESET
except OSError:
    _cause = PWRON_RESET


def reset_cause():
    return _cause


def unique_id():
    return b"\xe6\x61\x0a\xff"


def lightsleep(ms):
    bench.slept.append(ms)
    time.sleep_ms(ms)


def deepsleep(ms):
    with open(_SLEPT, "wb") as f:  # the reset that ends it leaves RTC memory alone
        f.write(RTC.kept)
    bench.tell("asked", ",".join(bench.wifi))
    bench.tell("deepsleep", ms)
    sys.exit()
