"""The floor: loops that no client can beat, with ready-made packets and no protocol.

`publish` makes one write per packet, `receive` one read per message.
"""

import socket

import packets
from packets import PAYLOAD, SIZE, TOPICS, seen

PACKET = packets.publish(TOPICS[0], PAYLOAD, 0, 0)
ONE = bytearray(SIZE)


def load():
    pass


def connect(port, name):
    s = socket.socket()
    s.connect(socket.getaddrinfo("127.0.0.1", port)[0][-1])
    s.send(b"\x10" + bytes((12 + len(name),)) + b"\0\4MQTT\4\2\0\0\0" + bytes((len(name),)) + name)
    s.recv(4)
    return s


def subscribe(s, topic):
    pass


def publish(s, n):
    write = s.write
    packet = PACKET
    for _ in range(n):
        write(packet)


def receive(s, n):
    into = ONE
    left = n * SIZE
    s.setblocking(False)  # a blocking socket would wait until the buffer is full
    read = s.readinto
    while left > 0:
        left -= read(into) or 0
    seen[0] += n
