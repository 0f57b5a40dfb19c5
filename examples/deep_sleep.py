"""Wake up, publish a reading, and sleep for ten minutes: a Pico W on a battery.

Waking up is a reset, so this runs from its beginning each time. The board gives up after 20 s
without Wi-Fi or broker, to save the battery; with flatmq.spool it could keep the reading.
"""

import network
from machine import ADC, deepsleep

from flatmq import Client, MQTTError
from flatmq.port import ticks_diff, ticks_ms

SSID, KEY = "home", "secret"
SLEEP_MS = 600000
battery = ADC(26)  # on an ESP32, ADC(Pin(34))

wlan = network.WLAN(network.WLAN.IF_STA)
wlan.active(True)
wlan.connect(SSID, KEY)
began = ticks_ms()
while not wlan.isconnected() and ticks_diff(ticks_ms(), began) < 10000:
    pass
client = Client(b"garden-1", "192.168.1.10")
try:
    client.connect(10000)
    client.publish(b"dev/garden-1/battery", str(battery.read_u16()), qos=1)
    if not client.wait(5000):
        print("not acknowledged")
    client.disconnect()
except MQTTError as error:
    print(error)
wlan.active(False)
deepsleep(SLEEP_MS)
