"""Messages that the broker does not take, and outages that look like that."""

import random

PUBREL = 6


def refused(env, client):
    """A message at QoS `option` on which the broker closes is set aside, and the rest flows."""
    qos = int(env.option)
    forbidden = env.name(b"forbidden")
    env.fault()
    for q in (1, 2):
        env.accepted(client, q)
    pid = client.publish(forbidden, b"x", qos)
    env.equal(pid is None, False, "room")
    for q in (2, 1):
        env.accepted(client, q)
    env.until("acknowledgements", lambda: client.pending == 0, client)
    # What was handed to the network at QoS 0 is not kept, so there is nothing to set aside.
    env.given_up(client, [(pid, forbidden)] if qos else [])
    env.saw("a report" if qos else "nothing")


def refused_and_dropped_by_hand(env, client):
    """Without giving up it goes again and again, behind all others, until it is dropped."""
    forbidden = env.name(b"forbidden")
    pid = client.publish(forbidden, b"x", 1)
    env.accepted(client, 1)
    losses = client.stats.losses
    env.fault()
    env.until("losses", lambda: client.stats.losses > losses + 10, client)
    env.equal(client.pending, 1, "pending")
    env.equal(client.drop(pid), True, "drop")
    env.set_aside += 1
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.dropped.clear()
    env.given_up(client, [])
    env.saw("nothing until it was dropped")


def release_is_never_answered(env, client):
    """The broker closes on PUBREL, always.

    It has the message, which is settled once it has taken another one all the same.
    """
    env.ask("close_on", PUBREL)
    env.accepted(client, 2)
    env.accepted(client, 1)
    losses = client.stats.losses
    env.fault()
    env.until("losses", lambda: client.stats.losses >= losses + 3, client)
    env.accepted(client, 1)
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.given_up(client, [])
    env.saw("the message is settled")
    env.ask("close_on")


def qos_2_answered_with_puback(env, client):
    """It is settled, and counted."""
    env.ask("downgrade", 1)
    downgraded = client.stats.downgraded
    losses = client.stats.losses
    env.fault()
    for _ in range(3):
        env.accepted(client, 2)
        env.accepted(client, 1)
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.saw("3 downgraded")
    counts = (client.stats.downgraded - downgraded, client.stats.losses - losses)
    env.equal(counts, (3, 0), "downgraded, losses")
    env.ask("downgrade", 0)


def killed_while_one_is_under_way(env, client):
    """Kill the broker before it answers a message at QoS `option`, a hundred times in a row.

    It is away for a moment each time.
    """
    env.ask("withhold", 4, 5)
    env.accepted(client, int(env.option))
    env.fault()
    for _ in range(env.often):
        env.until("the broker", lambda: client.connected, client)
        env.until("the message", lambda: env.ask("held") == "yes", client)
        losses = client.stats.losses
        env.ask("kill")
        env.until("a try that fails", lambda n=losses: client.stats.losses >= n + 2, client)
        env.ask("restart")
    env.ask("release")
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.saw("the message, once")


def struck_often(env, client):
    """The link is cut, or reset, `option`, a hundred times at any moment while messages flow."""
    random.seed(1)
    env.ask("often")
    env.fault()
    for _ in range(env.often):
        env.traffic(client)
        env.ask("strike", env.option)
    env.recovers(client)
    env.saw("every message")


def killed_often(env, client):
    """Kill the broker at any moment while messages flow, a hundred times.

    It comes back with what it kept.
    """
    random.seed(2)
    env.ask("often")
    env.fault()
    for _ in range(env.often):
        env.traffic(client)
        env.ask("strike", "cut")  # mosquitto would not keep what it acknowledges from here on
        env.ask("kill")
        env.ask("restart")
    env.recovers(client)
    env.saw("every message")
