"""Features of an MQTT 5 broker: reason codes, broken properties, and changing limits."""

import random

from flatmq.properties import Properties

LARGE = 1000  # bytes of a message in pieces


def breaks_a_rule(env, client):
    """A packet that breaks a rule ends the connection with a reason code to the broker.

    No handler sees it. `option` is its bytes, a word of the rule, and that code.
    """
    data, rule, code = env.option.split("-")
    got = list(env.got)
    env.fault()
    env.ask("send", data)
    env.loses(client, "protocol")
    env.equal(rule.replace("_", " ") in client.error.detail, True, client.error.detail)
    env.equal(env.got, got, "messages delivered")
    env.accepted(client, 1)
    env.accepted(client, 2)
    env.until("the broker", lambda: client.connected, client)
    env.equal(env.ask("left").split()[-1], code, "reason code of DISCONNECT")


def message_refused(env, client):
    """A message that is refused is reported, settled, and never sent again.

    The others pass, over the same connection. `option` is the answer, and the QoS, or "large".
    """
    answer, qos = env.option.split("-")
    topic = env.name(b"refused")
    env.ask("answer", answer, "87", topic.decode())
    before = int(env.ask("published", topic.decode()))
    losses = client.stats.losses
    env.fault()
    wanted = []
    for _ in range(3):
        env.accepted(client, 1)
        env.accepted(client, 2)
        if qos == "large":  # for which nothing may wait
            env.until("acknowledgements", lambda: client.pending == 0, client)
            pid = client.publish_from(topic, bytes(LARGE), 1)
        else:
            pid = client.publish(topic, b"x", int(qos))
        env.equal(pid is None, False, "room")
        wanted.append((pid, topic))
        env.until("acknowledgements", lambda: client.pending == 0, client)
    env.given_up(client, wanted)
    env.saw("a report")
    env.equal(client.stats.losses, losses, "losses")
    # It does not come again after a loss, either.
    env.ask("strike", "cut")
    env.loses(client, "closed")
    env.recovers(client)
    env.equal(int(env.ask("published", topic.decode())) - before, 3, "times that it was sent")
    env.ask("answer_as_usual")


def release_unknown(env, client):
    """PUBCOMP 0x92 to a PUBREL: the broker has the message, which is settled and not reported."""
    env.ask("answer", "PUBCOMP", "92")
    env.fault()
    for _ in range(3):
        env.accepted(client, 2)
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.given_up(client, [])
    env.saw("the message is settled")
    env.ask("answer_as_usual")


def requests_refused(env, client):
    """SUBACK and UNSUBACK with reason codes are in `granted`; the client goes on."""
    losses = client.stats.losses
    topic = env.name(b"refused")
    env.ask("answer", "SUBACK", "87", topic.decode())
    env.ask("answer", "UNSUBACK", "87", topic.decode())
    env.fault()
    request = client.subscribe(topic, env.take, 1)
    env.equal(env.granted(request, client), b"\x87", "granted")
    request = client.unsubscribe(topic)
    env.equal(env.granted(request, client), b"\x87", "granted to UNSUBSCRIBE")
    env.ask("answer_as_usual")
    request = client.unsubscribe(topic)
    env.equal(env.granted(request, client), b"\x11", "granted where there is none")
    env.saw("granted 0x87")
    request = None
    env.exchange(client)
    env.equal(client.stats.losses, losses, "losses")


def disconnected(env, client):
    """The broker ends the connection with the reason code `option` while messages wait.

    The code is in `error`, and nothing is lost.
    """
    code = int(env.option, 16)
    env.ask("withhold", 4, 5)
    topic = env.up[2].decode()
    before = env.ask("published", topic)
    env.accepted(client, 1)
    env.accepted(client, 2)
    # With bytes unread the end would be a reset, and DISCONNECT would not arrive.
    env.until("the messages", lambda: env.ask("published", topic) != before, client)
    env.fault()
    env.ask("disconnect", env.option)
    env.loses(client, "closed")
    env.equal(client.error.code, code, "code")
    env.equal(f"{code:#x}" in client.error.detail, True, client.error.detail)
    env.ask("release")


def _disconnect(env, client, code):
    """Ask for DISCONNECT between two deliveries: an answer on its way would meet a reset."""
    env.until("PUBREL", lambda: not any(client.received), client)
    env.ask("disconnect", code)


