"""Wills: what the broker says for a client that died, and not for one that left."""

BROKER = "shared"

CASES = [(qos, retain) for qos in range(3) for retain in (False, True)]


def victim(env):
    """A client with a will, in a process of its own, which is killed when it says so."""
    client = env.client(b"victim" + env.option.encode())
    if env.option == "cleared":
        client.set_will(env.name(b"will/0"), b"cleared", 0, False)
        client.set_will(None)
    else:
        qos, retain = CASES[int(env.option)]
        client.set_will(env.name(b"will/" + env.option.encode()), b"gone", qos, retain)
    client.connect(timeout_ms=15000)
    env.ask("die")
    raise AssertionError("still alive")


def killed_client(env):
    """A client process ended by SIGKILL: its will comes once, as it was set."""
    watcher, newcomer = env.client(b"w"), env.client(b"n")
    for number in range(len(CASES)):
        qos, retain = CASES[number]
        case = f"QoS {qos}, retain {retain}"
        topic = env.name(b"will/%d" % number)
        inbox = env.subscribed(watcher, topic, 2)
        env.ask("kill", "wills", "victim", str(number))
        env.arrive(inbox, 1, watcher)
        due = env.expected["delivered"][(qos, 2)]
        env.equal(inbox.messages, [(topic, b"gone", due, False)], case)
        late = env.subscribed(newcomer, topic, 2)
        env.published(newcomer, topic, b"end", 1)
        env.arrives(late, b"end", newcomer)
        kept = [message for message in late.messages if message[1] == b"gone"]
        wanted = [(topic, b"gone", due, True)] if retain else []
        env.equal(kept, wanted, "kept of " + case)
        env.published(newcomer, topic, b"", 1, True)


def not_after_disconnect(env):
    """A client that disconnects takes its will with it."""
    topic = env.name(b"quiet")
    watcher = env.client(b"w")
    inbox = env.subscribed(watcher, topic, 1)
    leaver = env.client(b"leaver")
    leaver.set_will(topic, b"gone", 1, True)
    leaver.connect(timeout_ms=15000)
    leaver.disconnect()
    env.equal(leaver.state, "offline", "state after disconnect")
    # The same identifier again: by its CONNACK the broker is done with the first connection.
    again = env.online(b"leaver")
    env.published(again, topic, b"end", 1)
    env.arrive(inbox, 1, watcher)
    env.equal(inbox.payloads(), [b"end"], "no will")


def cleared(env):
    """A will that was set and cleared again does not come when the client is killed."""
    watcher = env.client(b"cw")
    inbox = env.subscribed(watcher, env.name(b"will/0"), 1)
    env.ask("kill", "wills", "victim", "cleared")
    env.ask("kill", "wills", "victim", "0")  # whose will comes after that of the first
    env.arrive(inbox, 1, watcher)
    env.equal(inbox.payloads(), [b"gone"], "wills")
