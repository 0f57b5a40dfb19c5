"""A program for umqtt, moved to flatmq, with a broker of its own: what it prints, and what a
subscriber sees of it.

What they do with umqtt itself is in tables: umqtt.simple 1.3.4 and umqtt.robust 1.0, the last ones
of the package index, and where these cannot do it yet, the umqtt of micropython-lib.
"""

import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import peer
from brokers.core import Connection, types
from brokers.fake import FakeBroker
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, ports
from observer import Heard, Observer, until
from scenario_child import play

PROGRAMS = Path(__file__).parent / "programs"
HEAP = "256k"
DEADLINE = 60  # seconds until a program is ended from outside
USERS = {"alice": "s3cret"}

_MOVED = {"umqtt.simple": "flatmq.umqtt", "umqtt.robust": "flatmq.umqtt_robust"}


class Seen(NamedTuple):
    """The result of a program."""

    printed: list[str]
    messages: list[Heard]


def moved(program: Path, folder: Path) -> Path:
    """Return a copy of a program in `folder` whose one line that imports umqtt imports flatmq."""
    result = program.read_text()
    count = 0
    for old, new in _MOVED.items():
        result, n = re.subn(
            rf"^from {re.escape(old)} import", f"from {new} import", result, flags=re.M
        )
        count += n
    assert count == 1, program
    (folder / program.name).write_text(result)
    return folder / program.name


def cases(lines: list[str]) -> dict[str, str]:
    """Return what each case of a program printed."""
    found = [line.split(" ", 2) for line in lines if line.startswith("case ")]
    return {name: result for _, name, result in found}


class Scripted(FakeBroker):
    """A broker that refuses the filter "forbidden", and sends no PUBACK.

    For "garbage" it sends a packet that is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forbidden = b"forbidden"
        self.withhold(types("PUBACK"))

    def packet(self, connection: Connection, first: int, body: bytes) -> None:
        if body.endswith(b"garbage"):
            connection.send(peer.packet(first | 6, body))
        else:
            super().packet(connection, first, body)


def run(program: Path, python: str, heap: str = HEAP, *, before: Sequence[Path] = ()) -> Seen:
    """Run a program to its end, by way of a proxy that it can have cut its connection.

    It imports from the folders `before`, then flatmq.
    """
    with (
        broker.mosquitto() as target,
        broker.mosquitto(users=USERS) as guarded,
        Observer(target.host, target.port) as observer,
        Proxy(target.host, target.port) as proxy,
        Scripted() as scripted,
        FakeBroker() as garbage,
        socket.create_server((broker.LOOPBACK, 0)) as silent,
    ):
        garbage.answer_connect(b"\x20\x02\x07\x09")
        peers_at_hand = {
            "scripted": scripted.port,
            "garbage": garbage.port,
            "users": guarded.port,
            "silent": silent.getsockname()[1],
        }

        def publish(topic: str, payload: str, qos: int) -> None:
            """Publish, and wait until the broker has passed it on."""
            before = len(observer.messages)
            observer.publish(topic, payload, qos)
            wanted = (topic, payload.encode(), False)
            observer.until(lambda: wanted in observer.messages[before:])

        withheld: list[str] = []  # faults after which the broker may never learn of an end

        def carry_out(words: list[str]) -> str:
            match words:
                case ["publish", topic, payload, *qos]:
                    publish(topic, payload, int(*qos or "0"))
                case ["port", "nothing"]:
                    return str(ports.free_port())
                case ["port", what]:
                    return str(peers_at_hand[what])
                case ["large", topic, size]:
                    publish(topic, "x" * int(size), 1)
                case ["seen", topic, payload]:
                    observer.until(lambda: payload.encode() in observer.payloads(topic))
                case ["cut"]:
                    proxy.strike("cut")
                case ["silence" | "stall" as fault]:
                    withheld.append(fault)
                    proxy.strike(fault)
                case ["resume"]:
                    proxy.resume()
                case ["withhold", name]:
                    scripted.withhold(types(name))
                case ["end"]:
                    scripted.end()
                    scripted.withhold(types("PUBACK"))
                case _:
                    raise AssertionError(f"the program asks for something unknown: {words}")
            return "done"

        output = play(
            python,
            program,
            *(proxy.host, str(proxy.port)),
            heap=heap,
            deadline=DEADLINE,
            folders=[*before, PROGRAMS],
            carry_out=carry_out,
        )
        if not withheld:
            # A link ends when the broker has read all of it.
            until("the end of each connection", lambda: not proxy.open)
        publish("the/end", "", 1)
        messages = [message for message in observer.messages if message.topic != "the/end"]
    printed = [line for line in output if not line.startswith("@")]
    # The texts of errors differ.
    printed = [re.sub(r"^(mqtt[\w ]*):.*", r"\1", line) for line in printed]
    return Seen(printed, messages)
