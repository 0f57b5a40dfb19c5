"""The options that a subscription has in MQTT 5."""

BROKER = "shared"
VERSIONS = (5,)


def no_local(env):
    """A client gets nothing of what it has published itself."""
    own, all_of_it = env.Inbox(), env.Inbox()
    topic = env.name(b"local")
    client = env.client(b"c")
    subscription = client.subscribe(topic, own.take, qos=1, no_local=True)
    client.start()
    env.granted(subscription, client)
    other = env.client(b"o")
    subscription = other.subscribe(topic, all_of_it.take, qos=1)
    other.start()
    env.granted(subscription, other)
    env.published(client, topic, b"mine", 1)
    env.published(other, topic, b"other's", 1)
    env.arrives(own, b"other's", client)
    env.arrive(all_of_it, 2, other)
    wanted = [b"other's"] if env.expected["no local"] else [b"mine", b"other's"]
    env.equal(own.payloads(), wanted, "with no_local")
    env.equal(all_of_it.payloads(), [b"mine", b"other's"], "without")
    client.disconnect()
    other.disconnect()


def retain_as_published(env):
    """`retain` is what the message was published with."""
    kept, cleared = env.Inbox(), env.Inbox()
    topic = env.name(b"flag")
    clients = []
    for name, inbox, option in ((b"k", kept, True), (b"c", cleared, False)):
        client = env.client(name)
        subscription = client.subscribe(topic, inbox.take, qos=1, retain_as_published=option)
        client.start()
        env.granted(subscription, client)
        clients.append(client)
    publisher = env.online(b"p")
    for payload, retain in ((b"yes", True), (b"no", False), (b"", True)):
        env.published(publisher, topic, payload, 1, retain)
    env.arrive(kept, 3, *clients)
    env.arrive(cleared, 3, *clients)
    flags = [bool(message[3]) for message in kept.messages]
    wanted = [True, False, True] if env.expected["retain as published"] else [False] * 3
    env.equal(flags, wanted, "as published")
    env.equal([message[3] for message in cleared.messages], [False] * 3, "as in 3.1.1")
    clients.append(publisher)
    for client in clients:
        client.disconnect()


def retain_handling(env):
    """Retained messages come with each subscription, with a new one, or never."""
    topic, end = env.name(b"handled"), env.name(b"handled-end")
    publisher = env.online(b"p")
    env.published(publisher, topic, b"kept", 1, True)
    for handling, counts in enumerate(env.expected["retain handling"]):
        inbox, ends = env.Inbox(), env.Inbox()
        client = env.client(b"h%d" % handling)
        client.subscribe(end, ends.take, qos=1)
        client.connect(timeout_ms=15000)
        for turn, count in enumerate(counts):
            subscription = client.subscribe(topic, inbox.take, qos=1, retain_handling=handling)
            env.granted(subscription, client)
            env.published(client, end, b"end", 1)
            env.arrive(ends, turn + 1, client)
            env.equal(len(inbox), count, f"handling {handling}, SUBSCRIBE number {turn + 1}")
        client.disconnect()
    env.published(publisher, topic, b"", 1, True)
    publisher.disconnect()
