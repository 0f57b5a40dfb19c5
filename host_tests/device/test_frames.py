"""No function that runs once the client is online has its frame on the heap."""

import pytest

from device import frames, on_device
from flatmq_tools import bytecode

# What runs while a client is made, connects or loses a connection, subscribes or unsubscribes, or
# is given a message to be sent in pieces; and generators, of which a connection has its own.
MAY_BE_ON_HEAP = {
    # Coroutines: `run` and `disconnect` once, and `_publish` when there is no room.
    "aio": {
        "Messages.__aenter__",
        "Messages.__aexit__",
        "Client.run",
        "Client.connected",
        "Client.lost",
        "Client._publish",
        "Client.subscribe",
        "Client.disconnect",
        "Client.__aenter__",
        "Client.__aexit__",
    },
    "blocking": {"bound.call"},
    "unload": {"unload"},
    "client": {"silent"},
    "connection": {
        "Connection.dialing",
        "Connection.pausing",
        "Connection.greeted",
        "Connection.lost",
    },
    "journal": {"Journal.__init__", "Journal._restore.<listcomp>", "Journal.retain"},
    "pieces": {"publish_from", "Pieces.publish"},
    "properties": {"Properties.__init__", "block", "_put"},
    "reader": {"reading"},
    "replies": {"Replies.__init__", "Replies.__init__.<listcomp>"},
    "requests": {
        "packet",
        "static string 138",  # send
        "resume",
        "answered",
        "answered.<genexpr>",
        "answered.<listcomp>",
    },
    # When a connection has ended, and once for what is given up.
    "refused": {"lost.<genexpr>", "OneByOne._set_aside"},
    "resend": {"Resend.lost", "set_aside"},
    "senml": {"Pack.__init__", "Pack.__init__.<listcomp>", "_check_name"},
    "sas": {"SAS.static string 9", "_quoted"},  # __call__; once for each connection
    "setup": {"options", "connect", "set_will"},
    "show": {"_numbers.<listcomp>", "explained"},
    "spool": {"Spool.__init__"},
    # And what runs when something on flash was not whole, or failed, or is set aside.
    "aside": {"keep", "static string 125"},  # read
    "store": {
        "Store.__init__",
        "Store.__init__.<genexpr>",
        "Store._load_segments",
        "Store._load_segment",
        "Store._load_head",
        "Store._append_again",
        "Store.static string 74",  # count
    },
    "subscribing": {
        "subscribe",
        "check",
        "check.<listcomp>",
        "static string 78",  # end
    },
    "stream_tcp": {"TCP.connect"},
    # While a link is made, connects or is closed, and for an error.
    "stream_tls": {"TLS.__init__"},
    "stream_tls_board": {
        "Link.__init__",
        "Link._verify",
        "Link.why",
        "Link.static string 71",  # close
    },
    "stream_tls_errors": {
        "failure",
        "failure.<listcomp>",
        "of_board",
        "of_board.<listcomp>",
    },
    "stream_tls_pin": {"digests"},
    "stream_uart": {"<module>"},  # once, when it is imported
    "stream_websocket": {"WebSocket.__init__"},
    "stream_websocket_upgrade": {"Upgrade.static string 149"},  # step
    "umqtt": {
        "MQTTClient.__init__",
        "MQTTClient._prepare",
        "MQTTClient.subscribe",
    },
    "umqtt_robust": {"MQTTClient.reconnect"},
    "umqtt_tls": {"_settings"},
    # What runs for CONNACK, SUBACK, DISCONNECT and AUTH, and when a connection has ended.
    "v5": {"<module>"},
    "v5_auth": {"packet", "answer"},
    "v5_connection": {
        "Connection5._answered",
        "Connection5.connack",
        "Connection5._refused",
        "Connection5.ended",
        "Connection5._auth",
        "Connection5.lost",
        "Connection5._say_why",
    },
    "v5_fallback": {"fall_back", "_rewrite", "_without"},
    "v5_methods": {"bound.call", "set_will", "disconnect"},
    "v5_oversized": {"refuse", "_give_up"},
    "v5_pieces": {"publish_from"},
    "v5_reasons": {"text", "refused"},  # for a message that the broker refuses
    "v5_resend": {"admit", "is_in_flight", "unsent"},
    "v5_setup": {"make", "make.<dictcomp>", "hello_of"},
    "v5_subscribing": {"bound.call", "subscribe", "subscribe.<genexpr>"},
    "writer": {"writing"},
    "wire": {"field", "packet"},
}

MODULES = sorted(
    path.stem for path in bytecode.SOURCES.glob("*.py") if path.stem not in bytecode.DESK_ONLY
)


@pytest.mark.parametrize("module", MODULES)
def test_frames_of(module: str) -> None:
    found = frames.functions(on_device.made() / "flatmq" / f"{module}.mpy")
    assert {f.name for f in found if f.on_heap} == MAY_BE_ON_HEAP.get(module, set())
