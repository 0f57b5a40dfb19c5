"""Properties of messages, from one client to another."""

from flatmq.properties import Properties

BROKER = "shared"
VERSIONS = (5,)

CONTENT_TYPE = 0x03
EXPIRY = 0x02
FORMAT = 0x01
RESPONSE_TOPIC = 0x08
CORRELATION_DATA = 0x09


class _Seen:
    """A handler that keeps what the messages carry, and their views."""

    def __init__(self):
        self.carried = []
        self.payloads = []
        self.views = []

    def __len__(self):
        return len(self.payloads)

    def take(self, message):
        p = message.properties
        self.payloads.append(message.payload)
        if p not in self.views:
            self.views.append(p)
        self.carried.append(
            [
                p.get(CONTENT_TYPE),
                p.get(RESPONSE_TOPIC),
                p.get(CORRELATION_DATA),
                p.get(FORMAT),
                p.get(EXPIRY),
                p.user(b"unit"),
                p.user(b"place"),
                p.user(b"none"),
                p.is_user(b"unit", b"C"),
            ]
        )


def _pair(env, **options):
    seen = _Seen()
    subscriber = env.client(b"s", **options)
    subscription = subscriber.subscribe(env.name(b"#"), seen.take, qos=2, chunks=True)
    subscriber.start()
    env.granted(subscription, subscriber)
    return seen, subscriber, env.online(b"p")


def each_of_them(env):
    """All that a message can carry arrives as it was sent, at each QoS.

    A message without properties after it has none of them.
    """
    seen, subscriber, publisher = _pair(env)
    all_of_them = Properties(
        content_type=b"application/json",
        response_topic=env.name(b"answers"),
        correlation_data=b"\0\1\2",
        payload_format=1,
        expiry=1000,
        user=[(b"unit", b"C"), (b"place", b"roof"), (b"unit", b"K")],
    )
    given = [
        b"application/json",
        env.name(b"answers"),
        b"\0\1\2",
        1,
        1000,
        b"C",
        b"roof",
        None,
        True,
    ]
    for qos in range(3):
        env.published(publisher, env.name(b"t"), b"with", qos, properties=all_of_them)
        env.published(publisher, env.name(b"t"), b"without", qos)
        env.arrive(seen, 2 * qos + 2, subscriber)
        carried, none = seen.carried[-2:]
        # The broker takes off the seconds that it has held the message.
        env.equal(0 < carried[4] <= 1000, True, f"expiry {carried[4]}")
        carried[4] = 1000
        env.equal(carried, given, f"at QoS {qos}")
        env.equal(none, [None] * 8 + [False], "without properties")
    env.equal(seen.payloads, [b"with", b"without"] * 3, "payloads")
    env.equal(len(seen.views), 1, "views: there is one, used again")


def more_than_one_length_byte(env):
    """Properties of more than 127 bytes, and a payload of none."""
    seen, subscriber, publisher = _pair(env)
    long = Properties(content_type=b"x" * 200, user={b"unit": b"C"})
    for payload in (b"", b"x" * 100):
        env.published(publisher, env.name(b"t"), payload, 1, properties=long)
    env.arrive(seen, 2, subscriber)
    for carried in seen.carried:
        env.equal((carried[0], carried[5]), (b"x" * 200, b"C"), "content type, unit")
    env.equal(seen.payloads, [b"", b"x" * 100], "payloads")


def with_a_message_in_pieces(env):
    """A message larger than both buffers has its properties with each of its pieces."""
    seen, subscriber, publisher = _pair(env)
    properties = Properties(content_type=b"image/png", user=[(b"place", b"roof")])
    publisher.publish_from(env.name(b"t"), bytes(2000), 1, properties=properties)
    env.until("PUBACK", lambda: not publisher.pending, publisher, subscriber)
    env.until("all", lambda: sum(map(len, seen.payloads)) == 2000, subscriber)
    env.equal(len(seen) > 1, True, "pieces")
    for carried in seen.carried:
        env.equal((carried[0], carried[6]), (b"image/png", b"roof"), "content type, place")
    env.equal((publisher.error, subscriber.error), (None, None), "errors")


def of_a_will(env):
    """A will carries properties as well. It comes after a DISCONNECT that asks for it, too."""
    seen, subscriber, _publisher = _pair(env)
    dying = env.client(b"d")
    dying.set_will(env.name(b"will"), b"gone", 1, False, Properties(content_type=b"text/plain"))
    dying.connect(timeout_ms=15000)
    dying.disconnect(with_will=True)
    # The same identifier again: by its CONNACK the broker is done with the first connection.
    dying.set_will(None)
    dying.connect(timeout_ms=15000)
    env.published(dying, env.name(b"end"), b"end", 1)
    env.until("the end", lambda: b"end" in seen.payloads, subscriber)
    came = [(seen.payloads[i], seen.carried[i][0]) for i in range(len(seen))]
    env.equal(came, [(b"gone", b"text/plain"), (b"end", None)], "will")


def of_a_client(env):
    """User properties of CONNECT are taken, and the client works."""
    seen, subscriber, publisher = _pair(env, user_properties=[(b"board", b"pico"), (b"a", b"b")])
    env.published(publisher, env.name(b"t"), b"x", 1)
    env.arrive(seen, 1, subscriber)
    env.equal((subscriber.stats.connects, subscriber.error), (1, None), "connects, error")
