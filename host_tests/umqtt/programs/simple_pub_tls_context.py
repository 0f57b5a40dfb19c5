"""Publish over TLS with an SSLContext, as umqtt.simple takes it since 1.4."""

import ssl

import desk
from umqtt.simple import MQTTClient

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
if hasattr(context, "check_hostname"):
    context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
client = MQTTClient("publisher", desk.HOST, desk.PORT, "alice", "s3cret", 60, context)
client.set_callback(lambda topic, msg: print(topic, len(msg), msg[:5]))
print(client.connect())
client.subscribe(b"foo_topic", 1)
client.publish(b"foo_topic", b"hello", qos=1)
client.publish(b"foo_topic", b"x" * 20000)
client.wait_msg()
desk.ask("cut")
try:
    client.wait_msg()
except OSError:
    print(client.connect())
client.publish(b"other_topic", b"back", qos=1)
client.disconnect()
desk.end()
