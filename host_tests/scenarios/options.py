"""The options that a subscription has in MQTT 5."""

BROKER = "shared"
VERSIONS = (5,)


def no_local(env):
    """A client gets nothing of what it has published itself."""
    topic = env.name(b"local")
    client, other = env.client(b"c"), env.client(b"o")
    own = env.subscribed(client, topic, 1, no_local=True)
    all_of_it = env.subscribed(other, topic, 1)
    env.published(client, topic, b"mine", 1)
    env.published(other, topic, b"other's", 1)
    env.arrives(own, b"other's", client)
    env.arrive(all_of_it, 2, other)
    wanted = [b"other's"] if env.expected["no local"] else [b"mine", b"other's"]
    env.equal(own.payloads(), wanted, "with no_local")
    env.equal(all_of_it.payloads(), [b"mine", b"other's"], "without")


def retain_as_published(env):
    """`retain` is what the message was published with."""
    topic = env.name(b"flag")
    clients = [env.client(b"k"), env.client(b"c")]
    kept = env.subscribed(clients[0], topic, 1, retain_as_published=True)
    cleared = env.subscribed(clients[1], topic, 1, retain_as_published=False)
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
