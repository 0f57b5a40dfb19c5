"""One loop, two brokers: take temperatures from one, and publish alarms at the other.

Needs two brokers, and on a board its Wi-Fi. Each client reconnects by itself, so an outage of one
broker does not disturb the other client.
"""

from flatmq import Client

LIMIT = 60  # whole degrees

alarm = [False]


def on_temperature(message):
    """Publish the alarm when it begins and when it ends."""
    hot = (message.number() or 0) > LIMIT
    if hot != alarm[0]:
        text = b"too hot" if hot else b"fine"
        if owner.publish(b"boiler-7/alarm", text, qos=1, retain=True) is not None:
            alarm[0] = hot  # else there was no room: again with the next temperature


home = Client(b"boiler", "192.168.1.10")
owner = Client(b"boiler-7", "192.168.1.11", keepalive=300)
home.subscribe(b"boiler/temp", on_temperature, qos=1)
home.start()
owner.start()
while True:
    home.poll(10)
    owner.poll(10)
