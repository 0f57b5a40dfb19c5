"""MQTT 3.1 and 3.1.1."""

BROKER = "shared"
VERSIONS = (4,)


def _round_trip(env, version):
    inbox = env.Inbox()
    topic = env.name(b"version")
    client = env.client(b"v", version=version)
    subscription = client.subscribe(topic, inbox.take, qos=2)
    client.connect(timeout_ms=15000)
    env.equal(env.granted(subscription, client), b"\x02", "granted")
    for qos in range(3):
        env.published(client, topic, b"%d" % qos, qos)
    env.arrive(inbox, 3, client)
    env.equal(inbox.payloads(), [b"0", b"1", b"2"], "payloads")


def mqtt_3_1_1(env):
    """A session at level 4."""
    _round_trip(env, 4)


def mqtt_3_1(env):
    """A session at level 3, or the refusal that this broker is known for."""
    code = env.expected["level 3"]
    if code == 0:
        _round_trip(env, 3)
    else:
        env.fails_to_connect(env.client(b"v", version=3), code)
