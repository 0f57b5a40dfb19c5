"""A link that is cut, reset, slow, or gives one byte at a time."""

MOST = 400  # bytes; a session that goes on for longer is not the one below
AT_THE_END = 16  # bytes of its last packets, which it may not wait for


def struck(env, client):
    """The link is cut, or reset, while messages are on their way: `option`."""
    for q in range(3):
        env.accepted(client, q)
    client.flush()
    env.ask("publish", 1, 2)
    env.ask("publish", 2, 2)
    env.fault()
    env.ask("strike", env.option)
    wanted = sum(env.got) + 4
    env.loses(client, "closed")
    env.until("the messages", lambda: sum(env.got) >= wanted, client)


def closed_behind_a_message(env, client):
    """The end of the stream is right behind a message, so that its acknowledgement finds nobody.
    The message comes again, and at QoS 2 is not delivered again."""
    q = int(env.option)
    wanted = env.got[q] + 1
    env.fault()
    env.ask("publish_and_end", q)
    env.loses(client, "closed")
    env.equal(env.got[q], wanted, "delivered before the end")


def _moves(env, client):
    connects = client.stats.connects
    env.fault()
    env.ask("strike", "cut")
    env.until("the new link", lambda: client.stats.connects > connects, client)
    env.exchange(client, 5)
    env.saw("every message")


def delayed(env, client):
    """Each piece is held for `option` ms, in both directions."""
    env.ask("delay", env.option)
    _moves(env, client)


def byte_by_byte(env, client):
    """Every byte comes by itself, in both directions."""
    env.ask("trickle", 1)
    _moves(env, client)


def _session(env, name):
    """A whole session: CONNECT, SUBSCRIBE, a message at each QoS out and back, PINGREQ,
    DISCONNECT. Returns the client."""
    client = env.client(name, retry_ms=1, retry_max_ms=2)
    subscription = client.subscribe(env.up, env.take, 2)
    client.start()
    env.granted(subscription, client)
    wanted = [0, env.got[1] + 1, env.got[2] + 1]
    for q in range(3):
        env.accepted(client, q)
    env.until(
        "the messages",
        lambda: client.pending == 0 and env.got[1] >= wanted[1] and env.got[2] >= wanted[2],
        client,
    )
    env.until("the broker", lambda: client.connected, client)
    losses = client.stats.losses
    client.ping()
    while not env.poll(client) and client.stats.losses == losses:
        pass
    env.until("the broker", lambda: client.connected, client)
    client.disconnect()
    return client


def at_every_byte(env, _client):
    """The link is cut, or reset, after each byte of a session: `option` is way and fault. One
    session for each, with one loss, but for what is cut while it disconnects; what was accepted
    comes back in all of them."""
    way, fault = env.option.split("-")
    env.ask("echo")
    _session(env, b"whole")
    up, down = map(int, env.ask("passed").split())
    size = up if way == "up" else down
    env.equal(0 < size < MOST, True, f"{size} bytes")
    lost = 0
    for at in range(size + 1):
        env.ask("limit", way, at, fault)
        env.fault()
        losses = _session(env, f"{way}{at}".encode()).stats.losses
        env.equal(losses <= 1, True, f"{losses} losses at byte {at}")
        lost += losses
        if at == 2:  # by now whatever is claimed once has been
            env.let_go(None)
            env.compare()
    env.let_go(None)
    env.compare()
    env.equal(lost > size - AT_THE_END, True, f"{lost} losses in {size + 1} sessions")
    env.saw(f"{size + 1} sessions, each complete")
