"""chumicro-mqtt: a tick loop that sends one packet per tick from a queue of 20."""

# ruff: noqa: SLF001 - the client does not report what is queued or in flight

from packets import BURST, PAYLOAD, TOPICS, seen, since_ms, ticks_ms

TOPIC = TOPICS[0].decode()
MQTTClient = connector = None


def load():
    global MQTTClient, connector
    from chumicro_mqtt.client import MQTTClient
    from chumicro_sockets import connector


def on_message(topic, payload):
    if payload:
        seen[0] += 1


def connect(port, name):
    client = MQTTClient(
        transport_factory=lambda: connector("127.0.0.1", port), client_id=name.decode()
    )
    client.on_message = on_message
    client.connect()
    while client.state != "connected":
        client.handle(ticks_ms())
    return client


def subscribe(client, topic, qos):
    granted = []
    client.subscribe(topic.decode(), qos, on_subscribe=lambda *args: granted.append(args))
    while not granted:
        client.handle(ticks_ms())


def drain(client):
    while client._tx_queue or client._partial_send:
        client.handle(ticks_ms())


def publish(client, n):
    for _ in range(n):
        client.publish(TOPIC, PAYLOAD)
        client.handle(ticks_ms())


def publish_burst(client, n):
    for _ in range(n // BURST):
        for _ in range(BURST):
            client.publish(TOPIC, PAYLOAD)
        drain(client)


def publish1(client, n):
    for _ in range(n):
        client.publish(TOPIC, PAYLOAD, qos=1)
        while client._in_flight:
            client.handle(ticks_ms())


def receive(client, n):
    while seen[0] < n:
        client.handle(ticks_ms())


receive1 = receive


def ping(client, n):
    """There is no call for it: the keep-alive is made due."""
    for _ in range(n):
        client._next_ping_due_ticks = ticks_ms()
        client.handle(ticks_ms())
        while client._pending_responses:
            client.handle(ticks_ms())


def idle(client, n):
    for _ in range(n):
        client.handle(ticks_ms())


def qos1(client, ms):
    start = ticks_ms()
    count = 0
    while since_ms(start) < ms:
        if len(client._tx_queue) < client._max_tx_queue_size and len(client._in_flight) < 20:
            client.publish(TOPIC, PAYLOAD, qos=1)
            count += 1
        client.handle(ticks_ms())
    while client._in_flight:
        client.handle(ticks_ms())
    return count
