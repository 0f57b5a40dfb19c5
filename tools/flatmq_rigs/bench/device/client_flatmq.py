"""flatmq as shipped."""

from packets import BURST, PAYLOAD, TOPICS, seen, since_ms, ticks_ms

Client = None


def load():
    global Client
    from flatmq import Client


def comparing(message):
    """Look at every byte, and take only a payload that is right."""
    if message.is_payload(PAYLOAD):
        seen[0] += 1


def connect(port, name):
    client = Client(name, "127.0.0.1", port)
    client.connect()
    return client


def subscribe(client, topic):
    wanted = client.subscribe(topic, comparing)
    while wanted.granted is None:
        client.poll(1)


def publish(client, n):
    """Each message is handed to the socket before the next is published."""
    for _ in range(n):
        while client.publish(TOPICS[0], PAYLOAD) is None:
            client.poll(0)
        client.flush()


def publish_burst(client, n):
    for _ in range(n // BURST):
        for _ in range(BURST):
            while client.publish(TOPICS[0], PAYLOAD) is None:
                client.poll(0)
        client.poll(0)


def receive(client, n):
    while seen[0] < n:
        client.poll(0)


def qos1(client, ms):
    """Publish for so many ms, as many in flight as there is room for."""
    start = ticks_ms()
    count = 0
    while since_ms(start) < ms:
        if client.publish(TOPICS[0], PAYLOAD, 1) is None:
            client.poll(1)
        else:
            count += 1
    while client.pending:
        client.poll(1)
    return count
