"""A board that sends back what it gets, over its console. Runs on MicroPython.

echo.py NAME PATIENCE: topic NAME/in to NAME/out at the same QoS, until the payload "stop". What
comes to NAME/large, of up to 20,000 bytes, it sends to NAME/large/out once it is whole.
"""

import sys

from flatmq import Client, stream_uart

name = sys.argv[1].encode()
patience = int(sys.argv[2])
todo = []
link = stream_uart.usb(patience=patience)
client = Client(
    name, link=link, clean_session=False, tx_size=1024, rx_size=512, retry_ms=10, retry_max_ms=20
)
client.set_will(name + b"/will", b"lost", 1)
client.subscribe(name + b"/in", lambda m: todo.append((m.qos, m.payload)), 2)
store = bytearray(20000)
size = 0


def take(message):
    """A piece of a large message."""
    global size
    message.copy(memoryview(store)[message.offset :])
    if message.last:
        size = message.total


client.subscribe(name + b"/large", take, 1, chunks=True)
client.start()
going = True
count = 0
while going or client.pending:
    client.poll(20)
    while todo:
        qos, payload = todo[0]
        if client.publish(name + b"/out", payload, qos) is None:
            break
        todo.pop(0)
        count += 1
        print("echo", count)
        if payload == b"stop":
            going = False
    if size and client.publish_from(name + b"/large/out", memoryview(store)[:size], 1):
        size = 0
client.disconnect()
print("losses", client.stats.losses, "errors", link.errors, file=sys.stderr)
