"""What a program does in each turn to say why it ended."""

from flatmq.crash import Crashes
from scripted_link import online


def no_crash_to_publish(proof):
    """Each minute the free heap is looked at, after a collection."""
    link, client = online()
    crashes = Crashes(client, b"dev/pico-1/crash", path="no-such-file")
    while True:
        link.now += 60000
        before = crashes.uptime
        crashes.poll()
        yield crashes.uptime == before + 60
