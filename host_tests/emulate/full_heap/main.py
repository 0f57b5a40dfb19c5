"""Reconnect over TLS in a heap that is full, on an emulated board; the module `row` says how.

The desk cuts each connection on which "cut" comes. The last line is "result", with what came of
it as JSON.
"""

import gc
import json
import time

import network
import ntptime
from row import ROW

from flatmq import Client
from flatmq.port import ticks_add, ticks_diff, ticks_ms
from flatmq.stream_tls import TLS
from settings import load

PIECE = 1000  # bytes that are claimed at a time
PATIENCE_MS = 60000  # for a connection
SLOTS = 24  # of what a program that frees and claims holds of its own


def claimed(left):
    """Return what fills the heap but for so many bytes."""
    gc.collect()
    pieces = [None] * 400
    chain = None
    n = 0
    try:
        while True:
            pieces[n] = bytearray(PIECE)
            n += 1
    except MemoryError:
        pass
    try:
        while True:
            chain = (chain, bytearray(16))
    except MemoryError:
        pass
    for i in range(max(n - left // PIECE, 0), n):
        pieces[i] = None
    gc.collect()
    return pieces, chain


class Board:
    """The client, and how long its polls take."""

    def __init__(self, broker, reserve, churns):
        tls = TLS(ca=broker["tls"]["ca"], reserve=reserve)
        self.client = Client(
            b"full", broker["host"], broker["port"], tls=tls, timeout=30, retry_ms=50,
            retry_max_ms=200,
        )  # fmt: skip
        self.most = 0
        self._own = [None] * SLOTS if churns else None
        self._next = 1

    def until(self, connects):
        """Poll until it has connected so often; return whether it did in time."""
        end = ticks_add(ticks_ms(), PATIENCE_MS)
        while self.client.stats.connects < connects:
            if ticks_diff(end, ticks_ms()) < 0:
                return False
            if self._own:
                self._churn()
            began = time.ticks_us()
            self.client.poll(20)
            self.most = max(self.most, ticks_diff(time.ticks_us(), began))
        return True

    def _churn(self):
        self._next = self._next * 1103515245 + 12345 & 0x3FFFFFFF
        i = (self._next >> 8) % SLOTS
        self._own[i] = None
        try:
            self._own[i] = bytearray((self._next >> 12) % 800)
        except MemoryError:
            self._next += 1


def main():
    settings = load("wifi.ssid", "broker.host")
    wlan = network.WLAN(network.WLAN.IF_STA)
    wlan.active(True)
    wlan.connect(settings["wifi"]["ssid"])
    while not wlan.isconnected():
        time.sleep_ms(20)
    ntptime.settime()
    board = Board(settings["broker"], ROW["reserve"], ROW["churns"])
    pieces = claimed(ROW["left"]) if ROW["filled"] == "made" else None
    client = board.client
    client.start()
    good = 0
    if board.until(1):
        if ROW["filled"] == "online":
            pieces = claimed(ROW["left"])
        gc.collect()
        free, board.most = gc.mem_free(), 0
        for n in range(ROW["rounds"]):
            client.publish(b"cut", b"x")
            if not board.until(n + 2):
                break
            good += 1
        gc.collect()
        print("result", json.dumps({
            "good": good, "free": free, "after": gc.mem_free(), "most": board.most,
            "error": str(client.error),
        }))  # fmt: skip
    else:
        print("result", json.dumps({"good": 0, "error": str(client.error)}))
    del pieces


main()
