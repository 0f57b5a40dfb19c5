"""User names and passwords, on a broker that knows alice with the password "s3cret"."""

BROKER = "users"
VERSIONS = (4, 5)


def accepted(env):
    """The right password gets in and can work."""
    topic = env.name(b"in")
    client = env.client(b"a", user=b"alice", password=b"s3cret")
    inbox = env.subscribed(client, topic, 1)
    env.published(client, topic, b"x", 1)
    env.arrive(inbox, 1, client)


def refused(env):
    """A wrong password, an unknown user and nobody at all are refused, with the reason."""
    code = env.expected["refusal"]
    env.fails_to_connect(env.client(b"r", user=b"alice", password=b"wrong"), code)
    env.fails_to_connect(env.client(b"r", user=b"bob", password=b"s3cret"), code)
    env.fails_to_connect(env.client(b"r"), code)


def set_later(env):
    """`set_credentials` has the next connection log in with others."""
    code = env.expected["refusal"]
    client = env.client(b"l", user=b"alice", password=b"old")
    env.fails_to_connect(client, code)
    client.set_credentials(b"alice", b"s3cret")
    client.connect(timeout_ms=15000)
    env.published(client, env.name(b"in"), b"x", 1)
    client.disconnect()
    client.set_credentials(None, None)
    client.start()
    env.until("the refusal", lambda: client.error is not None, client)
    env.equal(client.error.kind, "closed" if code is None else "refused", "kind")
