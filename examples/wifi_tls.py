"""Publish the temperature of a Pico W's chip every minute, over Wi-Fi and TLS.

Needs `mpremote mip install build/mip/tls.json`, and a broker with TLS. `flatmq tls HOST` prints
the pin, which is all that the board has to know of the broker's certificate: no authority and no
clock. On an ESP32, `esp32.mcu_temperature()` or another sensor replaces the ADC.
"""

import time

import network
from machine import ADC

from flatmq import Client
from flatmq.every import Every
from flatmq.stream_tls import TLS

SSID, KEY = "home", "secret"
PIN = "tr7GvJ3wrqFYAWP5UFIgnHQAUVpy5nM9GCnbG2PhgEs="


def on_connect(client):
    """Replace the will, which the broker has published if the board was gone."""
    client.publish(b"dev/pico-1/status", b"online", qos=1, retain=True)


# Made first: on a Pico W, TLS needs 17 KB in one piece, and this holds it.
client = Client(b"pico-1", "broker.example", tls=TLS(pin=PIN), timeout=30, on_connect=on_connect)
client.set_credentials(b"pico-1", b"password of pico-1")
client.set_will(b"dev/pico-1/status", b"offline", qos=1, retain=True)
client.start()
wlan = network.WLAN(network.WLAN.IF_STA)
wlan.active(True)
sensor = ADC(ADC.CORE_TEMP)
join = Every(20000)
measure = Every(60000)
while True:
    if wlan.isconnected():  # without Wi-Fi, a name lookup may block for long
        client.poll(20)
    else:
        if join.due():
            wlan.disconnect()  # an ESP32 that is still trying would raise OSError
            wlan.connect(SSID, KEY)
        time.sleep_ms(20)
    if client.connected and measure.due():
        volts = sensor.read_u16() * 3.3 / 65535
        client.publish(b"dev/pico-1/temp", "%.1f" % (27 - (volts - 0.706) / 0.001721), qos=1)
