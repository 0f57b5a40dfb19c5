"""paho-mqtt on CPython, driven by `loop` in this thread so that its CPU time is its own."""

from packets import BURST, PAYLOAD, TOPICS, seen, since_ms, ticks_ms

IN_FLIGHT = 20  # its own default
TOPIC = TOPICS[0].decode()
mqtt = None


def load():
    global mqtt
    import paho.mqtt.client as mqtt


def on_message(client, userdata, message):
    if message.payload:
        seen[0] += 1


def connect(port, name):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name.decode())
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    while not client.is_connected():
        client.loop(0.1)
    return client


def subscribe(client, topic, qos):
    granted = []
    client.on_subscribe = lambda *args: granted.append(args)
    client.subscribe(topic.decode(), qos)
    while not granted:
        client.loop(0.1)


def publish(client, n):
    for _ in range(n):
        client.publish(TOPIC, PAYLOAD)


def publish_burst(client, n):
    for _ in range(n // BURST):
        for _ in range(BURST):
            client.publish(TOPIC, PAYLOAD)
        client.loop(0)


def receive(client, n):
    while seen[0] < n:
        client.loop(0.1)


def qos1(client, ms):
    start = ticks_ms()
    count = 0
    waiting = []
    while since_ms(start) < ms or waiting:
        while len(waiting) < IN_FLIGHT and since_ms(start) < ms:
            waiting.append(client.publish(TOPIC, PAYLOAD, 1))
            count += 1
        client.loop(0.1)
        waiting = [info for info in waiting if not info.is_published()]
    return count
