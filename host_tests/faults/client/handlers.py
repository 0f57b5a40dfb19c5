"""Handlers that raise."""


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