def taken_over_for_good(env, client):
    """After DISCONNECT 0x8E the client does not try again at once, but after `retry_max_ms`."""
    most = client.retry_max_ms
    _disconnect(env, client, "8e")
    env.fault()
    env.loses(client, "closed")
    env.equal(client.error.code, 0x8E, "code")
    began = env.ticks()
    env.accepted(client, 1)
    env.until("the broker", lambda: client.connected, client)
    took = env.ticks_diff(env.ticks(), began)
    env.equal(took > most * 3 // 4, True, f"{took} ms of {most}")


def shrinks(env, client):
    """The next connection has a Receive Maximum of `option` while messages wait.

    Those without acknowledgement go again in turn, and all of them arrive.
    """
    env.ask("withhold", 4, 5, 7)
    env.fault()
    for _ in range(2):
        env.accepted(client, 2)
        env.accepted(client, 1)
        env.accepted(client, 0)
    client.flush()
    env.until("a part of them", lambda: env.ask("held") == "yes", client)
    env.ask("announce", "21:" + env.option)
    losses = client.stats.losses
    env.ask("strike", "cut")
    env.until("the loss", lambda: client.stats.losses > losses, client)
    env.accepted(client, 2)
    env.ask("release")
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.saw("all, in turn")
    env.equal(client.server.receive_maximum, int(env.option), "Receive Maximum")
    for _ in range(int(env.option)):
        env.accepted(client, 1)
    env.equal(client.publish(env.up[1], b"x", 1), None, "room")
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.ask("announce")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)


def shrinks_often(env, client):
    """Change Receive Maximum on each connection, 1 to 4, and break the link a hundred times.

    It is cut or reset while messages flow.
    """
    random.seed(3)
    env.ask("often")
    env.fault()
    for _ in range(env.often):
        env.traffic(client)
        env.ask("announce", f"21:{random.getrandbits(2) + 1}")
        env.ask("strike", ("cut", "reset")[random.getrandbits(1)])
    env.recovers(client)
    env.saw("every message")
    env.ask("announce")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)


def session_expired(env, client):
    """The broker's session ends while the client is away and messages are under way.

    They go as new, and the subscriptions return.
    """
    env.ask("forgotten")
    env.ask("announce", "11:100")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)
    env.recovers(client)
    env.equal(client.server.session_expiry, 100, "Session Expiry Interval")
    env.ask("withhold", 4, 5)
    env.accepted(client, 1)
    env.accepted(client, 2)
    env.until("a part of them", lambda: env.ask("held") == "yes", client)
    env.ask("refuse")
    env.fault()
    env.ask("strike", "cut")
    env.loses(client, "closed")
    env.ask("pass_time", 200)
    renewed = client.stats.renewed
    env.ask("release")
    env.ask("accept")
    env.until("the broker", lambda: client.connected, client)
    env.equal(client.session_present, False, "session present")
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.equal(client.stats.renewed > renewed, True, "renewed")
    env.ask("announce")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)


def limits_appear(env, client):
    """A returning broker takes no QoS 2, no retained and no large messages.

    One of each waits: they are set aside, and the others pass.
    """
    env.ask("refuse")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)
    topic = env.name(b"refused")
    env.accepted(client, 1)
    wanted = [
        (client.publish(topic, b"x", 2), topic),
        (client.publish(topic, b"x", 1, True), topic),
        (client.publish(topic, bytes(200), 1), topic),
    ]
    env.accepted(client, 1)
    env.ask("announce", "24:1", "25:0", "27:150")
    env.fault()
    env.ask("accept")
    env.until("acknowledgements", lambda: client.pending == 0, client)
    env.given_up(client, wanted)
    env.saw("a report")
    refusals = (
        lambda: client.publish(topic, b"x", 2),
        lambda: client.publish(topic, b"x", 1, True),
        lambda: client.publish(topic, bytes(200), 1, properties=Properties(expiry=1)),
    )
    for publish in refusals:
        try:
            publish()
        except ValueError:
            continue
        raise AssertionError("accepted")
    env.ask("announce")
    env.ask("strike", "cut")
    env.until("the loss", lambda: not client.connected, client)
