"""The steps of a client's life that are weighed, and the bounds that some of them have.

The code runs on MicroPython with `memory` from the bench's device folder. Each path starts in a
new interpreter. A step's figure is all the heap held since before the import.
"""

from __future__ import annotations

# What no client is charged for. A name that is known here is free for the client as well, so this
# has few of them.
PRELUDE = """
import binascii, errno, gc, io, os, random, select, struct, sys, time
class Link:
    address = True
    to = None
    def resolve(self): pass
    def connect(self): pass
    def stream(self): return self.to
    def wait(self, ms, out): pass
    def close(self): pass
    def socket(self): return self.to
    def getaddrinfo(self, host, port): return ((None,),)
link = Link()
sys.modules["socket"] = sys.modules["usocket"] = sys.modules["tls"] = link
sys.modules["ustruct"] = struct
sys.modules["ubinascii"] = binascii
flatmq = client = subscription = memory = None
def handler(*message):
    pass
"""
# The scripted peer, which nobody is charged for either.
PEER = "(peer)"
_PEER = "import memory; link.to = memory.Stream(512, True)"
_IMPORT = "import flatmq; flatmq.Client"
_MADE = 'client = flatmq.Client(b"pico-1", link=link)'
_CONNECT = "memory.connect(client, link.to)"
_PUBLISH = 'memory.publish(client, link.to, b"dev/pico-1/temp", b"21.5", {})'

IMPORTED = "imported"
MADE = "made: `Client(...)`"
CONNECTED = "connected"
SUBSCRIBED = "subscribed, before `start`"
GRANTED = "… granted"
# One path for a board that only publishes, and one for a board that subscribes.
PUBLISHING = {
    IMPORTED: _IMPORT,
    MADE: _MADE,
    PEER: _PEER,
    CONNECTED: _CONNECT,
    "published at QoS 0": _PUBLISH.format(0),
    "published at QoS 1": _PUBLISH.format(1),
    "published at QoS 2": _PUBLISH.format(2),
}
SUBSCRIBING = {
    IMPORTED: _IMPORT,
    MADE: _MADE,
    SUBSCRIBED: 'subscription = client.subscribe(b"dev/pico-1/cmd", handler, qos=1)',
    PEER: _PEER,
    "… connected": _CONNECT,
    GRANTED: ('memory.grant(client, link.to); 1 / (subscription.granted == b"\\1")'),
    "… received at QoS 0": (
        'memory.answer(client, link.to, b"\\x30\\x12\\0\\x0edev/pico-1/cmdon")'
    ),
    "… published at QoS 0": _PUBLISH.format(0),
    "… published at QoS 1": _PUBLISH.format(1),
    "… published at QoS 2": _PUBLISH.format(2),
}

# The same at MQTT 5.
_MADE_5 = 'client = flatmq.Client(b"pico-1", link=link, version=5)'
_AT_5 = {
    MADE: _MADE_5,
    "… received at QoS 0": (
        'memory.answer(client, link.to, b"\\x30\\x13\\0\\x0edev/pico-1/cmd\\0on")'
    ),
}
PUBLISHING_5 = {step: _AT_5.get(step, code) for step, code in PUBLISHING.items()}
SUBSCRIBING_5 = {step: _AT_5.get(step, code) for step, code in SUBSCRIBING.items()}

# What loads a module when it is used for the first time: what is done before with a client that is
# online, and the use. The figure is what the client holds more after it than before.
_LOST = """
link.to.incoming = None  # what reads now fails
client.poll()
link.to = memory.Stream(512, True)
link.to.feed(CONNACK)
while not client.connected: client.poll()
link.to.taken()
"""
_WAITING = 'client.publish(b"dev/pico-1/temp", b"21.5", 1); memory.send(client, link.to)'
_LARGE = (
    "for data in (HEAD + bytes(400), bytes(183)): memory.answer(client, link.to, data)\n"
    "1 / client.stats.skipped"
)
_FROM = """
client.publish_from(b"dev/pico-1/log", io.BytesIO(bytes(2000)))
while client.pending: memory.send(client, link.to)
"""
BOTH_FEATURES = {
    "a message of 600 bytes comes in: `chunks`": _LARGE,
    "`publish_from`": _FROM,
    "`set_will`": 'client.set_will(b"dev/pico-1/status", b"gone")',
}
_LOSSES = {
    "a connection lost with nothing in the ring": "",
    "… with a message unacknowledged: `resend`": _WAITING,
}
FEATURES_5 = {
    "`Properties` of a message": (
        "from flatmq.properties import Properties; thing = Properties(expiry=60); del Properties"
    ),
    "… and a message published with it": (
        "from flatmq.properties import Properties; thing = Properties(expiry=60); del Properties\n"
        'client.publish(b"dev/pico-1/temp", b"21.5", properties=thing); '
        "memory.send(client, link.to)"
    ),
    "`client.alias`, and a message published with it": (
        'thing = client.alias(b"dev/pico-1/temp"); thing.publish(b"21.5"); '
        "memory.send(client, link.to)"
    ),
    "`client.request`": (
        'client.request(b"dev/pump/do", b"on", handler); memory.send(client, link.to)'
    ),
    "a message with properties comes in": (
        'memory.answer(client, link.to, b"\\x30\\x18\\0\\x0edev/pico-1/cmd\\5\\2\\0\\0\\0\\x3con")'
    ),
    "a publish is refused with PUBACK 0x97": (
        'thing = client.publish(b"dev/pico-1/temp", b"21.5", 1); memory.send(client, link.to)\n'
        'memory.answer(client, link.to, b"\\x40\\3" + bytes((thing >> 8, thing & 255, 0x97)))\n'
        "1 / client.stats.dropped"
    ),
    "`authenticate`": "client.authenticate(); memory.send(client, link.to)",
}
_ONLINE_CODE = """
CONNACK = memory.CONNACK_5 if VERSION == 5 else memory.CONNACK
HEAD = b"\\x30\\xd8\\4\\0\\x0edev/pico-1/cmd\\0"
client = flatmq.Client(b"pico-1", link=link, version=VERSION, retry_ms=1, retry_max_ms=1 AUTH)
subscription = client.subscribe(b"dev/pico-1/cmd", handler, qos=1)
memory.connect(client, link.to)
memory.grant(client, link.to)
"""
_PEER_OF_5 = f"thing = CONNACK = HEAD = data = None; {_PEER}"
ONLINE = "online and subscribed"
USED = "used"
_FALLEN_BACK = """
client = flatmq.Client(b"pico-1", link=link, version=None, retry_ms=1, retry_max_ms=1)
subscription = client.subscribe(b"dev/pico-1/cmd", handler, qos=1)
link.to.feed(b"\\x20\\2\\0\\1")
client.start()
while client.level == 5: client.poll()
link.to.taken()
memory.connect(client, link.to)
memory.grant(client, link.to)
"""


