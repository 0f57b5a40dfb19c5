"""Why a connection ended, or could not be made."""


class MQTTError(Exception):
    """`kind` is one of

    "refused"   by CONNACK, whose return code is `code` (3.1.1 section 3.2.2.3)
    "closed"    by the peer, or by the network
    "timeout"   an answer did not come in time
    "protocol"  the peer broke a rule of MQTT
    "resource"  something here was too small, or could not be had

    `detail` is a text that says what happened; `code` is 0 unless a connection was refused.
    """

    def __init__(self, kind: str, detail: object, code: int = 0) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail
        self.code = code
