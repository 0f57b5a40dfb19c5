"""Obey commands and answer each one, to a topic that the command names.

    mosquitto_pub -t dev/pico-1/cmd -m '{"do": "interval", "to": 5, "answer": "desk/7"}'

Needs a broker, and on a board its Wi-Fi. With MQTT 5, `message.properties` has the topic of the
answer: see docs/mqtt5.md.
"""

from flatmq import Client
from flatmq.every import Every

LONGEST = 10  # answers that may wait
answers: list = []  # topic and payload of each
report = Every(60000)


def obey(command):
    """Do what a command says, and return the answer."""
    if command["do"] == "interval" and 1 <= command["to"] <= 3600:
        report.ms = command["to"] * 1000
        return "done"
    return "refused: interval, 1 to 3600"


def on_command(message):
    """Note the answer: a handler must not wait, so the loop below publishes it."""
    try:
        command = message.json()
        if len(answers) < LONGEST:
            answers.append((command["answer"], obey(command)))
    except (ValueError, KeyError, TypeError) as error:
        print("not a command:", error)


client = Client(b"pico-1", "192.168.1.10")
client.subscribe(b"dev/pico-1/cmd", on_command, qos=1)
client.start()
while True:
    client.poll(20)
    if answers:
        topic, payload = answers[0]
        if client.publish(topic, payload, qos=1) is not None:
            answers.pop(0)  # else there was no room: again after the next poll
    if report.due():
        client.publish(b"dev/pico-1/status", b"online", qos=1)
