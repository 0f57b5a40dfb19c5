"""Each turn of a program that says why it ended, or what it prints."""

import packets
from flatmq.crash import Crashes
from flatmq.log import Log
from flatmq.timesync import TimeSync
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


def _log():
    link, client = online()
    log = Log(client, b"dev/pico-1/log", 128)
    client.poll()
    link.give(packets.suback(0).with_id(link.identifier(2)))
    link.took_any()
    return link, client, log


def printing_while_nobody_listens(proof):
    """The oldest bytes make room, and what is larger than the room is cut."""
    _, _, log = _log()
    large = bytes(300)
    while True:
        done = log.write(b"a line of 21 bytes, n\n") == 22
        yield log.write(large) == 300 and done


def printing_while_somebody_listens(proof):
    link, client, log = _log()
    listen = packets.publish(b"dev/pico-1/log/listen", b"30")
    while True:
        link.give(listen)
        log.write(b"a line of 22 bytes, .\n")
        link.now = link.now + 200 & 0x3FFFFFFF
        log.poll()
        client.flush()
        yield link.took_any()


def a_clock_that_is_set(proof):
    """Between two requests, an hour apart."""
    link, client = online()
    sync = TimeSync(client, b"dev/pico-1/time", set=print)
    sync.poll()
    while True:
        link.now += 20
        sync.poll()
        yield sync.answers == 0
