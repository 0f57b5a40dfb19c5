"""Keep cases for MQTT 5 in corpus5.txt, as `corpus` keeps those for 3.1.1 in corpus.txt.

`python -m hostile.corpus5` makes the file again, from crafted cases and from chance with a seed;
with `--judge` it judges the cases in it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from hostile import cases, chance, corpus, drive5
from v5 import build5
from v5.properties5 import Id

FILE = corpus.HERE / "corpus5.txt"
BY_CHANCE = 1500
SEGMENTS = 12  # of these
LONGEST = 1300  # bytes of a case by chance
_CLIENT = Path(corpus.search.drive.flatmq.client.__file__).parent
FILES = frozenset(
    str(path)
    for path in [
        *_CLIENT.glob("v5*.py"),
        *(
            _CLIENT / f"{name}.py"
            for name in ("replies", "reader", "requests", "resend", "router")
        ),
        *(corpus.HERE / f"{name}.py" for name in ("oracle", "oracle5")),
        *(corpus.HERE.parent / "v5" / f"{name}.py" for name in ("strict5", "properties5")),
    ]
)

METHOD = [(Id.AUTHENTICATION_METHOD, drive5.METHOD)]
AGAIN = cases.CUT | cases.RAW
RX_130, CLEAN, TX_64 = 8, 2, 3  # of the options
AUTH = 1  # of the third byte


def _accepted(*more: tuple[int, object], present: int = 0) -> tuple[int, bytes]:
    return cases.FEED, build5.connack(0, present, more)


def _publish(qos: int, size: int = 0) -> tuple[int, int]:
    return cases.PUBLISH, qos | size << 5


EXPIRY = [(Id.MESSAGE_EXPIRY, 60)]
LARGE = build5.publish(
    b"a/" + b"t" * 70, bytes(400), 1, 7, [(Id.USER_PROPERTY, (b"k", b"v" * 75))]
)

# What each is for, the bytes of its options, and its steps. Most were faults of the client.
CRAFTED: tuple[tuple[str, tuple[int, int, int], list[tuple]], ...] = (
    (
        "Receive Maximum shrinks, also for what was accepted while offline",
        (RX_130, 0, 0),
        [
            _publish(1),
            (cases.NEXT, AGAIN | cases.BREAK),
            _publish(2),
            (cases.NEXT, AGAIN),
            _accepted((Id.RECEIVE_MAXIMUM, 1), present=1),
            (cases.SYNC, 0),
        ],
    ),
    (
        "AUTH comes while CONNECT is half out",
        (RX_130 | CLEAN, 0, AUTH),
        [
            (cases.ROOM, 1),
            (cases.NEXT, AGAIN),
            (cases.FEED, build5.ending("AUTH", 0x18, METHOD)),
            (cases.ROOM, 0),
            (cases.NEXT, 0),
        ],
    ),
    (
        "CONNACK with a limit comes while the answer to AUTH is not out",
        (RX_130 | CLEAN, 0, AUTH),
        [
            (cases.NEXT, AGAIN),
            (cases.BLOCK, 31),
            (cases.FEED, build5.ending("AUTH", 0x18, METHOD)),
            _accepted(*METHOD, (Id.MAXIMUM_PACKET_SIZE, 12)),
            (cases.NEXT, 0),
        ],
    ),
    (
        "AUTH is answered while online, and before CONNACK",
        (RX_130 | CLEAN, 0, AUTH),
        [
            (cases.NEXT, AGAIN),
            (cases.FEED, build5.ending("AUTH", 0x18, METHOD)),
            _accepted(*METHOD),
            (cases.AUTHENTICATE, 0),
            (cases.FEED, build5.ending("AUTH", 0x18, METHOD)),
            (cases.FEED, b"\xf0\0"),
            (cases.FEED, b"\xf0\1\0"),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a CONNACK that breaks a rule does not count",
        (RX_130 | CLEAN, 0, 0),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.MAXIMUM_QOS, 0), (Id.RETAIN_AVAILABLE, 0), present=1),
            _publish(2),
            (cases.PUBLISH, 4),
            (cases.NEXT, 0),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a CONNACK with a flag that is neither 0 nor 1",
        (RX_130 | CLEAN, 0, 0),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.RETAIN_AVAILABLE, 2)),
            (cases.NEXT, 0),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a payload format that brokers pass on, and a text that is none",
        (RX_130 | CLEAN, 0, 0),
        [
            (cases.SUBSCRIBE, 2),
            (cases.NEXT, 0),
            (cases.FEED, build5.publish(b"a/b", b"x", 0, 0, [(Id.PAYLOAD_FORMAT, 2)])),
            (cases.SYNC, 0),
            (cases.FEED, build5.publish(b"a/b", b"x", 0, 0, [(Id.CONTENT_TYPE, b"\xff")])),
            (cases.SYNC, 0),
        ],
    ),
    (
        "topic name and properties of a large message, which are too much together",
        (RX_130 | CLEAN, 0x30, 0),
        [
            (cases.SUBSCRIBE, 2),
            (cases.SUBSCRIBE, 1),
            (cases.NEXT, 0),
            (cases.FEED, LARGE[:42]),
            *((cases.FEED, LARGE[at : at + 128]) for at in range(42, len(LARGE), 128)),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a refused message goes no more",
        (RX_130, 0, 0),
        [
            (cases.PUBLISH, 1),
            (cases.PUBLISH, 2),
            (cases.FEED, b"".join(
                build5.ack(name, pid, 0x97)
                for pid in range(1, 60) for name in ("PUBACK", "PUBREC")
            )),
            (cases.NEXT, cases.CUT | cases.PRESENT),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a response topic with a wildcard, and a property length that is short",
        (RX_130, 0, 0),
        [
            (cases.FEED, build5.publish(b"a/b", b"x", 0, 0, [(Id.RESPONSE_TOPIC, b"a/+")])),
            (cases.NEXT, 0),
            (cases.FEED, b"\x40\x08\0\1\0\0\x1f\0\1t"),
            (cases.NEXT, 0),
        ],
    ),
    (
        "a message with an alias has not left when its connection ends",
        (RX_130, 0, 0),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.TOPIC_ALIAS_MAXIMUM, 5), present=1),
            (cases.SYNC, 0),
            (cases.BLOCK, 31),
            (cases.ALIAS, 0),
            (cases.FEED, b"\0\0"),
            (cases.NEXT, 0),
            (cases.SYNC, 0),
        ],
    ),
    (
        "what is set aside while CONNECT has not left",
        (RX_130, 0, 0),
        [
            (cases.BLOCK, 31),
            (cases.PUBLISH, 4),
            (cases.FEED, b"\0\0"),
            (cases.NEXT, AGAIN),
            _accepted((Id.RETAIN_AVAILABLE, 0)),
            (cases.SYNC, 0),
        ],
    ),
    (
        "what is set aside makes room before PINGRESP",
        (RX_130, 0, 0),
        [
            (cases.PUBLISH, 5 | 5 << 5),
            (cases.NEXT, AGAIN),
            _accepted((Id.RETAIN_AVAILABLE, 0), present=1),
            _publish(0, 5),
            (cases.NEXT, 0),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a request does not wait for PINGRESP behind what is set aside",
        (RX_130, 0, 0),
        [
            _publish(1),
            (cases.NEXT, AGAIN),
            _publish(1),
            _accepted((Id.MAXIMUM_QOS, 0), present=1),
            (cases.SUBSCRIBE, 1),
            (cases.SYNC, 0),
        ],
    ),
    (
        "properties that are the same with another topic name",
        (RX_130, 0, 0),
        [
            (cases.FEED, build5.publish(b"a/%d" % i, b"x", 0, 0, EXPIRY))
            for i in range(9)
        ]
        + [(cases.FEED, build5.publish(b"z", b"x", 0, 0, EXPIRY))],
    ),
    (
        "a broker without subscription identifiers",
        (RX_130, 0, 0),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 0)),
            (cases.SYNC, 0),
        ],
    ),
    (
        "a request is given up",
        (RX_130 | CLEAN, 0, 0),
        [
            (cases.REQUEST, 0x10),
            (cases.FEED, b"".join(build5.ack("PUBACK", pid) for pid in range(1, 60))),
            (cases.TICK, 25),
        ],
    ),
    (
        "aliases, more than the broker takes, and a connection that ends",
        (RX_130 | CLEAN, 0, 0),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.TOPIC_ALIAS_MAXIMUM, 1)),
            *((cases.ALIAS, i % 3) for i in range(6)),
            (cases.BLOCK, 31),
            *((cases.ALIAS, i % 3) for i in range(6)),
            (cases.NEXT, AGAIN),
            _accepted((Id.TOPIC_ALIAS_MAXIMUM, 2)),
            *((cases.ALIAS, i % 3) for i in range(6)),
        ],
    ),
    (
        "a broker that accepts no packet as large as AUTH",
        (RX_130 | CLEAN, 0, AUTH),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.MAXIMUM_PACKET_SIZE, 12), *METHOD),
            (cases.AUTHENTICATE, 0),
            (cases.FEED, build5.ending("AUTH", 0x18, METHOD)),
        ],
    ),
    (
        "a broker that accepts no packet as large as PUBACK",
        (RX_130, 0, 0),
        [
            (cases.NEXT, AGAIN),
            _accepted((Id.MAXIMUM_PACKET_SIZE, 3)),
            (cases.FEED, build5.publish(b"a/b", b"x", 1, 7)),
        ],
    ),
)  # fmt: skip


def candidates() -> Iterator[tuple[str, bytes]]:
    """All that might be kept, by name."""
    if FILE.exists():  # found by chance, and given a name
        yield from (
            (name, data) for name, data in corpus.load(FILE).items() if name[:5] == "found"
        )
    for name, (first, second, third), steps in CRAFTED:
        yield f"crafted: {name}", cases.encode(first, second, steps, third)
    made = itertools.islice(chance.made(1, 5, SEGMENTS), BY_CHANCE)
    by_chance = [case.data for case in made]
    for i, data in enumerate(sorted((data for data in by_chance if len(data) < LONGEST), key=len)):
        yield f"by chance {i}", data


def main() -> int:
    """Make corpus5.txt again; with `--judge`, judge what is in it."""
    if sys.argv[1:] == ["--judge"]:
        return corpus.judge(FILE)
    return corpus.keep(FILE, candidates(), FILES)


if __name__ == "__main__":
    sys.exit(main())
