"""Measure one figure of one client and print it: `measure.py CLIENT FIGURE PORT ID ARGUMENT`.

CLIENT names a module `client_CLIENT` beside this file. The last line of output is
`RESULT` and a list as JSON.
"""

import gc
import json
import socket
import sys

import packets
from packets import cpu_seconds, seen, since_ms, ticks_ms

PUBLISH_SEGMENT = 9600  # messages between two drains: fits the socket's send buffer
RECEIVE_SEGMENT = 960  # messages in one spray: fits its receive buffer
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

    def spray(self, count):
        seen[0] = 0
        self._command(b"spray %s %d\n" % (self._name, count))


def connected(module, port, name, subscribed=False):
    module.load()
    client = module.connect(port, name)
    if subscribed:
        module.subscribe(client, packets.TOPICS[0])
    return client


def cpu(module, port, name, argument):
    """CPU µs per message; the argument is `FUNCTION MILLISECONDS`."""
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
            peer.spray(segment)
        function(client, segment)
        count += segment
        if not receiving:
            peer.drain(count + segment)
        if not count:  # the first segment only warms up
            gc.collect()
            wall = ticks_ms()
            start = cpu_seconds()
    return [(cpu_seconds() - start) * 1e6 / count]


def calls(module, port, name, operation):
    """Socket calls per message: writes, reads, others."""
    import counting

    peer = Peer(port, name)
    counting.install()
    receiving = operation == "receive"
    client = connected(module, port, name, receiving)
    if receiving:
        peer.spray(CALLS_COUNT)
    else:
        peer.sink()
    counting.reset()
    getattr(module, operation)(client, CALLS_COUNT)
    if not receiving:
        peer.drain(CALLS_COUNT)
    return [count / CALLS_COUNT for count in counting.counts]


def rate(module, port, name, argument):
    """Return the messages published at QoS 1 and acknowledged per second of wall time."""
    client = connected(module, port, name)
    module.qos1(client, 100)
    start = ticks_ms()
    count = module.qos1(client, int(argument))
    return [count * 1000 / since_ms(start)]


def main():
    name, figure, port, identifier, argument = sys.argv[1:]
    module = __import__("client_" + name)
    value = globals()[figure](module, int(port), identifier.encode(), argument)
    print("RESULT", json.dumps(value))


main()
