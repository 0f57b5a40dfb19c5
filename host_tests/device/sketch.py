"""Connect, publish and receive once: `sketch.py HOST PORT`."""

import sys

from flatmq import Client


def main(host, port):
    seen = bytearray(4)
    client = Client(b"sketch", host, port, tx_size=512, rx_size=256)
    client.connect(15000)
    client.subscribe(b"sketch/lamp", lambda message: message.copy(seen), 1)
    client.publish(b"sketch/lamp", b"21.5", 1)
    for _ in range(1000):
        if seen[3] and not client.pending:
            break
        client.poll(15)
    print("SEEN", seen.decode())


main(sys.argv[1], int(sys.argv[2]))
