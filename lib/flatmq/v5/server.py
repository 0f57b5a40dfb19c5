"""Name the limits and features of the broker. Loaded with the first use of `client.server`."""

from ..port import Shown, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# In the order of the list.
_NAMES = (
    "receive_maximum",
    "max_qos",
    "retain",
    "maximum_packet_size",
    "topic_alias_maximum",
    "client_id",
    "keep_alive",
    "session_expiry",
    "wildcards",
    "identifiers",
    "shared",
    "response_information",
    "reference",
    "reason",
)


class Server(Shown):
    """Limits and features of the broker (section 3.2.2.3).

    Before the first CONNACK they have the values that apply if a broker does not mention them.
    """

    receive_maximum: int  # QoS 1 and 2 messages that may be in flight to it, 1 to 65,535
    max_qos: int  # the highest QoS, 0 to 2
    retain: int  # 1: it supports retained messages
    maximum_packet_size: int  # bytes of the largest packet that it takes; 0: any
    topic_alias_maximum: int  # the highest topic alias; 0: none allowed
    client_id: "bytes | None"  # the client identifier that it assigned to a client without one
    keep_alive: int  # seconds, to be used instead of the client's own; -1: not given
    session_expiry: int  # seconds that it keeps the session after a connection; -1: as requested
    wildcards: int  # 1: topic filters may have wildcards
    identifiers: int  # 1: subscriptions may have an identifier
    shared: int  # 1: it supports shared subscriptions
    response_information: "bytes | None"  # how names of response topics may begin
    reference: "bytes | None"  # another server to use, from CONNACK or DISCONNECT
    reason: "bytes | None"  # why it refused or ended the connection, in its own words

    names = _NAMES

    def __init__(self, client: "Client5") -> None:
        self.values = client.offers

    def __getattr__(self, name: str) -> "Any":
        if name not in _NAMES:
            raise AttributeError(name)
        return self.values[_NAMES.index(name)]
