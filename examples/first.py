"""Publish every five seconds and print commands. Needs a broker, and on a board its Wi-Fi."""

from flatmq import Client
from flatmq.every import Every

client = Client(b"pico-1", "192.168.1.10")  # your broker
client.subscribe(b"dev/pico-1/cmd", lambda message: print(message.text()), qos=1)
client.start()
report = Every(5000)
while True:
    client.poll(20)  # connects, sends, receives and reconnects; returns after at most 20 ms
    if report.due():
        client.publish(b"dev/pico-1/temp", b"21.5", qos=1)  # sent again until acknowledged
