"""A broker without subscription identifiers: messages find their handlers by topic name."""

BROKER = "plain"
VERSIONS = (5,)


def overlapping_filters(env):
    """A message that two filters match reaches both handlers, once each."""
    inboxes = [env.Inbox() for _ in range(3)]
    client = env.client(b"c")
    for inbox, name in zip(inboxes, (b"a/+", b"a/#", b"b")):  # noqa: B905 - nor has MicroPython
        last = client.subscribe(env.name(name), inbox.take, qos=1)
    client.start()
    env.granted(last, client)
    env.equal(client.server.identifiers, 0, "identifiers")
    env.published(client, env.name(b"a/1"), b"x", 1)
    env.published(client, env.name(b"b"), b"end", 1)
    env.arrive(inboxes[2], 1, client)
    env.equal([inbox.payloads() for inbox in inboxes], [[b"x"], [b"x"], [b"end"]], "messages")
