"""The states of a client that are weighed, and the bound of each.

Each path is one program. It runs in an interpreter of its own, against the broker of `peer.py`
and through the names that a user has: only the table below needs to change with the client.
"""

from __future__ import annotations

from dataclasses import dataclass

# What no client is charged for. A name that is known here is free for the client as well.
PRELUDE = """
import binascii, errno, gc, io, micropython, os, random, struct, sys, time
sys.modules["ustruct"] = struct
sys.modules["ubinascii"] = binascii
from peer import peer
SERVER, TEXT = "broker", "a str"
flatmq = umqtt = aio = asyncio = Client = client = subscription = messages = task = None
def handler(*message):
    pass
"""
_IMPORT = "from flatmq import Client\n"
_SUBSCRIBE = 'subscription = client.subscribe(b"dev/pico-1/cmd", handler, qos=1)\n'
_LOSS = """
peer.cut()
client.publish(b"dev/pico-1/temp", b"21.5", 1)
client.flush()
while not peer.seen(2, 2, 2): client.poll(20)
assert client.connected and not client.pending
"""
_STR = """
assert client.publish(b"dev/pico-1/temp", TEXT) is not None
while client.pending: client.poll()
"""
# MicroPython for WebAssembly leaves its event loop to JavaScript, which does not run meanwhile.
_ASYNCIO = """
import asyncio
asyncio.Event, asyncio.Lock
asyncio.core._schedule_run_iter = lambda ms: None
"""
_AIO = """
from flatmq import aio
client = aio.Client(b"pico-1", SERVER)
messages = client.subscribe(b"dev/pico-1/cmd", qos=1)
task = asyncio.create_task(client.run())
while not peer.seen(1, 1, 0): asyncio.core._run_iter()
assert not task.done()
"""
_FACE_MADE = """
client = umqtt.MQTTClient(b"pico-1", SERVER, keepalive=60)
client.set_callback(handler)
"""
_FACE_SUBSCRIBED = """
client.subscribe(b"dev/pico-1/cmd", 1)
assert peer.seen(1, 1, 0)
"""
_FACE = f"from flatmq import umqtt\n{_FACE_MADE}client.connect()\n{_FACE_SUBSCRIBED}"
_FACE_LOSS = """
peer.cut()
try:
    client.publish(b"dev/pico-1/temp", b"21.5", qos=1)
except OSError:
    client.connect()
    client.subscribe(b"dev/pico-1/cmd", 1)
    client.publish(b"dev/pico-1/temp", b"21.5", qos=1)
assert peer.seen(2, 2, 2)
"""


def _online(options: str = "", subscribe: str = _SUBSCRIBE) -> str:
    return f"""
{_IMPORT}client = Client(b"pico-1", SERVER{options})
{subscribe}client.start()
while not peer.seen(1, {1 if subscribe else 0}, 0): client.poll()
assert client.connected
"""


# A connection is a steady one after a third of `ack_timeout`, which is in seconds.
_STEADY = """
while "flatmq.dial" in sys.modules: client.poll(20)
assert client.connected and subscription.granted
"""
_RELEASED = _online(", release=True, ack_timeout=1") + _STEADY
_TLS = f"""
import flatmq.stream_tls
{_online(', tls=flatmq.stream_tls.TLS(ca=b"an authority")')}
"""
_GRANTED = "while not peer.seen(1, 2, 0): client.poll()\n"
_CRASHES = """
from flatmq import crash
crashes = crash.Crashes(client, b"dev/pico-1/crash")
crashes.poll()
"""
_LOG = f"""
from flatmq.log import Log
log = Log(client, b"dev/pico-1/log")
{_GRANTED}"""
_TIME = f"""
from flatmq.timesync import TimeSync
sync = TimeSync(client, b"dev/pico-1/time", set=handler)
{_GRANTED}"""
_UPDATES = f"""
import slots
from flatmq.ota import Updates
updates = Updates(client, b"dev/pico-1/", "pico_w", 1 << 3071, reset=handler)
{_GRANTED}updates.poll()
while client.pending: client.poll()
"""
_PROMPT = f"""
from flatmq.prompt import Prompt
prompt = Prompt(client, b"dev/pico-1/", 1 << 3071)
{_GRANTED}"""
_DEVICE = f"""
{_IMPORT}client = Client(b"pico-1", SERVER)
from flatmq.ha import Device
device = Device(client, "Tank", model="Pico W")
for key in ("level", "flow", "temp"): device.sensor(key)
device.binary_sensor("leak")
device.switch("pump", handler)
device.number("target", handler, 50, 300, 5, 1)
client.start()
while not peer.seen(1, 1, 0): client.poll()
"""


