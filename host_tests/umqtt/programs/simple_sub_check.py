"""Look for messages now and then: the other way of example_sub of umqtt.simple."""

import time

import desk
from umqtt.simple import MQTTClient

seen = []


def on_message(topic, msg):
    seen.append(msg)
    print((topic, msg))


client = MQTTClient("subscriber", desk.HOST, desk.PORT)
client.set_callback(on_message)
client.connect()
client.subscribe(b"foo_topic")
print(client.check_msg(), client.check_msg())
desk.ask("publish", "foo_topic", "one")
desk.ask("publish", "foo_topic", "two", "1")
ops = []
while len(seen) < 2:
    before = len(seen)
    op = client.check_msg()
    if op is not None:
        ops.append(op)
        print("messages of one call:", len(seen) - before)
    time.sleep(0.01)
print(ops, client.check_msg())
client.disconnect()
desk.end()