def _online(version: int, auth: str = "") -> str:
    return _ONLINE_CODE.replace("VERSION", str(version)).replace(" AUTH", auth)


def _path(version: int, before: str, use: str, auth: str = "") -> dict[str, str]:
    return {
        PEER: _PEER_OF_5,
        ONLINE: f"{_IMPORT}\n{_online(version, auth)}\n{before}",
        USED: use,
    }


def features(version: int) -> dict[str, dict[str, str]]:
    """Return the path of steps to each feature of a version of MQTT."""
    found = {name: _path(version, "", use) for name, use in BOTH_FEATURES.items()}
    found.update({name: _path(version, before, _LOST) for name, before in _LOSSES.items()})
    if version == 5:
        for name, use in FEATURES_5.items():
            auth = ', auth=("PLAIN", lambda data: b"x")' if name == "`authenticate`" else ""
            found[name] = _path(version, "", use, auth)
    return found


# A client with version=None that has fallen back to 3.1.1.
FALLEN_BACK = {
    PEER: _PEER_OF_5,
    ONLINE: f"{_IMPORT}\n{_FALLEN_BACK}",
}

UMQTT = {
    IMPORTED: "import umqtt.simple",
    MADE: 'client = umqtt.simple.MQTTClient(b"pico-1", "host", keepalive=60)',
    PEER: _PEER,
    CONNECTED: "link.to.feed(memory.CONNACK); client.connect(); link.to.taken()",
    "published at QoS 0": 'client.publish(b"dev/pico-1/temp", b"21.5"); link.to.taken()',
    "published at QoS 1": (
        'link.to.feed(b"\\x40\\x02\\0\\1"); client.publish(b"dev/pico-1/temp", b"21.5", qos=1); '
        "link.to.taken()"
    ),
}
# What a board of its own loads: the link to a host and a port. Nothing is weighed here.
OVER_TCP = """
client = flatmq.Client(b"pico-1", "127.0.0.1", 1)
client.start()
client.poll()
"""

# A client with a connection of its own to a peer on this machine, by the name of its link. The
# certificate of the peer's authority is charged to nobody.
LINK_PRELUDE = """
for name in ("socket", "usocket", "tls"):
    del sys.modules[name]
import socket, tls
PORT = {port}
CA = {ca!r}
"""
_ONLINE = "client.start()\nwhile not client.connected: client.poll(1)"
_WEB = "from flatmq.stream_websocket import WebSocket\nlink = WebSocket('127.0.0.1', PORT{})"
_OVER_WEB = 'client = flatmq.Client(b"pico-1", link=link); del link'
_TLS = "from flatmq.stream_tls import TLS\n"
_OVER = 'client = flatmq.Client(b"pico-1", "127.0.0.1", PORT{})'
LINKS = {
    name: {MADE: f"{_IMPORT}\n{made}", CONNECTED: _ONLINE}
    for name, made in {
        "TCP": _OVER.format(""),
        "TLS": _TLS + _OVER.format(", tls=TLS(ca=CA)"),
        "WebSocket": f"{_WEB.format('')}\n{_OVER_WEB}",
        "WebSocket and TLS": f"{_TLS}{_WEB.format(', tls=TLS(ca=CA)')}\n{_OVER_WEB}",
    }.items()
}

# Bytes on the 32-bit interpreter that a step may hold at most.
BOUNDS = {MADE: 14_000, SUBSCRIBED: 20_000}
