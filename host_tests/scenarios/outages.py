"""A broker that is not there. It has one of its own to itself, which it kills."""

import errno

BROKER = "own"


def connect_gives_up_in_time(env):
    """connect() with nobody there raises within its time, with the reason."""
    env.ask("broker", "kill")
    client = env.client(b"c")
    try:
        client.connect(timeout_ms=1500)
    except env.MQTTError as error:
        env.equal(error.kind, "closed", "kind")
        for part in ("connect", env.host, str(env.port), str(errno.ECONNREFUSED)):
            env.equal(part in error.detail, True, part + " in " + error.detail)
    else:
        raise AssertionError("connected to nothing")
    env.equal(client.connected, False, "connected")
