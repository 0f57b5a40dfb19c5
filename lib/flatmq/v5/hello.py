"""Change CONNECT as only MQTT 5 does (section 3.1). Loaded for one call."""

from ..hello import ask, parts_of
from ..port import const, load
from ..wire import connect, field, get_length, put_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client5

_NAMED = const(54)  # a rule: see `v5.reasons`


def update(c: "Client5", password: "bytes | str | bool | None") -> None:
    """Set the CONNECT of a client for its next connection.

    `password` is False to keep it. The function of `auth` gives the data.
    """
    if c.level < 5:
        return load("fallback", "v5.").update(c, password)
    data = ask(c.auth[1], None) if c.auth else None
    block = c.asks
    if data is not None:
        data = field("auth_data", data, None)
        block = block[1 + (get_length(block, 0, len(block)) & 3) :]
        block += bytes((0x16, len(data) >> 8, len(data) & 255)) + data
        whole = bytearray()
        put_length(whole, len(block))
        block = bytes(whole + block)
    client_id, user, old, will = parts_of(c)
    connect(c, client_id, user, old if password is False else password, will, block)
    if password is False and not c.auth and c.unanswered is None:
        c.password = None  # nothing changes any more
    return None


def rename(c: "Client5", name: bytes) -> int:
    """Use the client identifier that the broker has assigned to a client without one.

    Returns the rule that it breaks if the client has one, else 0.
    """
    client_id, user, password, will = parts_of(c)
    if not client_id:
        connect(c, name, user, password, will)
    return _NAMED if client_id else 0
