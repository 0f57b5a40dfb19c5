"""User names and passwords, on a broker that knows alice with the password "s3cret"."""

BROKER = "users"


def accepted(env):
    """The right password gets in and can work."""
    inbox = env.Inbox()
    topic = env.name(b"in")
    client = env.client(b"a", user=b"alice", password=b"s3cret")
    client.subscribe(topic, inbox.take, qos=1)
    client.connect(timeout_ms=15000)
    env.published(client, topic, b"x", 1)
    env.arrive(inbox, 1, client)
    client.disconnect()


def refused(env):
    """A wrong password, an unknown user and nobody at all are refused, with the reason."""
    code = env.expected["refusal"]
    env.fails_to_connect(env.client(b"r", user=b"alice", password=b"wrong"), code)
    env.fails_to_connect(env.client(b"r", user=b"bob", password=b"s3cret"), code)
    env.fails_to_connect(env.client(b"r"), code)
