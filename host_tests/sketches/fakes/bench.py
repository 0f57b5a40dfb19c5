"""The bench on which a board lies in a test: what its pins and radio see, and a line to the test.

Each turn of a sketch's loop feeds the watchdog, and that looks for a line: Python, which is
executed here. Lines that begin with @ go to the test.
"""

import builtins
import select
import sys

from flatmq.port import ticks_diff, ticks_ms

pins = {}  # what was last written to each
adc = {}  # by channel
i2c = {}  # registers, 256 bytes, by address
one_wire = {}  # scratchpads, 9 bytes, by number
dht = None  # 5 bytes, None without one
mcu_temperature = raw_temperature = None  # of an ESP32, by its kind
in_range = True  # of the access point
password = None  # of the network; None: each is right
access_point = "020000000001", 6  # its BSSID and channel
address = "10.0.0.7"  # what DHCP gives
esp32 = False  # how the radio behaves
wifi = []  # what was asked of it
year = 2000  # of a clock that was not set
ntp = False  # whether time servers answer
asked = []  # which of them
RP2040, RP2350 = 0x20002927, 0x20004927  # CHIP_ID of Picos
mem32 = {0x40000000: RP2040}
timeout = 0  # ms of the watchdog, 0 while it does not run
fed = 0
longest = 0  # ms between two feeds
turns = 0
slept = []
broken = {}  # calls of parts that raise, such as "led" or "wdt": to the exception


class Terminal:
    """A replacement for the module os: `dupterm` is not in every port."""

    def dupterm(self, stream):
        really = print

        def both(*words):
            really(*words)
            stream.write(" ".join(str(word) for word in words).encode() + b"\r\n")

        builtins.print = both


def use(part):
    """Raise the exception of a part that is broken."""
    if part in broken:
        raise broken[part]


_lines = None


def listen():
    """From now on lines come in."""
    global _lines
    _lines = select.poll()
    _lines.register(sys.stdin, select.POLLIN)


def tell(*words):
    print("@" + " ".join(str(word) for word in words))


def turn():
    """The sketch has got round once."""
    global fed, longest, turns
    now = ticks_ms()
    longest = max(longest, ticks_diff(now, fed))
    fed = now
    turns += 1
    while _lines:
        for _ in _lines.ipoll(0):
            break
        else:
            return
        line = sys.stdin.readline()
        if not line:  # the test has gone
            sys.exit(1)
        exec(line, globals())


def watch(ms):
    """The watchdog was started."""
    global timeout, fed
    timeout = ms
    fed = ticks_ms()
    tell("watchdog", ms)


def hang(ms):
    """Hang; report when the watchdog has had enough, as it would after `ms`."""
    while ticks_diff(ticks_ms(), fed) < ms:
        pass
    tell("reset by watchdog")
    while True:
        pass
