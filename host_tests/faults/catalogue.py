"""The fault table's rows: which scenario, under which name, on which brokers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

BOTH = ("mosquitto", "fake")
FAKE = ("fake",)
BOTH_5 = ("mosquitto, MQTT 5", "fake, MQTT 5")
FAKE_5 = ("fake, MQTT 5",)
# What the client goes over, by the name of the broker in the table.
LINKS = {
    "mosquitto": "tcp",
    "mosquitto over TLS": "tls",
    "mosquitto over WebSocket": "websocket",
    "fake": "tcp",
    "mosquitto, MQTT 5": "tcp",
    "fake, MQTT 5": "tcp",
}
SMALL = "88k"  # heap of MicroPython; a 64-bit one, where objects are twice as large as on a board
LARGER = "120k"  # where the client has buffers of 8 KB messages, or there are several clients
# Heap for every scenario over a link that has code of its own. On the unix port the buffers of TLS
# are not in it.
OVER = {"mosquitto over TLS": "152k", "mosquitto over WebSocket": "128k"}
MORE_5 = 64  # KB of heap for the code of MQTT 5


def version(broker: str) -> int:
    """The protocol version at which a broker of the table is used."""
    return 5 if broker in BOTH_5 else 4


class Scenario(NamedTuple):
    """A function of a module of client/, and what it is started with.

    own: it kills its broker. heap: of MicroPython. waits: for seconds, in which the machine is
    idle. client: its options, or "none" where the scenario makes its own. wraps: ms after which
    its clock comes round. twice: it is run once before heap and files are compared, for what the
    client loads when it is first needed.
    """

    module: str
    title: str
    function: str
    option: str = ""
    brokers: tuple[str, ...] = BOTH
    own: bool = False
    heap: str = SMALL
    waits: bool = False
    client: str = ""
    wraps: str = ""
    twice: bool = False


# The modules of client/.
greeting = partial(Scenario, "greeting")
silence = partial(Scenario, "silence")
handshakes = partial(Scenario, "handshakes")
cuts = partial(Scenario, "cuts")
surprises = partial(Scenario, "surprises")
wedges = partial(Scenario, "wedges")
clock = partial(Scenario, "clock")
reasons = partial(Scenario, "reasons")


def heap(scenario: Scenario, broker: str) -> str:
    """The heap of MicroPython for a scenario on a broker."""
    if version(broker) == 5:
        return f"{int(scenario.heap[:-1]) + MORE_5}k"
    return OVER.get(broker, scenario.heap)


REFUSALS = {
    1: "protocol version",
    2: "identifier",
    3: "server unavailable",
    4: "user name or password",
    5: "not authorised",
    6: "unknown code",
}

# What the broker must not send, as bytes.
BROKEN_RULES = {
    "type 0 packet": "0000",
    "type 15 with a body": "f00548656c6c6f",
    "5-byte length": "30ffffffff7f000161",
    "QoS 3": "36060001610001ff",
    "topic longer than packet": "30050010616263",
    "packet identifier 0": "3207000161000068690a"[:18],
    "a second CONNACK": "20020000",
    "DISCONNECT from the broker": "e000",
    "PUBACK of one byte": "400100",
}

PACKETS = {  # on the way of a message that the client publishes, and of one that it receives
    "outgoing": [
        "up-PUBLISH-1",
        "down-PUBACK-1",
        "up-PUBLISH-2",
        "down-PUBREC-2",
        "up-PUBREL-2",
        "down-PUBCOMP-2",
    ],
    "incoming": [
        "down-PUBLISH-1",
        "up-PUBACK-1",
        "down-PUBLISH-2",
        "up-PUBREC-2",
        "down-PUBREL-2",
        "up-PUBCOMP-2",
    ],
}


def _named(option: str) -> str:
    _way, kind, qos = option.split("-")
    return f"{kind} of QoS {qos}"


def _greeting() -> Iterator[Scenario]:
    yield greeting("name lookup fails", "name_lookup_fails", twice=True)
    yield greeting("name lookup of a name in .invalid", "no_such_name", twice=True)
    yield greeting(
        "TCP is never answered", "tcp_is_never_answered", waits=True, client="timeout:1"
    )
    yield greeting(
        "connection refused for a minute",
        "connection_refused",
        waits=True,
        client="keepalive:0,retry_ms:500,retry_max_ms:5000",
        twice=True,
    )
    yield greeting("no CONNACK", "no_connack", waits=True, client="timeout:1")
    for n in range(4):
        yield greeting(f"closed after {n} bytes of CONNACK", "closed_in_connack", str(n))
    for code, name in REFUSALS.items():
        yield greeting(f"CONNACK refused, {code}: {name}", "refused", str(code), FAKE)
    for name, data in {
        "PUBLISH before CONNACK": "300500016162",
        "CONNACK with flags": "20020200",
        "CONNACK of 3 bytes": "2003000000",
    }.items():
        yield greeting(name, "wrong_answer_to_connect", data, FAKE)


def _silence() -> Iterator[Scenario]:
    for option, name in {"": "idle", "1": "QoS 1 waits", "2": "QoS 2 waits"}.items():
        yield silence(
            f"silent peer, keepalive 4, {name}",
            "silent_peer",
            option,
            waits=True,
            client="keepalive:4",
        )
    yield silence("silence, then reset", "silent_then_reset")
    yield silence(
        "silence in the middle of a packet",
        "silent_in_a_packet",
        "",
        FAKE,
        waits=True,
        client="keepalive:4",
    )
    yield silence(
        "header claims 256 MB",
        "length_without_end",
        "",
        FAKE,
        waits=True,
        client="keepalive:4",
        twice=True,
    )
    for option in ("skipped", "pieces"):
        yield silence(
            f"header claims 256 MB, cut after 3 MB, {option}",
            "length_and_a_part",
            option,
            FAKE,
            client=f"chunks:{int(option == 'pieces')}",
            twice=True,
        )
    yield silence(
        "peer stops reading", "peer_stops_reading", waits=True, client="keepalive:4,tx_size:2048"
    )
    yield silence(
        "peer stops reading for a while", "peer_stops_reading_for_a_while", client="tx_size:2048"
    )
    yield silence(
        "partial writes, 8 KB messages",
        "partial_writes",
        heap=LARGER,
        client="tx_size:17000,rx_size:128,inflight:2,room:1000",
    )
    yield silence(f"100 KB message, {SMALL[:-1]} KB heap", "larger_than_the_heap", twice=True)
    yield silence("disconnect while messages wait", "disconnects_while_messages_wait", twice=True)


def _handshakes() -> Iterator[Scenario]:
    for direction, options in PACKETS.items():
        for option in options:
            yield handshakes(
                f"broker killed at {direction} {_named(option)}",
                f"{direction}_killed",
                option,
                own=True,
            )
    for option in PACKETS["outgoing"]:
        yield handshakes(f"taken over at {_named(option)}", "taken_over", option)
        yield handshakes(f"session forgotten at {_named(option)}", "session_forgotten", option)
    yield handshakes("CONNACK lost at PUBREC, then a short link", "incoming_in_doubt")
    yield handshakes(
        "two clients, one identifier",
        "two_clients_one_identifier",
        heap=LARGER,
        client="clean_session:1",
        twice=True,
    )


def _cuts() -> Iterator[Scenario]:
    for fault in ("cut", "reset"):
        yield cuts(f"link {fault}", "struck", fault)
        for way in ("up", "down"):
            yield cuts(
                f"link {fault} after every byte {way}",
                "at_every_byte",
                f"{way}-{fault}",
                heap=LARGER,
                client="none",
            )
    for qos in range(3):
        yield cuts(
            f"closed right behind a message at QoS {qos}", "closed_behind_a_message", str(qos)
        )
    yield cuts("delay of 50 ms", "delayed", "50")
    yield cuts("byte by byte", "byte_by_byte")


def _surprises() -> Iterator[Scenario]:
    for name, data in BROKEN_RULES.items():
        yield surprises(name, "breaks_a_rule", data, FAKE)
    yield surprises("topic names that are not valid", "topic_not_valid", "", FAKE, twice=True)
    yield surprises("SUBACK 0x80", "subscription_refused", "", FAKE, twice=True)
    yield surprises("stray PUBACK and others", "stray_acknowledgements", "", FAKE, twice=True)
    yield surprises("PUBLISH before SUBACK", "publish_before_suback", "", FAKE, twice=True)
    for qos in range(3):
        yield surprises(f"handler raises at QoS {qos}", "handler_raises", str(qos))
    for qos in (1, 2):
        yield surprises(
            f"handler raises, then a cut, QoS {qos}",
            "handler_raises_and_the_link_is_cut",
            str(qos),
        )


def _wedges() -> Iterator[Scenario]:
    for qos in range(3):
        yield _wedge(f"refused by closing, QoS {qos}", "refused", str(qos), "give_up:3")
    yield _wedge("refused, dropped by hand", "refused_and_dropped_by_hand", "", "give_up:0")
    yield _wedge("PUBREL is never answered", "release_is_never_answered", "", "give_up:3")
    yield _wedge("QoS 2 answered with PUBACK", "qos_2_answered_with_puback", "", "")
    for qos in (1, 2):
        yield wedges(
            f"killed a hundred times, QoS {qos} under way",
            "killed_while_one_is_under_way",
            str(qos),
            FAKE,
            heap=LARGER,
            waits=True,
        )
    yield wedges("killed a hundred times", "killed_often", own=True, heap=LARGER)
    for fault in ("cut", "reset"):
        yield wedges(
            f"link {fault} a hundred times", "struck_often", fault, heap=LARGER, waits=True
        )


def _wedge(title: str, function: str, option: str, client: str) -> Scenario:
    return wedges(title, function, option, FAKE, heap=LARGER, client=client, twice=True)


def _clock() -> Iterator[Scenario]:
    for after, name in {
        1500: "keep alive",
        4500: "PINGRESP",
        6500: "the back-off",
        8500: "CONNACK",
    }.items():
        yield clock(
            f"ticks_ms wraps in the time of {name}",
            "wraps",
            waits=True,
            client="keepalive:4,timeout:2,retry_ms:1000,retry_max_ms:2000",
            wraps=str(after),
        )
    for ms in (5000, 3600000):
        yield clock(
            f"the application sleeps for {ms // 1000} s",
            "application_sleeps",
            str(ms),
            client="keepalive:4",
        )


# Not over TLS and WebSocket: what looks at packets on the way or at bytes of CONNACK, what is
# about name lookup, and what the heap must be too small for.
_TCP_ONLY = {
    "name_lookup_fails",
    "no_such_name",
    "closed_in_connack",
    "larger_than_the_heap",
    "outgoing_killed",
    "incoming_killed",
    "incoming_in_doubt",
    "taken_over",
    "session_forgotten",
    "wraps",
}


# Not at MQTT 5, beside what sends bytes of 3.1.1: what the heap must be too small for, and what a
# broker for it cannot do.
_NOT_AT_5 = {
    "silence.larger_than_the_heap",
    "greeting.refused",
    "greeting.wrong_answer_to_connect",
    "surprises.breaks_a_rule",
    "surprises.subscription_refused",
    "surprises.stray_acknowledgements",
    "wedges.qos_2_answered_with_puback",
}


def _everywhere(scenario: Scenario) -> Scenario:
    """The scenario, with the brokers that are reached over TLS and WebSocket, and at MQTT 5."""
    brokers = scenario.brokers
    if "mosquitto" in brokers and scenario.function not in _TCP_ONLY:
        brokers = (*brokers, *OVER)
    if f"{scenario.module}.{scenario.function}" not in _NOT_AT_5:
        both = zip(BOTH, BOTH_5, strict=True)
        brokers = (*brokers, *(at_5 for name, at_5 in both if name in scenario.brokers))
    return scenario._replace(brokers=brokers)


# Packets of MQTT 5 that break a rule, as bytes: what the client says of them, and the reason code
# of the DISCONNECT that it sends.
BROKEN_RULES_5 = {
    "PUBLISH, unknown property": ("300700016102ff0062", "unknown", 0x81),
    "PUBLISH, a property of CONNACK": ("3008000161032100" + "0562", "not_allowed", 0x81),
    "PUBLISH, a property twice": ("300900016104010001" + "0162", "twice", 0x82),
    "PUBLISH, a property that is cut": ("300700016102030061", "whole", 0x81),
    "PUBLISH, properties longer than it": ("30050001617f62", "length", 0x81),
    "PUBLISH, property length of 5 bytes": ("3008000161ffffffff01", "length", 0x81),
    "PUBLISH, value that is not allowed": ("3007000161020b0062", "value", 0x82),
    "PUBLISH, topic alias 1": ("30080001610323000162", "alias", 0x94),
    "PUBLISH of QoS 1, unknown property": ("32090001610007" + "02ff0062", "unknown", 0x81),
    "PUBACK, unknown property": ("400600070002ff00", "unknown", 0x81),
    "PUBREC, a property twice": ("500a000700061f00001f0000", "twice", 0x82),
    "PUBREL, properties that are cut": ("6205000700051f", "length", 0x81),
    "PUBCOMP, a property of CONNECT": ("7006000700022101", "not_allowed", 0x81),
    "SUBACK, a property that is cut": ("90070007031f000500", "whole", 0x81),
    "UNSUBACK, no reason code": ("b003000700", "codes", 0x82),
    "DISCONNECT, unknown property": ("e0040002ff00", "unknown", 0x81),
    "AUTH, nobody asked": ("f0021800", "AUTH", 0x82),
}
ANSWERS_TO_CONNECT_5 = {
    "CONNACK of 3.1.1": "20020000",
    "PUBLISH before CONNACK": "30060001610062",
    "CONNACK with flags": "2003020000",
    "CONNACK, Receive Maximum 0": "2006000003210000",
    "CONNACK, a property twice": "20070000042501" + "2501",
    "CONNACK, unknown property": "2005000002ff00",
    "CONNACK, properties that are cut": "20050000052100",
    "CONNACK, a property of PUBLISH": "20050000020101",
}
REFUSALS_5 = {
    0x80: "unspecified error",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x97: "quota exceeded",
    0x9D: "server moved",
    0x9F: "connection rate exceeded",
}


def _only_at_5() -> Iterator[Scenario]:
    for code, name in REFUSALS_5.items():
        yield greeting(f"CONNACK {code:#x}: {name}", "refused", str(code), FAKE_5)
    for name, data in ANSWERS_TO_CONNECT_5.items():
        yield greeting(name, "wrong_answer_to_connect", data, FAKE_5)
    for name, (data, rule, code) in BROKEN_RULES_5.items():
        option = f"{data}-{rule}-{code:x}"
        yield reasons(name, "breaks_a_rule", option, FAKE_5, twice=True)
    for option, name in {
        "PUBACK-1": "PUBACK 0x87",
        "PUBREC-2": "PUBREC 0x87",
        "PUBACK-large": "PUBACK 0x87, a message in pieces",
    }.items():
        yield reasons(name, "message_refused", option, FAKE_5, twice=True)
    yield reasons("PUBCOMP 0x92", "release_unknown", "", FAKE_5, twice=True)
    yield reasons("SUBACK and UNSUBACK 0x87", "requests_refused", "", FAKE_5, twice=True)
    for code in (0x00, 0x89, 0x8B, 0x93, 0x97, 0x98, 0x9C):
        yield reasons(f"DISCONNECT {code:#x}", "disconnected", f"{code:x}", FAKE_5, twice=True)
    yield reasons(
        "taken over, DISCONNECT 0x8e",
        "taken_over_for_good",
        "",
        FAKE_5,
        client="retry_max_ms:600",
        twice=True,
    )
    for option, name in {"1": "to 1", "2": "to 2"}.items():
        yield reasons(f"Receive Maximum shrinks {name}", "shrinks", option, FAKE_5, twice=True)
    yield reasons(
        "Receive Maximum changes a hundred times",
        "shrinks_often",
        "",
        FAKE_5,
        heap=LARGER,
        waits=True,
        twice=True,
    )
    yield reasons("session expired while away", "session_expired", "", FAKE_5, twice=True)
    yield reasons("limits appear at a reconnect", "limits_appear", "", FAKE_5, twice=True)


SCENARIOS = [
    *map(
        _everywhere,
        (
            *_greeting(),
            *_silence(),
            *_handshakes(),
            *_cuts(),
            *_surprises(),
            *_wedges(),
            *_clock(),
        ),
    ),
    *_only_at_5(),
]
