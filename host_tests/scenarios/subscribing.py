"""SUBSCRIBE and UNSUBSCRIBE: their order, their answers, and what no run of ours subscribed to."""

BROKER = "shared"


def in_the_order_of_the_calls(env):
    """The last call for a filter counts, however often it was subscribed and unsubscribed."""
    topics = [env.name(b"order/%d" % number) for number in range(2)]
    inboxes = [env.Inbox(), env.Inbox()]
    client = env.client(b"c", subscriptions=3)
    client.connect(timeout_ms=15000)

    def asked(request):
        if not env.expected["requests in order"]:
            env.granted(request, client)

    for turn in range(3):
        asked(client.subscribe(topics[0], inboxes[0].take, qos=1))
        asked(client.unsubscribe(topics[1] if turn else topics[0]))
        asked(client.subscribe(topics[1], inboxes[1].take, qos=1))
        asked(client.unsubscribe(topics[0]))
    last = client.subscribe(topics[0], inboxes[0].take, qos=1)
    asked(last)
    first = client.unsubscribe(topics[1])
    env.granted(last, client)
    env.granted(first, client)
    publisher = env.online(b"p")
    for topic in topics:
        env.published(publisher, topic, b"x", 1)
    env.published(publisher, topics[0], b"end", 1)
    env.arrives(inboxes[0], b"end", client)
    env.equal(inboxes[0].payloads(), [b"x", b"end"], "on the filter subscribed to")
    env.equal((len(inboxes[1]), client.stats.unrouted), (0, 0), "on the other one")


def unsubscribe_with_no_room_left(env):
    """Ending a subscription needs no room among `subscriptions`, and its answer is reported."""
    topics = [env.name(b"room/a"), env.name(b"room/b")]
    client = env.client(b"c", subscriptions=1)
    inbox = env.subscribed(client, topics, 1)
    request = client.unsubscribe(topics[0])
    env.equal(request.granted, None, "before UNSUBACK")
    env.unsubscribed(request, client)
    for topic in topics:
        env.published(client, topic, topic, 1)
    env.arrive(inbox, 1, client)
    env.equal(inbox.payloads(), [topics[1]], "messages")
    env.equal(client.stats.unrouted, 0, "messages that the broker still sends")


def unsubscribe_from_what_an_earlier_run_left(env):
    """In a kept session there may be filters that this run knows nothing of."""
    kept, gone, end = env.name(b"left/kept"), env.name(b"left/gone"), env.name(b"left/end")
    earlier = env.client(b"c", clean_session=False)
    inbox = env.subscribed(earlier, [kept, gone], 1)
    earlier.disconnect()
    later = env.client(b"c", clean_session=False, on_message=inbox.take)
    later.connect(timeout_ms=15000)
    env.equal(later.session_present, True, "session present")
    request = later.unsubscribe(gone)
    ends = env.expected["unsubscribe in a kept session"]
    if ends:
        env.unsubscribed(request, later)
    env.granted(later.subscribe(end, inbox.take, qos=1), later)
    for topic in (gone, kept, end):
        env.published(later, topic, topic, 1)
    env.arrives(inbox, end, later)
    env.equal(inbox.payloads(), [kept, end] if ends else [gone, kept, end], "messages")
    later.disconnect()
    # A clean session with that identifier ends the kept one.
    env.online(b"c").disconnect()


def unsubscribe_from_what_was_never_subscribed(env):
    """It is sent like any other. Not every broker answers it."""
    client = env.online(b"c")
    request = client.unsubscribe(env.name(b"never"))
    if env.expected["unsuback for unknown"]:
        codes = b"\x11" if env.version == 5 else b""  # no subscription existed
        env.equal(env.granted(request, client), codes, "UNSUBACK")
    env.published(client, env.name(b"never"), b"x", 1)
    env.equal((client.stats.connects, client.error), (1, None), "connects, error")


def shared_subscription(env):
    """Messages for "$share/group/filter" reach its handler, by the filter behind the group.

    Of two members of the group each message reaches one.
    """
    if not env.expected["shared subscriptions"]:
        return
    inbox, other = env.Inbox(), env.Inbox()
    # A group of its own: to the embedded broker those of one name are one, whatever their filters.
    shared = b"$share/g-" + env.token + b"/" + env.name(b"dev/+/state")
    members = []
    for number in range(2):
        member = env.client(b"m%d" % number)
        subscription = member.subscribe(shared, inbox.take, qos=1)
        member.subscribe(env.name(b"dev/+/other"), other.take, qos=1)
        member.start()
        env.granted(subscription, member)
        members.append(member)
    publisher = env.online(b"p")
    wanted = []
    for number in range(10):
        payload = b"%d" % number
        wanted.append(payload)
        env.published(publisher, env.name(b"dev/x/state"), payload, 1)
        env.arrive(inbox, len(wanted), *members)
    env.equal(inbox.payloads(), wanted, "messages")
    env.equal(inbox.messages[0][0], env.name(b"dev/x/state"), "topic")
    env.equal(len(other), 0, "messages at another handler")
    env.equal([member.stats.unrouted for member in members], [0, 0], "unrouted")
