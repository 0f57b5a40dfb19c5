"""ESP32-C3 (DevKitM-1): publish its temperature and attached sensors over Wi-Fi."""

from machine import I2C, Pin

from attached import attached
from chip_esp32 import Chip
from pixel import Pixel
from settings import load
from station import Station
from wifi import Wifi

settings = load("wifi.ssid", "broker.host")
sensors = attached(
    one_wire=Pin(3),  # DS18B20, with 4.7 k to 3V3
    dht=Pin(10),  # DHT22
    i2c=I2C(0, sda=Pin(5), scl=Pin(6), freq=400000),  # BME280
)
Station(
    settings,
    Chip(),
    sensors,
    led=Pixel(Pin(8)),
    wifi=Wifi(**settings["wifi"]),
).run()
