"""A peer that is there no more, or does not read, and does not say so."""


def _waiting(env, client):
    """Have what `option` says wait for an acknowledgement: QoS 1, QoS 2, or nothing."""
    if env.option:
        env.accepted(client, int(env.option))
        client.flush()


def silent_peer(env, client):
    """Everything is swallowed, idle or while a publish waits. The keep alive finds it."""
    env.ask("strike", "silence")
    env.fault()
    _waiting(env, client)
    env.loses(client, "timeout")
    _waiting(env, client)


def silent_then_reset(env, client):
    """The broker's host goes, comes back, and knows nothing of the connection."""
    env.ask("strike", "silence")
    env.accepted(client, 1, 2)
    for _ in range(10):
        env.poll(client)
    env.equal(client.connected, True, "connected")
    env.fault()
    env.ask("strike", "reset")
    env.loses(client, "closed")


def _fill(env, client, size):
    """Publish at QoS 0 until there is no room, neither here nor in the network.

    `publish` and `poll` go on returning.
    """
    full = 0
    while full < 5:
        if env.publish(client, 0, size) is not None:
            full = 0
        elif client.flush():
            full += 1
            env.poll(client)


def peer_stops_reading(env, client):
    """The peer reads no more while the client publishes, and never again."""
    env.ask("strike", "stall")
    env.fault()
    env.accepted(client, 1, 2)
    _fill(env, client, 500)
    while env.publish(client, 1, 500) is not None:
        _fill(env, client, 500)  # the network took more, late
    env.equal(client.connected, True, "connected")
    env.loses(client, "timeout")


def peer_stops_reading_for_a_while(env, client):
    """It goes on before the client gives it up. Nothing is lost then, at QoS 0 either."""
    env.ask("intact")
    env.ask("strike", "stall")
    env.fault()
    env.accepted(client, 1, 2)
    _fill(env, client, 500)
    env.saw("no room")
    env.ask("resume")
    losses = client.stats.losses
    env.recovers(client)
    env.equal(client.stats.losses, losses, "losses")


def partial_writes(env, client):
    """Messages of 8 KB over a network that takes a part of them at a time, or nothing."""
    env.ask("intact")
    env.fault()
    for _ in range(5):
        for qos in range(3):
            env.until("room", lambda q=qos: env.publish(client, q, 8192) is not None, client)
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.saw("every message, unharmed")


def larger_than_the_heap(env, client):
    """A message of 100 KB comes to a smaller heap.

    It is passed over, and what follows is in step.
    """
    env.fault()
    for qos in range(3):
        env.ask("publish_unseen", qos, 100 << 10)
        skipped = client.stats.skipped
        env.until("the message", lambda s=skipped: client.stats.skipped > s, client)
    env.saw("skipped and counted")
    losses = client.stats.losses
    env.recovers(client)
    env.equal(client.stats.losses, losses, "losses")


def disconnects_while_messages_wait(env, client):
    """The application disconnects from a silent broker.

    It takes no longer than it was given, and what was not acknowledged goes out after the next
    start.
    """
    env.ask("strike", "silence")
    env.accepted(client, 1, 2)
    env.fault()
    link = env.link(client)
    link.waited = 0
    client.disconnect(300)
    env.saw("offline, 2 pending")
    env.equal(link.waited <= 300, True, f"waited {link.waited} ms")
    env.equal((client.state, client.pending), ("offline", 2), "client")
    client.start()
