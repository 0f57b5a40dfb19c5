"""A broker that is not there. It has one of its own to itself, which it kills."""

import errno

BROKER = "own"


def connect_gives_up_in_time(env):
    """connect() with nobody there raises within its time, with the reason."""
    env.ask("broker", "kill")
    client = env.client(b"c")
    error = env.raises(env.MQTTError, client.connect, 1500)
    env.equal(error.kind, "closed", "kind")
    for part in ("connect", env.host, str(env.port), str(errno.ECONNREFUSED)):
        env.equal(part in error.detail, True, part + " in " + error.detail)
    env.equal(client.connected, False, "connected")
