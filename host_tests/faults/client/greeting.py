"""Faults before a connection is accepted: the name, TCP, CONNACK."""


def name_lookup_fails(env, client):
    """The lookup fails, as it does while Wi-Fi is away; then it works again."""
    link = env.link(client)
    link.address = None
    link.failing = True
    env.fault()
    env.ask("strike", "cut")
    env.loses(client, "resource")
    env.accepted(client, 1, 2)
    link.failing = False


def no_such_name(env, client):
    """The real lookup of a name that does not exist."""
    link = env.link(client)
    good = link.inner
    good.close()
    link.inner = env.TCP("broker.flatmq.invalid", env.port)
    env.fault()
    env.loses(client, "resource")
    env.accepted(client, 1)
    link.inner = good


def tcp_is_never_answered(env, client):
    """A host that drops every SYN."""
    link = env.link(client)
    good = link.inner
    port = int(env.ask("blackhole").split()[-1])
    good.close()
    link.inner = env.way(env.host, port)
    env.fault()
    env.loses(client, "timeout")
    env.accepted(client, 1, 2)
    link.close()
    link.inner = good


def connection_refused(env, client):
    """Nobody listens for a minute. In the short version the client's clock runs faster."""
    speed = 1 if env.long else 30
    env.clock(speed=speed)
    env.ask("refuse")
    env.fault()
    env.ask("strike", "cut")
    env.loses(client, "closed")
    env.accepted(client, 1, 2)
    losses = client.stats.losses
    left = 3000 // speed  # polls of 20 ms: a minute
    while left:
        began = client.stats.losses
        env.poll(client)
        left -= 1
        env.equal(client.connected, False, "connected to nobody")
        env.equal(client.stats.losses - began <= 1, True, "tries in one poll")
    # Half of 500 ms, of 1, 2 and 4 s, and then of 5 s: no more than that in a minute.
    tries = client.stats.losses - losses
    env.equal(5 <= tries <= 28, True, f"{tries} tries in a minute")
    env.ask("accept")


def no_connack(env, client):
    """CONNECT is never answered."""
    env.ask("limit", "down", 0, "silence")
    env.fault()
    env.ask("strike", "cut")
    env.loses(client, "timeout")
    env.accepted(client, 1, 2)


def closed_in_connack(env, client):
    """The connection ends after `option` bytes of the CONNACK."""
    env.ask("limit", "down", env.option, "cut")
    losses = client.stats.losses
    env.ask("strike", "cut")
    env.accepted(client, 1, 2)
    env.fault()
    env.until("the second loss", lambda: client.stats.losses == losses + 2, client)
    env.saw(env.reason(client))
