"""The reason why a connection ended or a message failed."""


class MQTTError(Exception):
    """The reason why a connection ended or a message failed.

    `kind` is one of

    "refused"   the broker refused the connection; `code` is the return code of CONNACK (3.1.1
                section 3.2.2.3), in MQTT 5 its reason code (section 3.2.2.2), 0 if `auth` refused
    "closed"    the peer or the network closed the connection; in MQTT 5 `code` is the reason code
                of DISCONNECT, if there was one (section 3.14.2.1)
    "timeout"   an answer did not come in time
    "protocol"  the peer broke a rule of MQTT
    "resource"  something on this side was too small or not available
    "tls"       the broker or the client was not verified, or the port has no TLS; `code` is 1 if
                the connection was closed, which may also be a fault of the network
    "dropped"   in `aio`: the message was set aside; `code` is its packet identifier

    `detail` is a text that says what happened. `code` is 0 unless stated otherwise above. `str()`
    has the kind and the detail.
    """

    def __init__(self, kind: str, detail: object, code: int = 0) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.code = code


# Made in advance, while there is memory.
NO_MEMORY = MQTTError("resource", "no memory to load a module of flatmq")
