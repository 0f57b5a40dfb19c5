"""A program for umqtt.robust as they are written: what it publishes arrives."""

import desk
from umqtt.robust import MQTTClient


class Client(MQTTClient):
    DELAY = 0.01
    tries = 0

    def delay(self, i):
        if i == 3:
            desk.ask("accept")
        super().delay(i)
        self.tries = i


client = Client(b"publisher", desk.HOST, desk.PORT)
client.connect()
client.publish(b"readings", b"1", qos=1)
desk.ask("refuse")
desk.ask("cut")
client.publish(b"readings", b"2", qos=1)
print("tries", client.tries)
client.publish(b"readings", b"3", retain=True, qos=1)
client.disconnect()
desk.end()