@dataclass(frozen=True)
class Row:
    """A state of the client, and the code that leads to it from the row before.

    asked   bytes that it should hold, if a number was set
    now     bytes that it held when last measured: lower it when the client gets smaller
    more    count only what it holds more than the row before
    """

    name: str
    asked: int | None
    now: int
    code: str
    more: bool = False

    @property
    def bound(self) -> int | None:
        """Return the most that it may hold: `asked`, or while that is not met `now` and 1 %."""
        if self.asked is not None and self.now <= self.asked:
            return self.asked
        if not self.now:
            return None
        return self.now + self.now // 100


Path = tuple[Row, ...]

ONLINE = "online, subscribed"
_LOST = "… after a loss with a QoS 1 message in flight, online again"
_SENT = '… after the first `publish(topic, "a str")`'
_PUBLISHING = "online, publishing only"
_LOST_RELEASED = "… after such a loss, with `release`"
# Bytes of the heap on a 32-bit board: a context with an authority of 379 bytes, and a connection.
MBED_TLS = 1_984 + 656 + 22_816

_BASE = Row(ONLINE, 17_000, 20_364, _online())


def _beside(name: str, now: int, code: str) -> Path:
    """Return the path to what a program has beside a client that is online and subscribed."""
    return _BASE, Row(f"beside that, {name}", None, now, code, more=True)


PATHS: tuple[Path, ...] = (
    (
        _BASE,
        Row(_LOST, 500, 382, _LOSS, more=True),
        Row(_SENT, 64, 64, _STR, more=True),
    ),
    (Row(_PUBLISHING, 15_000, 16_614, _online(subscribe="")),),
    (
        Row("online, subscribed, with `release`", 13_000, 17_283, _RELEASED),
        Row(_LOST_RELEASED, 500, 366, _LOSS + _STEADY, more=True),
    ),
    (
        Row("MQTT 5, online, subscribed", 23_500, 27_721, _online(", version=5")),
        Row("MQTT 5, after such a loss", 24_500, 28_066, _LOSS),
    ),
    (Row("TLS, online, subscribed, without Mbed TLS", 46_000 - MBED_TLS, 23_318, _TLS),),
    (
        Row("`asyncio` itself", None, 0, _ASYNCIO),
        Row("`aio`, online, subscribed", 25_000, 29_061, _AIO, more=True),
    ),
    (Row("`umqtt` face, subscribed", 21_000, 25_249, _FACE),),
    _beside("`crash.Crashes`", 6_116, _CRASHES),
    _beside("`log.Log`", 3_482, _LOG),
    _beside("`timesync.TimeSync`", 2_353, _TIME),
    _beside("`ota.Updates`, and the board's `slots`", 8_113, _UPDATES),
    _beside("`prompt.Prompt`", 4_092, _PROMPT),
    (Row("online, with an `ha.Device` of six components", None, 38_561, _DEVICE),),
)
ROWS = {row.name: row for path in PATHS for row in path}

UMQTT: Path = (
    Row("imported", None, 0, "from umqtt import simple as umqtt"),
    Row("made", None, 0, _FACE_MADE),
    Row(_PUBLISHING, None, 0, "client.connect()"),
    Row(ONLINE, None, 0, _FACE_SUBSCRIBED),
    Row(_LOST, None, 0, _FACE_LOSS, more=True),
    Row(_SENT, None, 0, 'client.publish(b"dev/pico-1/temp", TEXT)', more=True),
)

# The time of a start, in µs since its beginning: imported, and CONNECT sent. Then the time of a
# fixed amount of such work: loading the broker 50 times. The bounds below change with peer.py.
START = f"""
begun = time.ticks_us()
{_IMPORT}imported = time.ticks_us()
client = Client(b"pico-1", SERVER)
{_SUBSCRIBE}client.start()
while not peer.connects: client.poll()
sent = time.ticks_us()
"""
UMQTT_START = f"""
begun = time.ticks_us()
from umqtt import simple as umqtt
imported = time.ticks_us()
{_FACE_MADE}client.connect()
sent = time.ticks_us()
"""
TIMES = """
gc.collect()
loading = time.ticks_us()
for i in range(50):
    del sys.modules["peer"]
    import peer as other
loaded = time.ticks_us()
print("@us", imported - begun, sent - begun, loaded - loading)
"""
# The same for time, in loads of the broker.
ASKED_LOADS = 11.6
NOW_LOADS = 20.0
BOUND_LOADS = ASKED_LOADS if NOW_LOADS <= ASKED_LOADS else 1.1 * NOW_LOADS
