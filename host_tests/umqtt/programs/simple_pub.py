"""Publish one message: example_pub of umqtt.simple."""

import desk
from umqtt.simple import MQTTClient

client = MQTTClient("publisher", desk.HOST, desk.PORT)
print(client.connect())
print(client.publish(b"foo_topic", b"hello"))
print(client.disconnect())
desk.end()
