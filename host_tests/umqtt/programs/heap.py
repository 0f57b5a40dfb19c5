"""Bytes of heap that each operation asks for, on MicroPython, with a message of 40 bytes."""

import gc

import desk
import micropython
from umqtt.simple import MQTTClient

TIMES = 50
PAYLOAD = bytes(40)

seen = []


def take(topic, msg):
    seen[:] = [None]


def publish():
    client.publish(b"sensors/pico-1/temp", PAYLOAD)


def publish_qos1():
    client.publish(b"sensors/pico-1/temp", PAYLOAD, qos=1)


def check_msg():
    client.check_msg()


def ping():
    client.ping()
    client.wait_msg()


def receive():
    other.publish(b"sensors/pico-1/set", PAYLOAD)
    before = micropython.mem_total()
    client.wait_msg()
    return micropython.mem_total() - before


client = MQTTClient(b"heap", desk.HOST, desk.PORT)
client.set_callback(take)
client.connect()
client.subscribe(b"sensors/pico-1/set")
other = MQTTClient(b"other", desk.HOST, desk.PORT)
other.connect()
for operation in (publish, publish_qos1, check_msg, ping, receive):
    operation()
    gc.collect()
    total = 0
    for _ in range(TIMES):
        before = micropython.mem_total()
        own = operation()
        total += micropython.mem_total() - before if own is None else own
    print("case", operation.__name__, total // TIMES)
desk.end()
