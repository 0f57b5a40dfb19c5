"""Readings in a spool, whose process is killed at any moment and starts again."""

from flatmq.spool import Spool

BROKER = "shared"
VERSIONS = (4, 5)
MORE_HEAP = 64  # KB, for the spool and its compiler
NEVER = ("aedes",)  # a reading at QoS 2 came twice over it once in a few runs

READINGS = 40
LIVES = 8


def _spool(env):
    """A client with the spool of all lives."""
    client = env.client(b"spool", clean_session=False, inflight=4)
    return client, Spool(client, env.folder + "/s", segment=1024, segments=8)


def victim(env):
    """Publish readings from number `option` on at QoS 1 and 2 in turn, until killed.

    The kill comes while some of them are under way.
    """
    client, spool = _spool(env)
    client.start()
    number = int(env.option)
    for i in range(number, number + READINGS // LIVES):
        while not spool.publish(env.name(b"reading"), b"%d" % i, 1 + i % 2):
            spool.poll(1)
        spool.poll()
    # Some lives end with everything on its way, some with a part of it acknowledged.
    env.until("some", lambda: client.connected and spool.stats.acknowledged >= number % 4, spool)
    env.ask("die")
    raise AssertionError("still alive")


def killed_again_and_again(env):
    """Every reading arrives, in order at each QoS, those at QoS 2 once."""
    subscriber = env.client(b"s", incoming=env.expected["unreleased"])
    inbox = env.subscribed(subscriber, env.name(b"reading"), 2)
    for life in range(LIVES):
        env.ask("kill", "spooled", "victim", str(life * READINGS // LIVES))
    client, spool = _spool(env)
    client.start()
    env.until("the rest", lambda: not spool.pending, spool, subscriber)
    env.until("all", lambda: len(set(inbox.payloads())) == READINGS, spool, subscriber)
    client.disconnect()
    numbers = [int(payload) for payload in inbox.payloads()]
    env.equal(sorted(set(numbers)), list(range(READINGS)), "readings")
    for odd in range(2):  # a broker may pass on a message at QoS 2 only after its PUBREL
        firsts = [n for at, n in enumerate(numbers) if n % 2 == odd and n not in numbers[:at]]
        env.equal(firsts, list(range(odd, READINGS, 2)), f"first deliveries at QoS {1 + odd}")
    for n in range(1, READINGS, 2):
        env.equal(numbers.count(n), 1, f"copies of number {n}, at QoS 2")
    # A clean session with that identifier ends the kept one.
    env.online(b"spool").disconnect()
    subscriber.disconnect()
