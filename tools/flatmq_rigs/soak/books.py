"""The desk's books: which messages came, how often, and in which order. A bit for each."""

from __future__ import annotations

from . import plan


class Arrivals:
    """The record of messages at one QoS, numbered from 0 to `count` - 1."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.came = 0  # different ones
        self.again = 0  # that had come already
        self.late = 0  # first ones after one with a higher number
        self.gaps = 0  # times that numbers were left out
        self.next = 0  # one more than the highest number that came
        self._seen = bytearray(count // 8 + 1)

    @property
    def lost(self) -> int:
        """The number of messages that have not come."""
        return self.count - self.came

    def take(self, number: int) -> None:
        """Record one message. Raises ValueError for a number that none has."""
        if not 0 <= number < self.count:
            raise ValueError(f"number {number} of {self.count}")
        bit = 1 << (number & 7)
        if self._seen[number >> 3] & bit:
            self.again += 1
            return
        self._seen[number >> 3] |= bit
        self.came += 1
        if number < self.next:
            self.late += 1
            return
        if number > self.next:
            self.gaps += 1
        self.next = number + 1


class Books:
    """The messages that came in at the host, by QoS."""

    def __init__(self, messages: int) -> None:
        self.arrivals = [Arrivals(plan.count(messages, qos)) for qos in plan.QOS]
        self.wrong: list[str] = []  # the first messages that are not of the plan
        self.wrongs = 0
        self._rest = [bytes(plan.template(number)[4:]) for number in range(8)]

    @property
    def came(self) -> int:
        """Different messages that came, of all QoS."""
        return sum(a.came for a in self.arrivals)

    def take(self, expected: int, qos: int, payload: bytes) -> None:
        """Record one message at `qos`, on the topic for QoS `expected`."""
        number = int.from_bytes(payload[:4], "big")
        try:
            if qos != expected:
                raise ValueError(f"QoS must be {expected}, not {qos}")
            if len(payload) < 4 or payload[4:] != self._rest[number & 7]:
                raise ValueError(f"payload {payload!r}")
            self.arrivals[qos].take(number)
        except ValueError as error:
            self.wrongs += 1
            if len(self.wrong) < 10:
                self.wrong.append(str(error))
