"""Adafruit MiniMQTT on MicroPython, over a CircuitPython-like socket.

Its `loop` lasts at least the socket timeout, 1 s as shipped; 10 ms here.
"""

from packets import PAYLOAD, TOPICS, seen, since_ms, ticks_ms

TIMEOUT = 0.01
TOPIC = TOPICS[0].decode()
MQTT = circuitpython_socket = None


def load():
    global MQTT, circuitpython_socket
    import circuitpython_socket
    from adafruit_minimqtt.adafruit_minimqtt import MQTT


def on_message(client, topic, payload):
    if payload:
        seen[0] += 1


def connect(port, name):
    client = MQTT(
        broker="127.0.0.1",
        port=port,
        client_id=name.decode(),
        socket_pool=circuitpython_socket,
        socket_timeout=TIMEOUT,
        use_binary_mode=True,
    )
    client.on_message = on_message
    client.connect()
    return client


def subscribe(client, topic, qos):
    client.subscribe(topic.decode(), qos)


def publish(client, n):
    for _ in range(n):
        client.publish(TOPIC, PAYLOAD)


def publish_burst(client, n):
    """No loop after the burst: it would wait for its timeout."""
    publish(client, n)


def publish1(client, n):
    for _ in range(n):
        client.publish(TOPIC, PAYLOAD, qos=1)


def receive(client, n):
    while seen[0] < n:
        client.loop(TIMEOUT)


receive1 = receive


def ping(client, n):
    for _ in range(n):
        client.ping()


def idle(client, n):
    for _ in range(n):
        client.loop(TIMEOUT)


def qos1(client, ms):
    start = ticks_ms()
    count = 0
    while since_ms(start) < ms:
        client.publish(TOPIC, PAYLOAD, qos=1)
        count += 1
    return count
