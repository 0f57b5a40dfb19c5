"""Switch a lamp by messages: example_sub_led of umqtt.simple."""

import binascii

import desk
from machine import Pin, unique_id
from umqtt.simple import MQTTClient

led = Pin(2, Pin.OUT, value=1)
state = 0


def on_message(topic, msg):
    global state
    print((topic, msg))
    if msg == b"on":
        led.value(0)
        state = 1
    elif msg == b"off":
        led.value(1)
        state = 0
    elif msg == b"toggle":
        led.value(state)
        state = 1 - state


client = MQTTClient(binascii.hexlify(unique_id()), desk.HOST, desk.PORT)
client.set_callback(on_message)
client.connect()
client.subscribe(b"led")
for word in ("on", "toggle", "toggle", "off", "toggle"):
    desk.ask("publish", "led", word)
try:
    for _ in range(5):
        client.wait_msg()
finally:
    client.disconnect()
desk.end()
