"""Topic aliases of MQTT 5, over TCP, with a real broker."""

from sockets import TOPIC, Echo


def there_and_back_with_a_topic_alias(proof):
    echo = Echo(proof, 0)
    alias = echo.client.alias(TOPIC)
    while True:
        echo.count = 0
        yield echo.back(alias.publish(b"-1500"))
