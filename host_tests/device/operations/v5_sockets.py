"""Additional features of MQTT 5, over TCP, with a real broker."""

from flatmq.port import ticks_diff, ticks_ms
from flatmq.properties import Properties
from sockets import ANSWER_MS, TOPIC, Echo

_TYPE = 0x03  # Content Type
_IDENTIFIER = 0x0B  # Subscription Identifier


def _sent_and_back(echo, publish):
    """Have a message published, and poll until it is back. Returns whether it is."""
    echo.count = 0
    began = ticks_ms()
    accepted = publish()
    while echo.client.pending or echo.count == 0:
        echo.client.poll(100)
        if ticks_diff(ticks_ms(), began) > ANSWER_MS:
            return False
    return accepted is not None and echo.count == 1


class _Looking(Echo):
    """An Echo that takes only messages with the properties that it has sent.

    They also need the identifier of its subscription.
    """

    def take(self, message):
        p = message.properties
        if p.is_value(_TYPE, b"text/plain") and p.is_user(b"unit", b"C") and p.get(_IDENTIFIER):
            Echo.take(self, message)


def _with_properties(proof, qos):
    echo = _Looking(proof, qos)
    p = Properties(content_type=b"text/plain", user=((b"unit", b"C"),))
    client = echo.client

    def publish():
        return client.publish(TOPIC, b"-1500", qos, False, p)

    while True:
        yield _sent_and_back(echo, publish)


def there_and_back_with_properties_at_qos0(proof):
    return _with_properties(proof, 0)


def there_and_back_with_properties_at_qos1(proof):
    return _with_properties(proof, 1)


def there_and_back_with_properties_at_qos2(proof):
    return _with_properties(proof, 2)


def there_and_back_with_a_topic_alias(proof):
    echo = Echo(proof, 0)
    alias = echo.client.alias(TOPIC)

    def publish():
        return alias.publish(b"-1500")

    while True:
        yield _sent_and_back(echo, publish)
