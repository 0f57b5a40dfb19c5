"""The rules that CONNECT and CONNACK set for what a client sends on a connection."""

from packets.fields import PROTOCOL_ERROR, TOO_LARGE, TOPIC_ALIAS_INVALID, Broken
from packets.properties import Id, Properties
from packets.strict import Packet


def check_client(packet: Packet, size: int, asked: Properties, announced: Properties) -> None:
    """Raise Broken if a client must not send this packet of `size` bytes.

    It had `asked` in its CONNECT, and the server `announced` in its CONNACK.
    """
    if size > announced.first(Id.MAXIMUM_PACKET_SIZE, size):
        raise Broken(f"{packet.name} of {size} bytes [MQTT-3.2.2-15]", TOO_LARGE)
    if packet.name == "PUBLISH":
        _check_publish(packet, announced)
    elif packet.name == "SUBSCRIBE":
        _check_subscribe(packet, announced)
    elif packet.name == "DISCONNECT":
        expiry = packet.properties.first(Id.SESSION_EXPIRY)
        if expiry and not asked.first(Id.SESSION_EXPIRY, 0):
            raise Broken("DISCONNECT: an expiry where CONNECT had none (section 3.14.2.2.2)", 0x82)
    _check_method(packet, asked)


def _check_method(packet: Packet, asked: Properties) -> None:
    method = asked.first(Id.AUTHENTICATION_METHOD)
    named = packet.properties.first(Id.AUTHENTICATION_METHOD)
    if packet.name == "AUTH" and method is None:
        raise Broken("AUTH: CONNECT had no authentication method [MQTT-4.12.0-6]", PROTOCOL_ERROR)
    if named is not None and named != method:
        raise Broken(
            f"{packet.name}: authentication method {named!r}, not {method!r} [MQTT-4.12.0-5]",
            PROTOCOL_ERROR,
        )


def _check_publish(packet: Packet, announced: Properties) -> None:
    if packet.properties.first(Id.TOPIC_ALIAS, 0) > announced.first(Id.TOPIC_ALIAS_MAXIMUM, 0):
        raise Broken(
            "PUBLISH: a topic alias above the maximum [MQTT-3.2.2-17]", TOPIC_ALIAS_INVALID
        )
    if packet.qos > announced.first(Id.MAXIMUM_QOS, 2):
        raise Broken(f"PUBLISH: QoS {packet.qos} [MQTT-3.2.2-11]", 0x9B)
    if packet.retain and not announced.first(Id.RETAIN_AVAILABLE, 1):
        raise Broken("PUBLISH: RETAIN [MQTT-3.2.2-14]", 0x9A)


def _check_subscribe(packet: Packet, announced: Properties) -> None:
    for each in packet.filters:
        if each.topic.startswith(b"$share/") and not announced.first(Id.SHARED_AVAILABLE, 1):
            raise Broken("SUBSCRIBE: a shared subscription (section 3.2.2.3.13)", 0x9E)
        wild = b"+" in each.topic or b"#" in each.topic
        if wild and not announced.first(Id.WILDCARDS_AVAILABLE, 1):
            raise Broken("SUBSCRIBE: a wildcard (section 3.2.2.3.11)", 0xA2)
    if packet.properties.each(Id.SUBSCRIPTION_IDENTIFIER) and not announced.first(
        Id.SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 1
    ):
        raise Broken("SUBSCRIBE: a subscription identifier (section 3.2.2.3.12)", 0xA1)
