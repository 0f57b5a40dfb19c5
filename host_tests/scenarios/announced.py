"""A broker that announces the largest packet that it takes."""

BROKER = "limited"  # to packets of 400 bytes
VERSIONS = (5,)

MOST = 400


def too_large(env):
    """Such a message is refused at once while online.

    One that was accepted before the size was known is set aside and reported. Neither costs
    the connection.
    """
    inbox, reports = env.Inbox(), env.Reports()
    topic, large = env.name(b"good"), env.name(b"large")
    client = env.client(b"c", tx_size=2048, on_dropped=reports.take)
    client.subscribe(topic, inbox.take, qos=2)
    wanted = []
    for qos in (1, 2):
        wanted.append((client.publish(large, bytes(600), qos), large))
        client.publish(topic, b"%d" % qos, qos)
    client.connect(timeout_ms=15000)
    env.equal(client.server.maximum_packet_size, MOST, "Maximum Packet Size")
    env.until("the rest", lambda: not client.pending, client)
    env.dropped(client, reports, wanted)
    for publish in (client.publish, client.publish_from):
        error = str(env.raises(ValueError, publish, large, bytes(600), 1))
        env.equal(str(MOST) in error, True, error)
    size = MOST - 1 - 2 - 2 - len(topic) - 2 - 1  # what is left of it for the payload
    env.published(client, topic, bytes(size), 1)
    env.arrive(inbox, 3, client)
    env.equal([len(payload) for payload in inbox.payloads()], [1, 1, size], "lengths")
    env.raises(ValueError, client.publish, topic, bytes(size + 1), 1)
    env.equal((client.stats.connects, client.error), (1, None), "connects, error")
