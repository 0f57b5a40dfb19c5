"""Read CONNECT (section 3.1), and change it. Loaded for one call."""

from . import MQTTError
from .port import const, load
from .wire import connect, get_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client


def parts_of(c: "Client") -> "tuple[Any, Any, Any, Any]":
    """Return what the CONNECT of a client says: client identifier, user, password and will."""
    hello = c.hello
    at = 2 + (get_length(hello, 1, 5) & 3) + (12 if c.version == 3 else 10)
    flags = hello[at - 3]
    five = hello[at - 4] > 4
    blocks = (0, 2) if five else ()  # which of the fields are properties
    found: list[Any] = []
    while at < len(hello):
        if len(found) in blocks and (flags & 4 or not found):
            n = get_length(hello, at, len(hello))
            n = at + 1 + (n & 3) + (n >> 2)
            found.append(bytes(hello[at:n]))
        else:
            n = at + 2 + (hello[at] << 8 | hello[at + 1])
            found.append(bytes(hello[at + 2 : n]))
        at = n
    if five:
        found.pop(0)
    client_id = found.pop(0)
    will = None
    if flags & 4:
        block = found.pop(0) if five else b"\0"
        will = found.pop(0), found.pop(0), flags >> 3 & 3, flags & 32, block
    user = found.pop(0) if flags & 128 else None
    password = found.pop(0) if flags & 64 else None
    return client_id, user, password, will


def ask(function, *data):
    """Call the function of `password` or `auth`.

    Its own MQTTError passes. The text of another exception may have a secret: only the kind of
    that is in the MQTTError that is raised then.
    """
    try:
        return function(*data)
    except MQTTError:
        raise
    except Exception as e:
        kind = type(e).__name__
    raise MQTTError("resource", f"{kind} from the function of {'auth' if data else 'password'}")


def update(c: "Client") -> None:
    """Set the CONNECT of a client with the password that its function returns now.

    MQTTError if there is none.
    """
    password = ask(c.password)
    if c.five:
        return load("hello", "v5.").update(c, password)
    client_id, user, _, will = parts_of(c)
    return connect(c, client_id, user, password, will)
