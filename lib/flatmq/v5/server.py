"""Limits and features that the broker reports in CONNACK (MQTT 5 section 3.2.2.3)."""

from ..port import Shown, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .walk import View


class Server(Shown):
    """Limits and features of the broker.

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

    def __init__(self, said: "View") -> None:
        self.client_id = None
        self.read(said)

    def read(self, said: "View") -> None:
        """Store the properties of a CONNACK. The client identifier stays if there is none."""
        get = said.get
        self.receive_maximum = get(0x21, 65535)
        self.max_qos = get(0x24, 2)
        self.retain = get(0x25, 1)
        self.maximum_packet_size = get(0x27, 0)
        self.topic_alias_maximum = get(0x22, 0)
        self.client_id = get(0x12, self.client_id)
        self.keep_alive = get(0x13, -1)
        self.session_expiry = get(0x11, -1)
        self.wildcards = get(0x28, 1)
        self.identifiers = get(0x29, 1)
        self.shared = get(0x2A, 1)
        self.response_information = get(0x1A)
        self.note(said)

    def note(self, said: "View") -> None:
        """Store the reason and the server reference of a CONNACK or DISCONNECT."""
        self.reference = said.get(0x1C)
        self.reason = said.get(0x1F)
