"""ESP32-S3 (DevKitC-1): publish its temperature and attached sensors over Wi-Fi."""

from machine import I2C, Pin

from attached import attached
from chip_esp32 import Chip
from pixel import Pixel
from settings import load
from station import Station
from wifi import Wifi

settings = load("wifi.ssid", "broker.host")
sensors = attached(
    one_wire=Pin(4),  # DS18B20, with 4.7 k to 3V3
    dht=Pin(15),  # DHT22
    i2c=I2C(0, sda=Pin(8), scl=Pin(9), freq=400000),  # BME280
)
Station(
    settings,
    Chip(),
    sensors,
    led=Pixel(Pin(48)),
    wifi=Wifi(**settings["wifi"]),
).run()
