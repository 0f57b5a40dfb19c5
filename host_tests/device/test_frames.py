"""No function that runs once the client is online has its frame on the heap."""

import pytest

from device import frames, on_device
from flatmq_tools import bytecode

# What runs while a client is made, connects or loses a connection, subscribes or unsubscribes, or
# is given a message to be sent in pieces; and generators.
MAY_BE_ON_HEAP = {
    # Coroutines: `run` once, and `_publish` when there is no room. What is loaded for each call.
    "aio": (
        "Messages.__aenter__ Messages.__aexit__ Client.run Client.connected Client.lost "
        "Client._publish late.run"
    ),
    "aio_rare": "subscribe leave leave.<listcomp> disconnect __aenter__ __aexit__",
    # What runs when something on flash was not whole, or failed, or is set aside.
    "aside": "keep read",
    # What runs for a crash, and once for each start.
    "crash": "keep guard Crashes.__init__ _read _write cut",
    "crash_publish": "publish",
    # A client has one frame of it.
    "engine": "engine",
    # When a board starts.
    "flash": "patiently",
    # When a device is made, and its message is sent.
    "ha": (
        "Component.pieces Device.__init__ Device.switch Device.light Device.number Device.button "
        "Device.update Device.component Device._describe"
    ),
    "ha_message": "Stream.publish Stream.seek.<genexpr> _described members",
    "journal": "Journal.__init__ Journal._restore.<listcomp> Journal.retain",
    # When a board starts, and for a manifest; `work` and `_steps` have one frame for an update.
    "ota/__init__": "Updates.__init__ Updates.tell",
    "ota/fetch": "Sink.digest begin work _steps _make_room",
    "ota/firmware": "Sink.__init__ Sink.digest partition switch",
    "ota/manifest": "read",
    # For a line that was typed.
    "prompt": "Prompt._run Prompt._say Prompt._take",
    # After a module was loaded.
    "port": "drop",
    "properties": "Properties.__init__ block _put",
    # Once a peer has closed the connection.
    "alone": "Alone._behind",
    "rare/connecting": "connect leave",
    # For a connection that is made, accepted or lost.
    "dial": "step other lost",
    "hello": "parts_of ask update",
    "methods": "get.run",
    "rare/parts": "publish_from Parts.publish Parts._read_again",
    "reasons": "reason",
    "rare/saying": "set_will set_credentials replace reconfigure",
    "setup": "setup setup.<listcomp>",
    # For CONNACK.
    "rare/qos2": "resume",
    # A message that is dropped, packet identifiers that are used up, and a loss.
    "rare/strays": "next_id next_id.<dictcomp> drop report other lost remove",
    "rare/publishing": "publish_wait",
    # For SUBSCRIBE, SUBACK and CONNACK.
    "subs": "send resume flush other",
    "subscribing": (
        "subscribe add new encode encode.<listcomp> difference update update.<listcomp>"
    ),
    # Once for each connection.
    "sas": "SAS.__call__ _quoted",
    # For a signature.
    "signed": "is_signed signed",
    "senml": "Pack.__init__ Pack.__init__.<listcomp> _check_name",
    "show": "_numbers.<listcomp>",
    "spool": "Spool.__init__ Spool._recover",
    # When a board starts, and a segment begins or ends.
    "store": (
        "<module> Store.__init__ Store.__init__.<genexpr> Store._load_segments "
        "Store._load_segment Store._load_head Store._append_again Store._remove Store.count"
    ),
    "stream_tcp": "TCP.connect",
    # While a link is made, connects or is closed, and for an error.
    "stream_tls": "TLS.__init__",
    "stream_tls_address": "packed expected",
    "stream_tls_board": "Link._verify Link.why Link.close",
    "stream_tls_errors": "failure failure.<listcomp> of_board of_board.<listcomp>",
    "stream_tls_pin": "digests",
    "stream_tls_reserve": "Reserve.hold",
    "stream_tls_settings": "check",
    "stream_uart": "<module>",
    "stream_websocket": "WebSocket.__init__",
    "stream_websocket_upgrade": "Upgrade.step",
    # Once an hour.
    "timesync": "set_clock TimeSync._answer",
    # For a connect(), and to load what is called rarely.
    "umqtt": "MQTTClient.connect _rare",
    "umqtt_rare": "client subscribe",
    "umqtt_robust": "MQTTClient.reconnect",
    "umqtt_tls": "_settings",
    "v5/calls": "disconnect publish_from set_will",
    "v5/auth": "_packet _answer",
    "v5/fallback": "fall_back _hello _without",
    # What the broker's limits put off, and what it does not take.
    "v5/flow": "admit.<listcomp> size_of puts_off",
    "v5/connack": "accepted limits",
    "v5/hello": "update rename",
    # For CONNACK and SUBACK, and when a connection has ended.
    "v5/packets": "granted greeted close",
    # For DISCONNECT, and a message that the broker refuses.
    "v5/reasons": "text other refused _refused",
    "v5/replies": "Replies.__init__ Replies.__init__.<listcomp>",
    "v5/setup": "setup",
    "v5/subscribing": "subscribe subscribe.<genexpr> unsubscribe",
    "wire": "field connect",
}

MODULES = sorted(
    path.relative_to(bytecode.SOURCES).with_suffix("").as_posix()
    for path in bytecode.SOURCES.rglob("*.py")
    if path.stem not in bytecode.DESK_ONLY
)


@pytest.mark.parametrize("module", MODULES)
def test_frames_of(module: str) -> None:
    found = frames.on_heap(on_device.made() / "flatmq" / f"{module}.mpy")
    assert found == set(MAY_BE_ON_HEAP.get(module, "").split())
