"""Packets that a broker may send, and packets that it must not."""


def breaks_a_rule(env, client):
    """A packet, `option`, that breaks a rule ends the connection; no handler sees it."""
    got = list(env.got)
    env.fault()
    env.ask("send", env.option)
    env.loses(client, "protocol")
    env.equal(env.got, got, "messages delivered")
    env.accepted(client, 1)
    env.accepted(client, 2)


def topic_not_valid(env, client):
    """Messages with topic names that are not valid are skipped; all others arrive."""
    losses = client.stats.losses
    skipped = client.stats.skipped
    env.fault()
    for name in ("", "612f2b", "612f23", "6100", "61ff"):
        for qos in range(3):
            body = f"00{len(name) // 2:02x}{name}" + ("7777" if qos else "")
            body += ("00" if client.version == 5 else "") + "62"
            env.ask("send", f"3{qos << 1}{len(body) // 2:02x}{body}")
            if qos == 2:
                env.ask("send", "62027777")
        env.exchange(client)
    env.saw("skipped and counted")
    env.equal(client.stats.skipped, skipped + 15, "skipped")
    env.equal(client.stats.losses, losses, "losses")
    env.recovers(client)


def subscription_refused(env, client):
    """SUBACK 0x80 for one filter of two is reported, and is no reason to disconnect."""
    losses = client.stats.losses
    env.fault()
    refused = client.subscribe([env.name(b"good"), env.name(b"forbidden")], env.take, 1)
    env.equal(env.granted(refused, client), b"\x01\x80", "granted")
    env.saw("granted 1, 0x80")
    env.exchange(client)
    env.equal(client.stats.losses, losses, "losses")
    client.unsubscribe([env.name(b"good"), env.name(b"forbidden")])
    refused = None


def stray_acknowledgements(env, client):
    """Acknowledgements of identifiers that nobody uses are counted; a PUBREL is answered."""
    pid = (env.publish(client, 1) + 30000) % 65535 + 1
    env.until("the acknowledgement", lambda: client.pending == 0, client)
    losses = client.stats.losses
    strays = client.stats.strays
    env.fault()
    for head in ("4002", "5002", "7002", "b002", "9003"):
        env.ask("send", head + f"{pid:04x}" + ("00" if head == "9003" else ""))
    # PUBREC is answered with PUBREL, and PUBCOMP, which answers that, is the sixth.
    env.until("the strays", lambda: client.stats.strays == strays + 6, client)
    env.saw("6 strays counted")
    env.ask("send", f"6202{pid:04x}")
    env.recovers(client)
    env.equal(client.stats.losses, losses, "losses")


def publish_before_suback(env, client):
    """Messages that come before the SUBACK are delivered."""
    for _ in range(3):
        env.ask("withhold", 9)
        client.unsubscribe(env.down)
        subscription = client.subscribe(env.down, env.take, 2)
        env.fault()
        env.exchange(client)
        env.equal(subscription.granted, None, "granted")
        env.saw("the messages, then SUBACK")
        env.ask("release")
        env.equal(env.granted(subscription, client), b"\x02\x02\x02", "granted")


def handler_raises(env, client):
    """A handler's exception comes out of poll, and the message comes again.

    Nothing behind it is passed by.
    """
    q = int(env.option)
    wanted = env.got[q] + 3
    raised = 0
    env.raising = 2
    env.ask("publish", q, 3)
    env.fault()
    while env.got[q] < wanted:
        try:
            env.until("the messages", lambda: env.got[q] >= wanted, client)
        except env.Trouble:
            raised += 1
    env.equal(raised, 2, "raised")
    env.saw("its own exception, then the message")
    losses = client.stats.losses
    env.recovers(client)
    env.equal(client.stats.losses, losses, "losses")


def handler_raises_and_the_link_is_cut(env, client):
    """A message whose handler raised is not acknowledged: it comes again on the next link."""
    q = int(env.option)
    wanted = env.got[q] + 3
    env.raising = 1
    env.ask("publish", q, 3)
    env.fault()
    raised = 0
    while not raised:
        try:
            env.poll(client)
        except env.Trouble:
            raised = 1
    losses = client.stats.losses
    env.ask("strike", "cut")
    env.until("the messages", lambda: env.got[q] >= wanted, client)
    env.saw("its own exception, then the message")
    env.until("the loss", lambda: client.stats.losses > losses, client)
