"""The fault with which each connection of the soak ends, and when."""

from __future__ import annotations

import random
import time
from collections import Counter

from ..proxy import Fault, Proxy, Rules, Way

KINDS: tuple[Fault, ...] = ("cut", "silence", "reset", "stall")
_EARLY = 0.2  # of the connections, which end during CONNECT or while messages are sent again,
_EARLY_BYTES = 600  # within so many bytes that are not of the handshake
OLDEST = 5.0  # seconds after which a fault happens though the bytes have not passed


class Faults:
    """The plan of a `seed`: one kind of fault after the other, each after a number of bytes.

    The bytes are those in one of the two directions; mostly the fault comes inside a packet.
    Their number is `mean`, half of it, or one and a half times as many. What passes later than
    OLDEST does not count.

    handshake: bytes that pass either way before CONNECT, about.
    """

    def __init__(self, seed: int, mean: int, handshake: int = 0) -> None:
        self.happened: Counter[str] = Counter()
        self.early = 0  # connections that end before or soon after CONNECT
        self._random = random.Random(seed)
        self._mean = mean
        self._early = _EARLY_BYTES + handshake
        self._since = time.monotonic()  # the newest connection is there
        self._count = 0
        self._struck = False  # it had a fault because of its age

    def rules(self, count: int) -> Rules:
        """The rules of connection `count`, for the proxy."""
        early = self._random.random() < _EARLY
        self.early += early
        low, high = (1, self._early) if early else (self._mean // 2, self._mean * 3 // 2)
        way = Way(self._random.randint(low, high), KINDS[count % len(KINDS)])
        return Rules(up=way) if self._random.random() < 0.5 else Rules(down=way)

    def turn(self, proxy: Proxy) -> None:
        """Strike a connection that has become too old."""
        now = time.monotonic()
        if proxy.accepted != self._count:
            for count in range(max(0, self._count - 1), proxy.accepted - 1):
                self.happened[KINDS[count % len(KINDS)]] += 1
            self._count = proxy.accepted
            self._since = now
            self._struck = False
        elif self._count and not self._struck and now - self._since > OLDEST:
            proxy.strike(KINDS[(self._count - 1) % len(KINDS)])
            self._struck = True
