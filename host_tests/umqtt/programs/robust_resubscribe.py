"""Subscribe again after each reconnect: example_resubscribe_robust of umqtt.robust."""

import desk
from umqtt.robust import MQTTClient


class Client(MQTTClient):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.topics = []

    def connect(self, clean_session=True):
        if super().connect(clean_session):
            return True
        for topic in self.topics:
            self.subscribe(topic)
        return False

    def subscribe(self, topic):
        print("subscribes to", topic)
        super().subscribe(topic)
        if topic not in self.topics:
            self.topics.append(topic)


seen = []


def on_message(topic, msg):
    seen.append(msg)


client = Client("test_client", desk.HOST, desk.PORT, keepalive=5)
client.DEBUG = True
client.set_callback(on_message)
client.connect()
client.subscribe(b"test/topic/a")
client.publish(b"test/topic/a", b"message 1")
client.wait_msg()
print(seen)
desk.ask("cut")
client.publish(b"test/topic/a", b"message 2")  # umqtt may lose it
client.check_msg()
client.publish(b"test/topic/a", b"message 3")
while b"message 3" not in seen:
    client.wait_msg()
print(seen[0], seen[-1])
client.disconnect()
desk.end()
