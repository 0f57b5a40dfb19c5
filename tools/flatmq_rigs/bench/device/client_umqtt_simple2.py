"""umqtt.simple2: publishes without waiting, `check_msg` collects the acknowledgements."""

import client_umqtt_simple as simple
from client_umqtt_simple import connect, idle, ping, publish, publish_burst, receive  # noqa: F401

from packets import PAYLOAD, TOPICS, seen, since_ms, ticks_ms

IN_FLIGHT = 4
receive1 = receive


def load():
    from umqtt.simple2 import MQTTClient

    simple.MQTTClient = MQTTClient
    simple.on_message = on_message


def on_message(topic, payload, retain, dup):
    if payload:
        seen[0] += 1


def acknowledged(client, left=0):
    while len(client.rcv_pids) > left:
        client.check_msg()


def subscribe(client, topic, qos):
    client.subscribe(topic, qos)
    acknowledged(client)


def publish1(client, n):
    for _ in range(n):
        client.publish(TOPICS[0], PAYLOAD, qos=1)
        acknowledged(client)


def qos1(client, ms):
    start = ticks_ms()
    count = 0
    while since_ms(start) < ms:
        client.publish(TOPICS[0], PAYLOAD, qos=1)
        count += 1
        acknowledged(client, IN_FLIGHT - 1)
    acknowledged(client)
    return count
