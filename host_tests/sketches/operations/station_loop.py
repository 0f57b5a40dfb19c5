"""A turn of a sketch: sensors are read, a pack is published and acknowledged."""

import bench
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


def _turns(chip, sensors):
    """A station that reads and publishes every second of the scripted clock."""
    link = Link()
    station.ticks_ms = wifi.ticks_ms = bench.ticks_ms = link.ticks_ms
    settings = {
        "device": {"name": "pico-1", "interval": 1, "sleep": False, "spool": False},
        "broker": {"host": "", "port": 1883, "user": "", "password": ""},
    }
    settings["device"]["watchdog"] = True
    radio = wifi.Wifi("home", "s3cret")
    radio.poll()
    radio.poll()
    count = len(sensors) + 1
    it = station.Station(settings, chip, sensors, led=_Led(), wifi=radio, link=link)
    chip.watch()
    connect(it.client, link)
    it.turn()
    it.turn()  # the subscription has gone out, and the status
    puback = packets.puback()
    for identifier in [i for i in it.client.ids if i]:  # of the status, and of a first reading
        link.feed(puback.with_id(identifier))
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
        yield sent and it.client.pending == 0 and it.failed == 0 and count == len(it._sensors)


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
    registers = bytearray(256)
    registers[0xD0] = 0x60
    calibration = (27504, 26435, 64536, 36477, 54851, 3024, 2855, 140, 65529, 15500, 50936, 6000)
    for i, value in enumerate(calibration):
        registers[0x88 + 2 * i] = value & 255
        registers[0x89 + 2 * i] = value >> 8
    registers[0xA1] = 75
    registers[0xE1:0xE8] = b"\x69\x01\x00\x14\x27\x03\x1e"
    registers[0xF7:0xFF] = b"\x65\x5a\xc0\x7e\xed\x00\x75\x30"
    bench.i2c[0x76] = registers
    yield from _turns(chip_rp2.Chip(), attached(i2c=I2C(0, sda=1, scl=2)))
