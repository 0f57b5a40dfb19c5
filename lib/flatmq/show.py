"""Texts for people: how objects print at the prompt, and why a connection ended."""

from .error import MQTTError


def show(thing: object) -> str:
    """Return an object's class and public attributes that are numbers."""
    parts = [
        f"{name}={value}"
        for name in dir(thing)
        if name[0] != "_"
        for value in (getattr(thing, name),)
        if value.__class__ is int
    ]
    return f"<{type(thing).__name__} {' '.join(parts)}>"


def show_client(c) -> str:
    """Return a client's identifier, place, state and what waits."""
    host = getattr(c.link, "host", "")
    where = f" at {host}:{c.link.port}" if host else ""
    text = f"<Client {c.options['client_id']!r}{where}, {c.state}, {c.pending} pending"
    if c.error:
        text += f", last error: {c.error.kind}, {c.error.detail}"
    return text + ">"


def show_message(m) -> str:
    """Return a message's topic name, flags and payload, which is cut if it is long."""
    payload = bytes(m.buf[m.at : min(m.end, m.at + 32)])
    more = "..." if m.end - m.at > 32 else ""
    return f"<Message {m.topic!r} {payload!r}{more} qos={m.qos} retain={m.retain} dup={m.dup}>"


def explained(kind: str, what: str, error, code: int, link) -> MQTTError:
    """Return the error for what was raised, b"" or 0 for the end of the stream, while `what` was
    done on a `link`; or, with no `error`, for what the peer did."""
    if isinstance(error, MQTTError):
        return error
    if error is not None:
        where = ""
        if getattr(link, "host", None):
            where = f" {link.host}:{link.port}"
        if isinstance(error, BaseException):
            why = f"{type(error).__name__}: {error}"
        else:
            why = "closed by the peer"
        what = f"{what}{where}: {why}"
    return MQTTError(kind, what, code)
