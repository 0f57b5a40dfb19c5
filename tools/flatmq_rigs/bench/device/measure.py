"""Measure one figure of one client and print it: `measure.py CLIENT FIGURE PORT ID [ARGUMENT]`.

CLIENT names a module `client_CLIENT` beside this file. The last line of output is
`RESULT` and a JSON value.
"""

import gc
import json
import socket
import sys

import packets
from packets import cpu_seconds, seen, since_ms, ticks_ms

PUBLISH_SEGMENT = 9600  # messages between two drains: fits the socket's send buffer
RECEIVE_SEGMENT = 960  # messages in one spray: fits its receive buffer
ALLOC_COUNT = 16
CALLS_COUNT = 480


class Peer:
    """A steering connection to the peer; a command is done when the call returns."""

    def __init__(self, port, name):
        self._socket = socket.socket()
        self._socket.connect(socket.getaddrinfo("127.0.0.1", port)[0][-1])
        self._name = name

    def _command(self, line):
        self._socket.send(line)
        if not self._socket.recv(16):
            raise OSError("the peer has gone")

    def sink(self):
        self._command(b"sink %s\n" % self._name)

    def drain(self, count):
        """Read what the client published since `sink`; fail unless all of it has come."""
        self._command(b"drain %s %d\n" % (self._name, count * packets.SIZE))

    def spray(self, count, qos):
        seen[0] = 0
        self._command(b"spray %s %d %d\n" % (self._name, count, qos))


def connected(module, port, name, subscribed=False, qos=0):
    module.load()
    client = module.connect(port, name)
    if subscribed:
        module.subscribe(client, packets.TOPICS[0], qos)
    return client


def held(module, port, name, image):
    """Return the bytes held after import and after connecting.

    With a path, import from that ROMFS image.
    """
    if image:
        packets.mount(image)
    gc.collect()
    gc.collect()
    start = gc.mem_alloc()
    module.load()
    gc.collect()
    imported = gc.mem_alloc() - start
    client = module.connect(port, name)  # noqa: F841 - held while it is weighed
    gc.collect()
    return [imported, gc.mem_alloc() - start]


def alloc(module, port, name, operation):
    """Heap bytes per operation: those left behind, and all that were asked for."""
    from micropython import mem_total

    receiving = operation.startswith("receive")
    qos = 1 if operation == "receive1" else 0
    peer = Peer(port, name)
    client = connected(module, port, name, receiving, qos)
    function = getattr(module, operation)
    gc.disable()
    for count in (8, ALLOC_COUNT):  # the first time settles what is made once
        if receiving:
            peer.spray(count, qos)
        held = gc.mem_alloc()
        total = mem_total()
        function(client, count)
        total = mem_total() - total
        held = gc.mem_alloc() - held
    return [held / ALLOC_COUNT, total / ALLOC_COUNT]


def cpu(module, port, name, argument):
    """CPU µs per message and the count; the argument is `FUNCTION MILLISECONDS`."""
    operation, budget_ms = argument.split()
    budget_ms = int(budget_ms)
    function = getattr(module, operation)
    receiving = operation == "receive"
    peer = Peer(port, name)
    client = connected(module, port, name, receiving)
    segment = RECEIVE_SEGMENT
    if not receiving:
        segment = PUBLISH_SEGMENT
        peer.sink()
    count = -segment
    wall = start = 0
    while count <= 0 or (
        (cpu_seconds() - start) * 1000 < budget_ms and since_ms(wall) < budget_ms * 20
    ):
        if receiving:
            peer.spray(segment, 0)
        function(client, segment)
        count += segment
        if not receiving:
            peer.drain(count + segment)
        if not count:  # the first segment only warms up
            gc.collect()
            wall = ticks_ms()
            start = cpu_seconds()
    return [(cpu_seconds() - start) * 1e6 / count, count]


def calls(module, port, name, operation):
    """Socket calls per message: writes, reads, others."""
    import counting

    peer = Peer(port, name)
    counting.install()
    receiving = operation == "receive"
    client = connected(module, port, name, receiving)
    if receiving:
        peer.spray(CALLS_COUNT, 0)
    else:
        peer.sink()
    counting.reset()
    getattr(module, operation)(client, CALLS_COUNT)
    if not receiving:
        peer.drain(CALLS_COUNT)
    return [count / CALLS_COUNT for count in counting.counts]


def rate(module, port, name, argument):
    """Return the messages published at QoS 1 and acknowledged per second of wall time."""
    if not hasattr(module, "qos1"):
        return None
    client = connected(module, port, name)
    module.qos1(client, 100)
    start = ticks_ms()
    count = module.qos1(client, int(argument))
    return count * 1000 / since_ms(start)


def main():
    name, figure, port, identifier = sys.argv[1:5]
    argument = sys.argv[5] if len(sys.argv) > 5 else ""
    module = __import__("client_" + name)
    function = argument.split()[0] if argument and figure != "held" else "connect"
    value = None  # a client without this operation
    if function.isdigit() or hasattr(module, function):
        value = globals()[figure](module, int(port), identifier.encode(), argument)
    print("RESULT", json.dumps(value))


main()
