"""Publish each press of a button: example_pub_button of umqtt.simple."""

import binascii

import desk
from machine import Pin, unique_id
from umqtt.simple import MQTTClient

button = Pin(0, Pin.IN)
client = MQTTClient(binascii.hexlify(unique_id()), desk.HOST, desk.PORT)
client.connect()
for _ in range(3):
    while button.value():
        pass
    print("pressed")
    client.publish(b"led", b"toggle")
client.disconnect()
desk.end()
