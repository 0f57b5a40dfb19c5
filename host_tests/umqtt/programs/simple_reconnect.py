"""A program for umqtt.simple as they are written: one loop, OSError means to connect again."""

import time

import desk
from umqtt.simple import MQTTClient

commands = []


def on_command(topic, msg):
    commands.append(msg)
    client.publish(b"board/answer", b"done-" + msg)


def start():
    client.set_last_will(b"board/status", b"offline", retain=True, qos=1)
    client.set_callback(on_command)
    client.connect(clean_session=True)
    client.publish(b"board/status", b"online", True, 1)
    client.subscribe(b"board/command", qos=1)


client = MQTTClient(b"board", desk.HOST, desk.PORT, keepalive=30)
start()
asked = 0
while len(commands) < 4:
    try:
        if asked == len(commands):
            if asked == 2:
                desk.ask("seen", "board/answer", "done-c1")
                desk.ask("cut")
                asked = -1
                client.wait_msg()
                print("not reached")
            for _ in range(2):
                desk.ask("publish", "board/command", f"c{asked}", "1")
                asked += 1
        client.check_msg()
        time.sleep(0.005)
    except OSError:
        print("lost")
        start()
        asked = 2
        for _ in range(2):
            desk.ask("publish", "board/command", f"c{asked}", "1")
            asked += 1
desk.ask("seen", "board/answer", "done-c3")
client.disconnect()
print(commands)
desk.end()
