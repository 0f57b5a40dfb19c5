"""A client whose connections end at any byte. The test cuts them."""

COUNT = 25


def each_message_once(env):
    """At QoS 2, there and back in order."""
    inbox = env.Inbox()
    client = env.client(b"c", clean_session=False, tx_size=1024, retry_max_ms=40, keepalive=5)
    topic = env.name(b"once")
    client.subscribe(topic, inbox.take, qos=2)
    client.start()
    for sent in range(COUNT):
        env.until("room", lambda: client.pending < 2, client)
        accepted = client.publish(topic, b"%d:" % sent + b"x" * (sent * 13), 2)
        env.equal(accepted is None, False, "accepted")
    env.arrive(inbox, COUNT, client)
    env.until("acknowledgements", lambda: not client.pending, client)
    numbers = [int(payload.split(b":")[0]) for payload in inbox.payloads()]
    env.equal(numbers, list(range(COUNT)), "messages")
    sizes = [len(payload.split(b":")[1]) for payload in inbox.payloads()]
    env.equal(sizes, [13 * n for n in range(COUNT)], "sizes")
    print("@losses", client.stats.losses)
    client.disconnect()
