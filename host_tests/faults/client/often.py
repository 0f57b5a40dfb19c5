"""Outages, one after another, while messages flow."""

import random


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
