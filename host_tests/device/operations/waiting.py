"""Polls of a client that is not connected, with the scripted peer."""

from scripted_link import greeting, online


def for_the_next_try(proof):
    link, client = online(retry_ms=60000)
    link.end()
    client.poll()
    link.now += 100
    while True:
        client.poll()
        yield client.state == "waiting"


def for_connack(proof):
    link, client = online()
    link.end()
    client.poll()
    greeting(client, link)
    while True:
        client.poll()
        yield client.state == "greeting"
