"""A turn of a sketch: sensors are read, a pack is published and acknowledged."""

import bench
from bme280_registers import registers
from machine import I2C, Pin

import chip_esp32
import chip_rp2
import packets
import station
import wifi
from attached import attached
from scripted_link import Link, connect

bench.adc[4] = 14000
bench.mcu_temperature = 39


class _Led:
    lit = 0

    def value(self, on):
        self.lit = on


def made(chip, sensors, led, interval=1, parts=""):
    """Return a station that is connected, and its link, which is its clock."""
    link = Link()
    station.ticks_ms = wifi.ticks_ms = bench.ticks_ms = link.ticks_ms
    settings = {
        "device": {"name": "pico-1", "interval": interval, "sleep": False, "spool": False},
        "broker": {"host": "", "port": 1883, "user": "", "password": ""},
    }
    settings["device"].update(watchdog=True, parts=parts)
    radio = wifi.Wifi("home", "s3cret")
    radio.poll(False)
    radio.poll(False)
    it = station.Station(settings, chip, sensors, led=led, wifi=radio, link=link)
    chip.watch()
    connect(it.client, link)
    return it, link


def _turns(chip, sensors, parts=""):
    """A station that reads and publishes every second of the scripted clock."""
    count = len(sensors) + 1
    it, link = made(chip, sensors, _Led(), parts=parts)
    it.turn()
    it.turn()  # the subscription has gone out, and the status
    puback = packets.puback()
    for request in list(it.client.requests):
        n = len(request.filters)
        link.feed(bytes((0x90, 2 + n, request.id >> 8, request.id & 255)) + b"\1" * n)
        it.turn()
    assert not it.client.requests
    if parts:
        _settle(it, link, puback)
    last = it.client.last_id
    for identifier in range(last - it.client.pending, last):  # the status, and a first reading
        link.feed(puback.with_id(identifier + 1))
        it.turn()
    link.took_any()
    while True:
        link.now += 1000  # scripted time stands still meanwhile
        seq = it.seq
        it.turn()
        identifier = it.client.last_id
        sent = it.seq == seq + 1 and it.client.pending == 1 and link.took_any()
        link.feed(puback.with_id(identifier))
        it.turn()
        yield sent and it.client.pending == 0 and not it.failed and count == len(it.sensors)


def _settle(it, link, puback):
    """Read once, and acknowledge all that the parts publish after that."""
    link.swallows = True
    link.now += 1000
    for _ in range(20):
        it.turn()
        n = it.client.pending
        while n:
            n -= 1
            link.feed(puback.with_id(it.client.last_id - n))
            it.turn()
    link.swallows = False


def described_to_home_assistant(proof):
    bench.i2c[0x76] = bytearray(registers(415148, 519888, 30000))
    yield from _turns(chip_rp2.Chip(), attached(i2c=I2C(0, sda=1, scl=2)), "ha")


def chip_of_a_pico(proof):
    yield from _turns(chip_rp2.Chip(), [])


def chip_of_an_esp32(proof):
    yield from _turns(chip_esp32.Chip(), [])


def ds18b20(proof):
    bench.one_wire[b"\x28\xff\x64\x1e\x82\x16\xc3\xa1"] = bytes(
        (0x5E, 0xFF, 75, 70, 127, 255, 2, 16, 0)
    )
    yield from _turns(chip_rp2.Chip(), attached(one_wire=Pin(1)))


def dht22(proof):
    bench.dht = bytes((2, 0x8C, 0x80, 41, (2 + 0x8C + 0x80 + 41) & 255))
    yield from _turns(chip_rp2.Chip(), attached(dht=Pin(1)))


def bme280(proof):
    bench.i2c[0x76] = bytearray(registers(415148, 519888, 30000))
    yield from _turns(chip_rp2.Chip(), attached(i2c=I2C(0, sda=1, scl=2)))
