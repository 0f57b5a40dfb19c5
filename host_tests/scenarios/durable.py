"""Sessions that outlive the broker's death, on one that keeps its state on disk.

The embedded broker keeps nothing: there the same run shows what is left without.
"""

BROKER = "durable"


def exactly_once_over_a_crash(env):
    """QoS 2 publishes under way when the broker is killed arrive.

    They arrive once each where the broker kept the session, at least once where it did not.
    """
    topic = env.name(b"once")
    subscriber = env.client(b"s", clean_session=False)
    inbox = env.subscribed(subscriber, topic, 2)
    publisher = env.online(b"p", clean_session=False)
    env.published(publisher, topic, b"0", 2)
    env.arrive(inbox, 1, subscriber)
    # A change that is answered has what was before it on disk: else the broker would come back
    # without the packet identifier of "0", and give it to "1".
    for _ in range(3):
        env.published(publisher, env.name(b"change"), b"x", 1, retain=True)
    env.ask("broker", "freeze")
    for payload in (b"1", b"2"):
        env.equal(publisher.publish(topic, payload, 2) is not None, True, "accepted")
    publisher.flush()
    env.ask("broker", "restart")
    env.until("the loss", lambda: not subscriber.connected, subscriber)
    env.until("the broker", lambda: subscriber.connected, subscriber)
    env.equal(subscriber.session_present, env.expected["survives SIGKILL"], "session present")
    env.until("all", lambda: publisher.pending == 0, publisher)
    env.arrives(inbox, b"2", subscriber)
    env.equal(inbox.payloads(), [b"0", b"1", b"2"], "messages")
