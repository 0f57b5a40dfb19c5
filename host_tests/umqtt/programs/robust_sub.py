"""Wait for messages in a session that the broker keeps: example_sub_robust of umqtt.robust."""

import desk
from umqtt.robust import MQTTClient

client = MQTTClient("keeper", desk.HOST, desk.PORT)
client.DEBUG = True
client.DELAY = 0
client.set_callback(lambda topic, msg: print((topic, msg)))
if not client.connect(clean_session=False):
    print("a new session")
    client.subscribe(b"foo_topic", qos=1)
desk.ask("publish", "foo_topic", "first", "1")
client.wait_msg()
desk.ask("cut")
desk.ask("publish", "foo_topic", "second", "1")
client.wait_msg()
client.disconnect()
desk.ask("publish", "foo_topic", "third", "1")
if client.connect(clean_session=False):
    print("the same session")
client.wait_msg()
client.disconnect()
desk.end()
