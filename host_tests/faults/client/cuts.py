"""A link that is cut, reset, slow, or gives one byte at a time."""

# Of a session: the most bytes that it has; bytes of its last packets, which it may not wait for;
# bytes between two cuts, in the short version and in the long one. A handshake of TLS takes 150 ms
# of a processor. An idle mosquitto takes 200 ms to accept a WebSocket.
SESSIONS = {"tcp": (400, 16, 3, 1), "tls": (4000, 200, 61, 13), "websocket": (600, 40, 7, 1)}


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
    """Run a whole session, and return the client.

    It has CONNECT, SUBSCRIBE, a message at each QoS out and back, PINGREQ, DISCONNECT.
    """
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
    """Cut or reset the link after each byte of a session, or after some as SESSIONS says.

    `option` is way and fault. One session for each, with one loss, except for what is cut
    while it disconnects; what was accepted comes back in all of them.
    """
    way, fault = env.option.split("-")
    env.ask("echo")
    _session(env, b"whole")
    up, down = map(int, env.ask("passed").split())
    size = up if way == "up" else down
    most, last, short, long = SESSIONS[env.over]
    step = long if env.long else short
    env.equal(0 < size < most, True, f"{size} bytes")
    lost = count = 0
    if env.over != "tcp":  # the first cuts of the loop are in the handshake
        for at in (size // 4, size // 2, size * 3 // 4):
            env.ask("limit", way, at, fault)
            _session(env, f"{way}{fault}{at}".encode())
    for at in range(0, size + 1, step):
        count += 1
        env.ask("limit", way, at, fault)
        env.fault()
        losses = _session(env, f"{way}{at}".encode()).stats.losses
        env.equal(losses <= 1, True, f"{losses} losses at byte {at}")
        lost += losses
        if count == 3:  # by now whatever is claimed once has been
            env.let_go(None)
            env.compare()
    env.let_go(None)
    env.compare()
    env.equal(lost > (size - last) // step, True, f"{lost} losses in {count} sessions")
    env.saw(f"{count} sessions, each complete")
