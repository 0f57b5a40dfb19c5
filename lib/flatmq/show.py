"""Texts for people: the repr of objects, and the reason why a connection ended."""

from .port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def show(thing: "Any") -> str:
    """Return the repr of an object."""
    kind = type(thing).__name__
    if kind == "Shown":  # see `setup`
        kind = "Stats"
    how = {
        "Client": _client,
        "Client5": _client,
        "Message": _message,
        "Subscription": _subscription,
        "View": _view,
    }
    return f"<{kind} {how.get(kind, _numbers)(thing)}>"


def _numbers(thing):
    names = getattr(thing, "names", None) or [name for name in dir(thing) if name[0] != "_"]
    values = [(name, getattr(thing, name)) for name in names]
    return " ".join([f"{name}={value}" for name, value in values if value.__class__ is int])


def _client(c):
    host = getattr(c.link, "host", "")
    where = f" at {host}:{c.link.port}" if host else ""
    name = load("hello", "").parts_of(c)[0]
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


def _view(v):
    return repr(bytes(v.buf[v.start : v.stop]))
