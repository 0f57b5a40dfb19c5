"""Deliver a message that several filters match. Loaded with the first one, and kept."""

from ..engine import HOLD
from ..message import search
from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..message import Message


def several(m: "Message", chunks: bool = False, find: "Any" = search) -> "object | None":
    """Call all handlers of a message, each once, even if one of them raises or holds.

    `find` finds them, as `message.search` does.
    """
    c = m.client
    e = m.t + 2 + (m.buf[m.t] << 8 | m.buf[m.t + 1])
    if not c.limit:
        c.limit = len(c.subscriptions)  # a handler may add others, for the next message
        c.found = False
    while True:
        c.done = find(c, c.done, e, chunks)  # where to continue if this handler raises
        if not 0 <= c.done < c.limit:
            break
        s = c.subscriptions[c.done]
        if s.handler(m) is HOLD:
            return HOLD
        c.found = True
        # A handler may have ended its own subscription, or one before it.
        if c.done < c.limit and c.subscriptions[c.done] is s:
            c.done += 1
    c.done = c.limit = 0
    if c.found or c.on_message is None or (chunks and not c.chunks):
        return None
    return c.on_message(m)  # the only handler has ended its subscription, and has raised
