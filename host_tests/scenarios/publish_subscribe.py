"""Messages from one client to another over a broker."""

BROKER = "shared"


def each_qos_to_each(env):
    """A message at each QoS to a subscription at each QoS, once, with the QoS that is due."""
    publisher = env.online(b"p")
    for subscribed in range(3):
        inbox = env.Inbox()
        subscriber = env.client(b"s%d" % subscribed)
        topic = env.name(b"qos/%d" % subscribed)
        subscription = subscriber.subscribe(topic, inbox.take, qos=subscribed)
        subscriber.start()
        env.equal(env.granted(subscription, subscriber), bytes([subscribed]), "granted")
        wanted = []
        for published in range(3):
            payload = b"%d to %d" % (published, subscribed)
            env.published(publisher, topic, payload, published)
            due = env.expected["delivered"][(published, subscribed)]
            wanted.append((topic, payload, due, False))
            env.arrive(inbox, len(wanted), subscriber)
            env.equal(inbox.messages[-1], wanted[-1], "message")
        # One more, so that a copy of any of those above would have come before it.
        env.published(publisher, topic, b"end", 2)
        env.arrives(inbox, b"end", subscriber)
        env.equal(inbox.messages[:-1], wanted, "all messages")
        subscriber.disconnect()


def empty_and_large_payloads(env):
    """A payload of no bytes and one that fills the buffers arrive as they were sent."""
    topic = env.name(b"size")
    client = env.client(b"c", tx_size=2048, rx_size=2048)
    inbox = env.subscribed(client, topic, 1)
    sent = [b"", bytes(range(256)) * 6, b"\x00", b""]
    for payload in sent:
        env.published(client, topic, payload, 1)
    env.arrive(inbox, len(sent), client)
    env.equal(inbox.payloads(), sent, "payloads")


def burst_in_order(env):
    """A hundred messages at each QoS arrive once each and in order, however little room is."""
    topic = env.name(b"burst")
    publisher = env.online(b"p", tx_size=128, inflight=3)
    subscriber = env.client(b"s", rx_size=128, incoming=env.expected["unreleased"])
    inbox = env.subscribed(subscriber, topic, 2)
    full = 0
    for qos in range(3):
        inbox.messages.clear()
        wanted = [b"%d" % i for i in range(100)]
        for payload in wanted:
            while publisher.publish(topic, payload, qos) is None:
                full += 1
                publisher.poll(1)
                subscriber.poll()
        env.until(
            "all", lambda: len(inbox) >= 100 and not publisher.pending, publisher, subscriber
        )
        env.equal(inbox.payloads(), wanted, f"burst at QoS {qos}")
    if not full:
        raise AssertionError("there was always room: this tested nothing")


def wildcards_reach_their_handlers(env):
    """Each message goes to the handlers whose filters match it, and to no other."""
    filters = [b"home/+/temp", b"home/kitchen/#", b"+/+/+/deep", b"away"]
    inboxes = [env.Inbox() for _ in filters]
    client = env.client(b"c")
    last = None
    for i in range(len(filters)):
        last = client.subscribe(env.name(filters[i]), inboxes[i].take, qos=1)
    client.start()
    env.granted(last, client)
    routes = [
        (b"home/hall/temp", [0]),
        (b"home//temp", [0]),
        (b"home/kitchen", [1]),
        (b"home/kitchen/oven/heat", [1]),
        (b"a/b/c/deep", [2]),
        (b"a///deep", [2]),
        (b"away", [3]),
        (b"home/hall/humidity", []),
        (b"away/", []),
    ]
    wanted = [[] for _ in filters]
    for topic, numbers in routes:
        env.published(client, env.name(topic), topic, 1)
        for number in numbers:
            wanted[number].append(topic)
    env.published(client, env.name(b"away"), b"end", 1)
    wanted[3].append(b"end")
    env.arrives(inboxes[3], b"end", client)
    for i in range(len(filters)):
        env.equal(inboxes[i].payloads(), wanted[i], "handler of " + filters[i].decode())


def overlapping_filters(env):
    """A message that three filters match reaches each of their handlers.

    It does so once for each copy that the broker sends, or once in all if the copies carry
    subscription identifiers.
    """
    filters = [b"over/#", b"over/+", b"over/lap"]
    inboxes = [env.Inbox() for _ in filters]
    client = env.client(b"c")
    for i in range(3):
        client.subscribe(env.name(filters[i]), inboxes[i].take, qos=1)
    end = env.subscribed(client, env.name(b"end"), 1)
    env.published(client, env.name(b"over/lap"), b"x", 1)
    env.published(client, env.name(b"end"), b"", 1)
    env.arrive(end, 1, client)
    copies = 1 if env.expected["identifiers"] else env.expected["copies of overlap"]
    env.equal([len(inbox) for inbox in inboxes], [copies] * 3, "messages at each handler")
