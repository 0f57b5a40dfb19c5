"""Clients without keep alive."""

BROKER = "shared"


def no_keepalive(env):
    """Keep alive 0, no keeping alive at all, or the refusal that this broker is known for."""
    code = env.expected["keepalive 0"]
    client = env.client(b"ever", keepalive=0)
    if code == 0:
        client.connect(timeout_ms=15000)
        client.disconnect()
    else:
        env.fails_to_connect(client, code)
