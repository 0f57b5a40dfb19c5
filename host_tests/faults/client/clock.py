"""The clock comes round, as that of a board does, or jumps, as after a sleep."""


def wraps(env, client):
    """Let ticks_ms wrap some time after a session has begun.

    In the session there are a keep alive that is answered, one that is not, a CONNACK that
    does not come, and a wait.
    """
    losses = client.stats.losses
    env.until("PINGRESP", lambda: env.poll(client), client)
    env.equal(client.stats.losses, losses, "losses")
    env.ask("limit", "down", 0, "silence")
    env.ask("strike", "silence")
    env.fault()
    env.loses(client, "timeout")
    env.equal(client.error.detail, "no PINGRESP in time", "reason")
    env.accepted(client, 1, 2)
    env.loses(client, "timeout")
    env.equal(client.error.detail, "no CONNACK in time", "reason")
    env.until("the broker", lambda: client.connected, client)
    env.until("the clock to come round", env.came_round, client)


def application_sleeps(env, client):
    """The application does not poll for `option` ms, with a keep alive of 4 s.

    The broker has not gone, and the connection is kept; or it is lost, and all is well again.
    """
    env.fault()
    for asked in (False, True):
        if asked:
            client.ping()
            client.flush()
        env.clock(int(env.option))
        env.poll(client)
        env.poll(client)
    env.saw("online" if client.connected else env.reason(client))
