"""The fault table's rows: which scenario, under which name, on which brokers."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

BOTH = ("mosquitto", "fake")
BOTH_5 = ("mosquitto, MQTT 5", "fake, MQTT 5")
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
handlers = partial(Scenario, "handlers")
often = partial(Scenario, "often")
clock = partial(Scenario, "clock")


def heap(scenario: Scenario, broker: str) -> str:
    """The heap of MicroPython for a scenario on a broker."""
    if version(broker) == 5:
        return f"{int(scenario.heap[:-1]) + MORE_5}k"
    return OVER.get(broker, scenario.heap)


# On the way of a message that the client publishes, and of one that it receives
_OUTGOING = "up-PUBLISH-1 down-PUBACK-1 up-PUBLISH-2 down-PUBREC-2 up-PUBREL-2 down-PUBCOMP-2"
_INCOMING = "down-PUBLISH-1 up-PUBACK-1 down-PUBLISH-2 up-PUBREC-2 down-PUBREL-2 up-PUBCOMP-2"


def _at(title: str, function: str, options: str, **more: bool) -> Iterator[Scenario]:
    for option in options.split():
        _way, kind, qos = option.split("-")
        yield handshakes(f"{title} {kind} of QoS {qos}", function, option, **more)


_IMPATIENT = "keepalive:4,timeout:2,retry_ms:1000,retry_max_ms:2000"
SCENARIOS = [
    greeting("name lookup fails", "name_lookup_fails", twice=True),
    greeting("name lookup of a name in .invalid", "no_such_name", twice=True),
    greeting("TCP is never answered", "tcp_is_never_answered", waits=True, client="timeout:1"),
    greeting("connection refused for a minute", "connection_refused", waits=True, twice=True,
             client="keepalive:0,retry_ms:500,retry_max_ms:5000"),
    greeting("no CONNACK", "no_connack", waits=True, client="timeout:1"),
    *(greeting(f"closed after {n} bytes of CONNACK", "closed_in_connack", str(n))
      for n in range(4)),
    *(silence(f"silent peer, keepalive 4, {name}", "silent_peer", option, waits=True,
              client="keepalive:4")
      for option, name in {"": "idle", "1": "QoS 1 waits", "2": "QoS 2 waits"}.items()),
    silence("silence, then reset", "silent_then_reset"),
    silence("peer stops reading", "peer_stops_reading", waits=True,
            client="keepalive:4,tx_size:2048"),
    silence("peer stops reading for a while", "peer_stops_reading_for_a_while",
            client="tx_size:2048"),
    silence("partial writes, 8 KB messages", "partial_writes", heap=LARGER,
            client="tx_size:17000,rx_size:128,inflight:2,room:1000"),
    silence(f"100 KB message, {SMALL[:-1]} KB heap", "larger_than_the_heap", twice=True),
    silence("disconnect while messages wait", "disconnects_while_messages_wait", twice=True),
    *_at("broker killed at outgoing", "outgoing_killed", _OUTGOING, own=True),
    *_at("broker killed at incoming", "incoming_killed", _INCOMING, own=True),
    *(each for option in _OUTGOING.split() for each in (
        *_at("taken over at", "taken_over", option),
        *_at("session forgotten at", "session_forgotten", option),
    )),
    handshakes("CONNACK lost at PUBREC, then a short link", "incoming_in_doubt"),
    handshakes("two clients, one identifier", "two_clients_one_identifier", heap=LARGER,
               client="clean_session:1", twice=True),
    *(each for fault in ("cut", "reset") for each in (
        cuts(f"link {fault}", "struck", fault),
        *(cuts(f"link {fault} after every byte {way}", "at_every_byte", f"{way}-{fault}",
               heap=LARGER, client="none")
          for way in ("up", "down")),
    )),
    *(cuts(f"closed right behind a message at QoS {qos}", "closed_behind_a_message", str(qos))
      for qos in range(3)),
    cuts("delay of 50 ms", "delayed", "50"),
    cuts("byte by byte", "byte_by_byte"),
    *(handlers(f"handler raises at QoS {qos}", "handler_raises", str(qos)) for qos in range(3)),
    *(handlers(f"handler raises, then a cut, QoS {qos}", "handler_raises_and_the_link_is_cut",
               str(qos))
      for qos in (1, 2)),
    often("killed a hundred times", "killed_often", own=True, heap=LARGER),
    *(often(f"link {fault} a hundred times", "struck_often", fault, heap=LARGER, waits=True)
      for fault in ("cut", "reset")),
    *(clock(f"ticks_ms wraps in the time of {name}", "wraps", waits=True, client=_IMPATIENT,
            wraps=str(after))
      for after, name in
      {1500: "keep alive", 4500: "PINGRESP", 6500: "the back-off", 8500: "CONNACK"}.items()),
    *(clock(f"the application sleeps for {ms // 1000} s", "application_sleeps", str(ms),
            client="keepalive:4")
      for ms in (5000, 3600000)),
]  # fmt: skip


# Not over TLS and WebSocket: what looks at packets on the way or at bytes of CONNACK, what is
# about name lookup, and what the heap must be too small for.
_TCP_ONLY = [
    "name_lookup_fails", "no_such_name", "closed_in_connack", "larger_than_the_heap",
    "outgoing_killed", "incoming_killed", "incoming_in_doubt", "taken_over", "session_forgotten",
    "wraps",
]  # fmt: skip


def brokers(scenario: Scenario) -> tuple[str, ...]:
    """The brokers of a scenario: on TCP at both versions, and on the other links."""
    links = () if scenario.function in _TCP_ONLY else tuple(OVER)
    at_5 = () if scenario.function == "larger_than_the_heap" else BOTH_5
    return (*BOTH, *links, *at_5)
