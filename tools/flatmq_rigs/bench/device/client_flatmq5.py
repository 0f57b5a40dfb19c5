"""flatmq at MQTT 5: the calls of `client_flatmq`, and those with what only MQTT 5 has."""

import client_flatmq
from client_flatmq import (  # noqa: F401 - what is measured
    PAYLOAD,
    idle,
    ping,
    publish,
    publish1,
    publish_burst,
    publish_topics,
    qos1,
    receive,
    receive1,
    subscribe,
)

from packets import SIZE, TOPICS

receive_tagged = receive
receive1_tagged = receive1
# Each message has the length of its properties, which is 0.
sizes = dict.fromkeys(("publish", "publish_burst", "publish_topics"), SIZE + 1)
sizes["publish_properties"] = SIZE + 14
made = []  # the properties that messages are published with


def load():
    client_flatmq.load()


def connect(port, name):
    return client_flatmq.connect(port, name, 5)


def prepare(function):
    """Have messages handled as the function needs it."""
    client_flatmq.prepare(function)
    if function == "publish_properties":
        from flatmq.properties import Properties

        made.append(Properties(content_type=b"text/plain"))


def publish_properties(client, n):
    """Publish as `publish` does, with one set of properties."""
    p = made[0]
    for _ in range(n):
        while client.publish(TOPICS[0], PAYLOAD, properties=p) is None:
            client.poll(0)
        client.flush()
