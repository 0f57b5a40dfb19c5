"""Messages that carry DUP at QoS 0, which some brokers pass on from the publisher."""

BROKER = "shared"
NEVER = ("fake",)  # it ends a connection on which DUP comes at QoS 0

# First bytes of a PUBLISH.
DUP_0, DUP_0_RETAIN, DUP_1 = "38", "39", "3a"


def _passes(env, first):
    """Two messages sent with that first byte reach a subscriber at QoS 0; DUP is counted."""
    topic = env.name(b"dup")
    client = env.client(b"c")
    inbox = env.subscribed(client, topic, 0)
    for payload in ("one", "two"):
        env.ask("publish", first, topic.decode(), payload)
        env.arrives(inbox, payload.encode(), client)
    env.equal(inbox.payloads(), [b"one", b"two"], "messages")
    env.equal((client.stats.connects, client.error), (1, None), "connects, error")
    env.equal(client.stats.dup0, 2 if env.expected["dup at QoS 0"][0] else 0, "stats.dup0")
    return topic


def live(env):
    """A message at QoS 0 that was published with DUP is delivered, and counted."""
    _passes(env, DUP_0)


def redelivered_at_qos_1(env):
    """A publisher that sends again at QoS 1 after a loss does not lock a subscriber out."""
    _passes(env, DUP_1)


def retained(env):
    """A retained message with DUP reaches who subscribes later."""
    topic = _passes(env, DUP_0_RETAIN)
    newcomer = env.client(b"n")
    inbox = env.subscribed(newcomer, topic, 0)
    env.arrive(inbox, 1, newcomer)
    env.equal(inbox.messages, [(topic, b"two", 0, True)], "retained")
    count = 1 if env.expected["dup at QoS 0"][1] else 0
    env.equal((newcomer.stats.connects, newcomer.stats.dup0), (1, count), "connects, stats.dup0")
    env.published(newcomer, topic, b"", 1, True)
