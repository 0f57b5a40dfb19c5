"""Pass all of sensors/# from one broker on to another, exactly once (QoS 2).

Needs two brokers that keep sessions, such as mosquitto. Nothing is acknowledged to the first one
before the second one has it, so an outage of either loses and repeats nothing. If the bridge is
restarted, messages that it had not acknowledged are passed on again.
"""

from flatmq import Client


class NoRoom(Exception):
    """The second client has no room for the message."""


def forward(message):
    """Publish a message at the second broker. The client delivers it again if this raises."""
    if there.publish(message.topic, message.payload, qos=2, retain=message.retain) is None:
        raise NoRoom


def passed_on(same):
    """Return whether messages of the first broker may be acknowledged now."""
    return there.pending == 0


# Messages may have 4 KB.
here = Client(b"bridge", "192.168.1.10", clean_session=False, rx_size=4096, give_up=0)
there = Client(b"bridge", "192.168.1.11", clean_session=False, tx_size=8192)
here.gate = passed_on
here.subscribe(b"sensors/#", forward, qos=2)
here.start()
there.start()
while True:
    there.poll(10)
    try:
        here.poll(10)
    except NoRoom:
        continue  # it comes again
