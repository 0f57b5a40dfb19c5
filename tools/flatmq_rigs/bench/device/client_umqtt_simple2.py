"""umqtt.simple2: publishes without waiting, `check_msg` collects the acknowledgements."""

from packets import BURST, PAYLOAD, TOPICS, seen, since_ms, ticks_ms

IN_FLIGHT = 4
MQTTClient = None


def load():
    global MQTTClient
    from umqtt.simple2 import MQTTClient


def on_message(topic, payload, retain, dup):
    if payload:
        seen[0] += 1


def connect(port, name):
    client = MQTTClient(name, "127.0.0.1", port, keepalive=60)
    client.set_callback(on_message)
    client.connect()
    return client


def acknowledged(client, left=0):
    while len(client.rcv_pids) > left:
        client.check_msg()


def subscribe(client, topic, qos):
    client.subscribe(topic, qos)
    acknowledged(client)


def publish(client, n):
    for _ in range(n):
        client.publish(TOPICS[0], PAYLOAD)


def publish_burst(client, n):
    for _ in range(n // BURST):
        for _ in range(BURST):
            client.publish(TOPICS[0], PAYLOAD)
        client.check_msg()


def publish1(client, n):
    for _ in range(n):
        client.publish(TOPICS[0], PAYLOAD, qos=1)
        acknowledged(client)


def receive(client, n):
    while seen[0] < n:
        client.check_msg()


receive1 = receive


def ping(client, n):
    for _ in range(n):
        client.ping()
        client.wait_msg()


def idle(client, n):
    for _ in range(n):
        client.check_msg()


def qos1(client, ms):
    start = ticks_ms()
    count = 0
    while since_ms(start) < ms:
        client.publish(TOPICS[0], PAYLOAD, qos=1)
        count += 1
        acknowledged(client, IN_FLIGHT - 1)
    acknowledged(client)
    return count
