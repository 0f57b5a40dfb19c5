"""Subscribe and unsubscribe with ever more memory, and each time again with enough: `... VERSION`.

The code is loaded before. It prints how often memory was too short, and how often a call that
raised has changed the client, or one that did not raise has not done all of its work.
"""

import gc
import sys

import packets
import scripted_link
from flatmq import port
from little_memory import empty, fill, list_of_blocks

A, B, C = b"a", b"b/longer/name", b"c"


def handler(message):
    pass


def other(message):
    pass


def state(client):
    """Return what a call changes."""
    return [
        [(s.filters, s.names, s.handler, s.granted) for s in client.subscriptions],
        [(r.filters, r.handler) for r in client.requests],
    ]


def asked(client, link):
    """Return how many requests the client sends, all of which are granted."""
    n = 0
    for _ in range(12):
        link.now += 1000
        client.poll()
        while client.requests and client.requests[0].id:
            r = client.requests[0]
            n += 1
            five = b"\0" if packets.version == 5 else b""
            codes = b"\1" * len(r.asked) if r.handler or five else b""
            if five and not r.handler:
                codes = b"\0" * len(r.asked)
            body = bytes((r.id >> 8, r.id & 255)) + five + codes
            link.give(bytes((0x90 if r.handler else 0xB0, len(body))) + body)
        link.took_any()
    return n


def attempt(call, arguments):
    """Call with little memory. Returns whether it raised."""
    try:
        call(*arguments)
    except MemoryError:
        return True
    return False


def main(version):
    packets.speak(version)
    for name in ("subscribing", "wire", "v5.subscribing"):
        port.load(name, "").held = True
    blocks = list_of_blocks()
    short = wrong = 0
    calls = (
        ("subscribe", (C, handler, 1)),
        ("subscribe", ([A, B], other, 1)),  # replaces the one before
        ("unsubscribe", ([A],)),
        ("unsubscribe", ([B, A],)),
    )
    for call, arguments in calls:
        for left in range(0, 2400, 32):
            link, client = scripted_link.online(quiet=True)
            client.subscribe([A, B], handler, 1)
            asked(client, link)
            before = state(client)
            called = getattr(client, call)
            gc.collect()
            fill(blocks, left)
            failed = attempt(called, arguments)
            empty(blocks)
            if failed:
                short += 1
                wrong += state(client) != before
                called(*arguments)
            wrong += asked(client, link) != 1
            filters = [s.filters for s in client.subscriptions]
            handlers = [s.handler for s in client.subscriptions]
            names = [s.names for s in client.subscriptions]
            if call == "unsubscribe":
                right = filters == names == ([[B]] if arguments[0] == [A] else [])
            elif arguments[0] == C:
                right = filters == names == [[A, B], [C]]
            else:
                right = filters == names == [[A, B]] and handlers == [other]
            wrong += not right or bool(client.requests)
    print("SEEN", short, wrong)


main(*sys.argv[1:])
