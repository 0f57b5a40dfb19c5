"""Bytes of heap that receiving asks for, on MicroPython, with a message of 40 bytes."""

import gc

import desk
import micropython
from umqtt.simple import MQTTClient

TIMES = 50

client = MQTTClient(b"heap", desk.HOST, desk.PORT)
client.set_callback(lambda topic, msg: None)
client.connect()
client.subscribe(b"sensors/pico-1/set")
other = MQTTClient(b"other", desk.HOST, desk.PORT)
other.connect()
total = 0
for i in range(TIMES + 1):
    other.publish(b"sensors/pico-1/set", bytes(40))
    gc.collect()
    before = micropython.mem_total()
    client.wait_msg()
    total += micropython.mem_total() - before if i else 0
print("case receive", total // TIMES)
desk.end()
