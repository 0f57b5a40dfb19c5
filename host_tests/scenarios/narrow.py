"""A broker whose Receive Maximum is smaller than what the client could have in flight."""

BROKER = "narrow"
VERSIONS = (5,)


def receive_maximum(env):
    """No more messages are accepted at QoS 1 and 2 than the broker takes at a time.

    QoS 0 and what is settled go on, and all arrive.
    """
    topic = env.name(b"narrow")
    client = env.client(b"c", inflight=8)
    inbox = env.subscribed(client, topic, 2)
    env.equal(client.server.receive_maximum, 2, "Receive Maximum")
    wanted = []
    full = 0
    for number in range(30):
        payload = b"%d" % number
        while client.publish(topic, payload, 1 + number % 2) is None:
            env.equal(client.pending, 2, "pending while there is no room")
            full += 1
            client.poll(1)
        wanted.append(payload)
    env.equal(client.publish(topic, b"at 0", 0), 0, "QoS 0")
    wanted.append(b"at 0")
    env.until("the rest", lambda: not client.pending, client)
    env.arrive(inbox, 31, client)
    env.equal(sorted(inbox.payloads()), sorted(wanted), "messages")
    env.equal(full > 0, True, "there was no room at times")


def accepted_before_it_was_known(env):
    """More than the broker takes at a time was accepted while offline: it goes in turn."""
    inbox = env.Inbox()
    topic = env.name(b"many")
    client = env.client(b"c", inflight=8)
    client.subscribe(topic, inbox.take, qos=2)
    wanted = [b"%d" % number for number in range(8)]
    for number, payload in enumerate(wanted):
        env.equal(client.publish(topic, payload, 1 + number % 2) is None, False, "accepted")
    client.connect(timeout_ms=15000)
    env.until("the rest", lambda: not client.pending, client)
    env.arrive(inbox, 8, client)
    env.equal(sorted(inbox.payloads()), wanted, "messages")
    env.equal((client.stats.dropped, client.stats.connects), (0, 1), "dropped, connects")
