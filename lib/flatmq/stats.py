"""The counters of a client by their names. Loaded with the first use of `client.stats`."""

from .port import MICROPYTHON, Shown, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client

# In the order of the list, eleven characters each. Each name alone would stay in a board's table.
_NAMES = (
    "received   unrouted   skipped    strays     dup0       resent     "
    "renewed    refused    dropped    downgraded connects   losses     "
)
_WIDTH = const(11)


class Stats(Shown):
    """Counters since the client was made. On a board they stay small ints up to 1,073,741,823."""

    received: int  # messages handed to handlers
    unrouted: int  # messages that no filter matched and no on_message took
    skipped: int  # messages acknowledged and not delivered: larger than rx_size, or with a topic
    # name that is not valid
    strays: int  # acknowledgements of packet identifiers that were not in flight; and messages
    # delivered without a property that is not allowed (MQTT 5)
    dup0: int  # messages with DUP at QoS 0, which is not allowed [MQTT-3.3.1-2]
    resent: int  # publishes and PUBRELs sent again after a reconnect
    renewed: int  # of those, sent as new because the broker had forgotten the session
    refused: int  # calls of publish for which there was no room
    dropped: int  # messages set aside, and messages whose handler raised: see `give_up`
    downgraded: int  # QoS 2 messages that the broker settled with PUBACK
    connects: int  # connections that a CONNACK accepted
    losses: int  # connections that ended, or could not be made

    names = _NAMES

    def __init__(self, client: "Client") -> None:
        self.values = client.counts

    def __getattr__(self, name: str) -> int:
        i = _NAMES.find(name)
        if i < 0 or i % _WIDTH or _NAMES[i + len(name)] != " ":
            raise AttributeError(name)
        return self.values[i // _WIDTH]


stats = Stats  # see `methods.get`

if not MICROPYTHON:
    for i, each in enumerate(_NAMES.split()):
        setattr(Stats, each, property(lambda self, i=i: self.values[i]))  # type: ignore[misc]
