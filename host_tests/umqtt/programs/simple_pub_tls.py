"""Publish over TLS with a user and a password: example_pub_tls of umqtt.simple."""

import desk
from umqtt.simple import MQTTClient

client = MQTTClient(
    "publisher",
    desk.HOST,
    desk.PORT,
    user="alice",
    password="s3cret",
    keepalive=60,
    ssl=True,
    ssl_params={"server_hostname": "localhost"},
)
print(client.connect())
client.publish(b"foo_topic", b"hello")
client.publish(b"foo_topic", b"again", qos=1)
client.disconnect()
desk.end()
