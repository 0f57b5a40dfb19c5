"""A client with version=None: MQTT 5 where the broker speaks it, else 3.1.1."""

BROKER = "shared"
VERSIONS = (None,)


def found_out(env):
    """The first connection decides, and every later one begins with what it found."""
    inbox = env.Inbox()
    topic = env.name(b"level")
    client = env.client(b"c")
    subscription = client.subscribe(topic, inbox.take, qos=1)
    env.equal(client.publish(topic, b"before", 1) is not None, True, "accepted")
    client.connect(timeout_ms=15000)
    env.equal(client.level, env.expected["level"], "level")
    env.granted(subscription, client)
    losses = client.stats.losses
    env.arrives(inbox, b"before", client)
    env.until("acknowledgement", lambda: not client.pending, client)
    client.disconnect()
    client.connect(timeout_ms=15000)
    env.equal(client.level, env.expected["level"], "level of the second connection")
    env.equal(client.stats.losses, losses, "losses")
    for qos in range(3):
        env.published(client, topic, b"%d" % qos, qos)
    env.arrives(inbox, b"2", client)
    env.equal(inbox.payloads(), [b"before", b"0", b"1", b"2"], "messages")


def what_only_mqtt_5_has(env):
    """In 3.1.1, properties, options of a subscription and aliases are left out.

    The messages arrive all the same.
    """
    from flatmq.properties import Properties

    inbox = env.Inbox()
    topic = env.name(b"more")
    client = env.client(b"c", session_expiry=100, user_properties=[(b"a", b"b")])
    client.set_will(topic, b"will", 1, False, Properties(will_delay=1))
    subscription = client.subscribe(topic, inbox.take, qos=1, retain_as_published=True)
    properties = Properties(content_type=b"text/plain", user=[(b"unit", b"C")])
    alias = client.alias(topic)
    client.publish(topic, b"0", 1, properties=properties)
    client.connect(timeout_ms=15000)
    env.granted(subscription, client)
    env.published(client, topic, b"1", 1, properties=properties)
    alias.publish(b"2")
    env.arrives(inbox, b"2", client)
    # What was published before the subscription was there may have found it or not.
    env.equal(inbox.payloads()[-2:], [b"1", b"2"], "messages")
