"""Wait for messages: example_sub of umqtt.simple."""

import desk
from umqtt.simple import MQTTClient


def on_message(topic, msg):
    print((topic, msg))


client = MQTTClient("subscriber", desk.HOST, desk.PORT)
client.set_callback(on_message)
client.connect()
print(client.subscribe(b"foo_topic"))
for word in ("hello", "again", "bye"):
    desk.ask("publish", "foo_topic", word)
for _ in range(3):
    print(client.wait_msg())
client.disconnect()
desk.end()
