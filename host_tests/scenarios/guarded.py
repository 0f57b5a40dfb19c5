"""A broker that refuses single messages by reason code: those at TOKEN/forbidden."""

BROKER = "guarded"
VERSIONS = (5,)


def messages(env):
    """A message refused with PUBACK or PUBREC is reported once and settled.

    It is never sent again; the others arrive over the same connection.
    """
    reports = env.Reports()
    topic, forbidden = env.name(b"good"), env.name(b"forbidden")
    client = env.client(b"c", on_dropped=reports.take)
    inbox = env.subscribed(client, topic, 2)
    wanted = []
    for qos in (1, 2):
        env.published(client, topic, b"before %d" % qos, qos)
        wanted.append((client.publish(forbidden, b"bad", qos), forbidden))
        env.published(client, topic, b"after %d" % qos, qos)
    client.publish_from(forbidden, bytes(2000), 1)
    env.until("the large one", lambda: not client.pending, client)
    env.equal(len(reports.seen), 3, "reports")
    env.equal((reports.seen[:2], reports.seen[2][1]), (wanted, forbidden), "reports")
    env.equal(client.stats.dropped, 3, "stats.dropped")
    for reason in reports.reasons:
        env.equal("0x87" in reason, True, reason)
    env.arrive(inbox, 4, client)
    env.equal(inbox.payloads(), [b"before 1", b"after 1", b"before 2", b"after 2"], "messages")
    env.equal((client.stats.connects, client.stats.resent), (1, 0), "connects, resent")
