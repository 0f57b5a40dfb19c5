"""umqtt.simple: blocking; a burst is the same as one message at a time."""

from packets import BURST, PAYLOAD, TOPICS, seen, since_ms, ticks_ms

MQTTClient = None


def load():
    global MQTTClient
    from umqtt.simple import MQTTClient


def on_message(topic, payload):
    if payload:
        seen[0] += 1


def connect(port, name):
    client = MQTTClient(name, "127.0.0.1", port, keepalive=60)
    client.set_callback(on_message)
    client.connect()
    return client


def subscribe(client, topic):
    client.subscribe(topic)


def publish(client, n):
    for _ in range(n):
        client.publish(TOPICS[0], PAYLOAD)


def publish_burst(client, n):
    for _ in range(n // BURST):
        for _ in range(BURST):
            client.publish(TOPICS[0], PAYLOAD)
        client.check_msg()


def receive(client, n):
    while seen[0] < n:
        client.check_msg()


def qos1(client, ms):
    start = ticks_ms()
    count = 0
    while since_ms(start) < ms:
        client.publish(TOPICS[0], PAYLOAD, qos=1)
        count += 1
    return count
