"""Raspberry Pi Pico and Pico 2: publish their temperature and attached sensors over USB serial."""

from machine import I2C, Pin

from attached import attached
from chip_rp2 import Chip
from flatmq import stream_uart
from settings import load
from station import Station

settings = load()  # the broker is given to `flatmq bridge`, at the other end
sensors = attached(
    one_wire=Pin(22),  # DS18B20, with 4.7 k to 3V3
    dht=Pin(15),  # DHT22
    i2c=I2C(0, sda=Pin(4), scl=Pin(5), freq=400000),  # BME280
)
Station(
    settings,
    Chip(),
    sensors,
    led=Pin("LED", Pin.OUT),
    link=stream_uart.usb(),
).run()
