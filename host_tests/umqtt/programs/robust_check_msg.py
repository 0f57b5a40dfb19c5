"""Look for messages on a connection that is gone: example_check_msg_robust of umqtt.robust."""

import desk
from umqtt.robust import MQTTClient

client = MQTTClient("checker", desk.HOST, desk.PORT, keepalive=5)
client.DEBUG = True
client.connect()
desk.ask("cut")
print(client.check_msg())
client.publish(b"alive", b"yes", qos=1)
client.disconnect()
desk.end()
