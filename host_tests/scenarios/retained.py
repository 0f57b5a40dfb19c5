"""Retained messages."""

BROKER = "shared"


def only_for_new_subscriptions(env):
    """RETAIN is set on what was there before the subscription, and on nothing after it."""
    topic = env.name(b"last")
    publisher = env.online(b"p")
    early, newcomer = env.client(b"early"), env.client(b"late")
    live = env.subscribed(early, topic, 1)
    env.published(publisher, topic, b"one", 1, True)
    env.arrive(live, 1, early)
    env.equal(live.messages, [(topic, b"one", 1, False)], "to the one who was there")
    late = env.subscribed(newcomer, topic, 1)
    env.arrive(late, 1, newcomer)
    env.equal(late.messages, [(topic, b"one", 1, True)], "to the one who came later")
    env.published(publisher, topic, b"two", 1, True)
    env.arrive(late, 2, newcomer)
    env.equal(late.messages[1], (topic, b"two", 1, False), "second, live")
    env.published(publisher, topic, b"", 1, True)


def each_qos(env):
    """A message retained at each QoS reaches a newcomer at the QoS that is due."""
    publisher = env.online(b"p")
    for qos in range(3):
        env.published(publisher, env.name(b"each/%d" % qos), b"v%d" % qos, qos, True)
    newcomer = env.client(b"n")
    inbox = env.subscribed(newcomer, env.name(b"each/+"), 2)
    env.arrive(inbox, 3, newcomer)
    due = env.expected["delivered"]
    wanted = [(env.name(b"each/%d" % q), b"v%d" % q, due[(q, 2)], True) for q in range(3)]
    env.equal(sorted(inbox.messages), wanted, "retained")
    for qos in range(3):
        env.published(publisher, env.name(b"each/%d" % qos), b"", 1, True)


def cleared_by_an_empty_payload(env):
    """An empty retained message takes the kept one away, and itself arrives like any other."""
    topic, end = env.name(b"clear"), env.name(b"clear-end")
    publisher = env.online(b"p")
    env.published(publisher, topic, b"kept", 1, True)
    early, newcomer = env.client(b"early"), env.client(b"late")
    inbox = env.subscribed(early, topic, 1)
    env.arrive(inbox, 1, early)
    env.published(publisher, topic, b"", 1, True)
    env.arrive(inbox, 2, early)
    env.equal(inbox.messages[1], (topic, b"", 1, False), "the clearing message")
    late = env.subscribed(newcomer, [topic, end], 1)
    env.published(publisher, end, b"end", 1)
    env.arrives(late, b"end", newcomer)
    env.equal(late.messages, [(end, b"end", 1, False)], "after clearing")
