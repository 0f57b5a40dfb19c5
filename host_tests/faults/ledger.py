"""A comparison of the messages that one side accepted with those the other side saw."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

NUMBER = 6  # digits at the beginning of each payload


class Message(NamedTuple):
    """A message by its topic, its number there, its size in bytes and its QoS."""

    topic: str
    number: int
    size: int
    qos: int


def payload(number: int, size: int) -> bytes:
    text = f"{number:0{NUMBER}d}".encode()
    return (text * (size // NUMBER + 1))[:size]


def read(topic: bytes, data: bytes, qos: int) -> Message | None:
    """The message that came with this payload; None when the payload is not as it was sent."""
    digits = data[:NUMBER]
    if not digits.isdigit() or data != payload(int(digits), len(data)):
        return None
    return Message(topic.decode(), int(digits), len(data), qos)


@dataclass
class Way:
    """One direction: what was `promised`, in its order, and what `came`.

    again: duplicates at QoS 2 are allowed, because the broker forgot the session. intact:
    nothing may be missing at QoS 0 either. twice: messages that were not settled at two closes,
    so that they may come behind others. doubted: messages that were not settled when a CONNACK may
    have been lost, so that they may be duplicates at QoS 2.
    """

    name: str
    promised: list[Message] = field(default_factory=list)
    came: list[Message | None] = field(default_factory=list)
    again: bool = False
    intact: bool = False
    twice: set[Message] = field(default_factory=set)
    doubted: set[Message] = field(default_factory=set)

    def missing(self) -> list[Message]:
        """Return the promised messages that have not come."""
        came = set(self.came)
        return [m for m in self.promised if (m.qos or self.intact) and m not in came]

    def problems(self) -> list[str]:
        """Return what was lost, came twice, came changed, or in another order."""
        came = [m for m in self.came if m is not None]
        counts = Counter(came)
        promised = set(self.promised)
        found = [f"{self.name}: a payload came changed"] * (len(self.came) - len(came))
        found += [f"{self.name}: never sent: {m}" for m in counts if m not in promised]
        found += [f"{self.name}: lost: {m}" for m in self.missing()]
        found += [
            f"{self.name}: {n} times: {m}"
            for m, n in counts.items()
            if n > 1 and (m.qos == 0 or (m.qos == 2 and not self.again and m not in self.doubted))
        ]
        return found + self._disorder(came)

    def _disorder(self, came: Iterable[Message]) -> list[str]:
        found = []
        newest: dict[str, int] = {}
        seen = set()
        for m in came:
            if m in seen:
                continue
            seen.add(m)
            if m.number < newest.get(m.topic, 0) and m not in self.twice:
                found.append(f"{self.name}: {m} after number {newest[m.topic]}")
            newest[m.topic] = max(m.number, newest.get(m.topic, 0))
        return found


@dataclass
class Ledger:
    """Both directions of a scenario."""

    up: Way = field(default_factory=lambda: Way("to the broker"))
    down: Way = field(default_factory=lambda: Way("to the client"))

    def problems(self) -> list[str]:
        """Return what is wrong in either direction; empty when every promise was kept."""
        return self.up.problems() + self.down.problems()
