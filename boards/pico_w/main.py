"""Raspberry Pi Pico W and Pico 2 W: publish their temperature and attached sensors over Wi-Fi."""

from machine import I2C, Pin

from attached import attached
from chip_rp2 import Chip
from settings import load
from station import Station
from wifi import Wifi

settings = load("wifi.ssid", "broker.host")
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
    wifi=Wifi(**settings["wifi"], power_save=False),
).run()
