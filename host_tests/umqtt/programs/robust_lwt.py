"""Report whether the board is online: example_lwt_robust of umqtt.robust."""

import desk
from umqtt.robust import MQTTClient


class Enough(Exception):
    pass


class Client(MQTTClient):
    connects = 0

    def connect(self, clean_session=True):
        self.set_last_will(b"tele/test/LWT", b"Offline", retain=True)
        try:
            return super().connect(clean_session)
        finally:
            self.publish(b"tele/test/LWT", b"Online", retain=True, qos=1)
            self.connects += 1
            if self.connects == 3:
                raise Enough


client = Client("test_client", desk.HOST, desk.PORT, keepalive=5)
client.DEBUG = True
client.connect()
try:
    desk.ask("cut")
    client.check_msg()
    desk.ask("cut")
    client.wait_msg()
except Enough:
    print("enough")
client.disconnect()
desk.end()
