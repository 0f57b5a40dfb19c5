"""Against a server that is no broker: what comes back, and what the application hears."""

PAYLOADS = (b"", b"x", bytes(range(256)) * 2, b"y" * 900)


def messages_come_back(env):
    """Each payload at QoS 1 to the server, and back."""
    inbox = env.Inbox()
    client = env.client(b"c", tx_size=2048, rx_size=1024)
    client.subscribe(b"t", inbox.take, 1)
    client.start()
    for payload in PAYLOADS:
        env.until("room", lambda: not client.pending, client)
        client.publish(b"t", payload, 1)
    env.arrive(inbox, len(PAYLOADS), client)
    env.equal(inbox.payloads(), list(PAYLOADS), "payloads")
    env.equal(client.stats.losses, 0, "losses")
    env.equal(client.disconnect(), True, "in order")


def first_error(env):
    """Publish as soon as that is possible; report the first error."""
    client = env.client(b"c")
    client.publish(b"t", b"x", 0)
    client.start()
    env.until("the error", lambda: client.error is not None, client)
    print("@", client.error.kind, client.error.detail)
    client.disconnect()
