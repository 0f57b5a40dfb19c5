"""Texts for people: the repr of objects, and the reason why a connection ended."""

from .errors import MQTTError
from .load import load
from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def show(thing: "Any") -> str:
    """Return the repr of an object."""
    kind = type(thing).__name__
    how = {
        "Client": _client,
        "Client5": _client,
        "Message": _message,
        "Subscription": _subscription,
    }
    return f"<{kind} {how.get(kind, _numbers)(thing)}>"


def _numbers(thing):
    names = [name for name in dir(thing) if name[0] != "_"]
    values = [(name, getattr(thing, name)) for name in names]
    return " ".join([f"{name}={value}" for name, value in values if value.__class__ is int])


def _client(c):
    host = getattr(c.link, "host", "")
    where = f" at {host}:{c.link.port}" if host else ""
    three = type(c).__name__ == "Client"
    name = load("setup").parts_of(c)[0] if three else c.options["client_id"]
    text = f"{name!r}{where}, {c.state}, {c.pending} pending"
    if c.error:
        text += f", last error: {c.error.kind}, {c.error.detail}"
    return text


def _message(m):
    payload = bytes(m.buf[m.at : min(m.end, m.at + 32)])
    more = "..." if m.end - m.at > 32 else ""
    return f"{m.topic!r} {payload!r}{more} qos={m.qos} retain={m.retain} dup={m.dup}"


def _subscription(s):
    return f"{s.filters} granted={s.granted!r}"


def explained(kind: str, what: str, error, code: int, client) -> MQTTError:
    """Return the MQTTError for an `error` raised while doing `what` on the link of a `client`.

    `error` is an exception, or b"" or 0 for the end of the stream. With None, `what` says what
    the peer did. Before CONNACK a link may know the cause: its `why(error)` returns an
    MQTTError, or None.
    """
    if isinstance(error, MQTTError):
        return error
    link = client.link
    if error is not None:
        why = getattr(link, "why", None)
        found = why(error) if why and client.open is False else None
        if found:
            return found
        where = ""
        if getattr(link, "host", None):
            where = f" {link.host}:{link.port}"
        if isinstance(error, BaseException):
            why = f"{type(error).__name__}: {error}"
        else:
            why = "closed by the peer"
        what = f"{what}{where}: {why}"
    return MQTTError(kind, what, code)
