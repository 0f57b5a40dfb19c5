"""A program for umqtt with a broker of its own: what it prints, and what a subscriber sees of it.

The umqtt to compare with is fetched from the package index: umqtt.simple 1.3.4 and umqtt.robust
1.0, the last ones that are there. What the umqtt of today's micropython-lib does beyond them is in
tables, and flatmq is held against these.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import peer
from brokers.core import Connection, types
from brokers.fake import FakeBroker
from conftest import LIB, ROOT, interpreter_command
from flatmq_rigs.bench import peers
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker, bytecode, interpreter, ports
from observer import Heard, Observer, until
from scenario_child import converse

PROGRAMS = Path(__file__).parent / "programs"
HEAP = "256k"
DEADLINE = 60  # seconds until a program is ended from outside
USERS = {"alice": "s3cret"}
PYTHONS = ("micropython", "cpython")

_SDISTS = {
    "umqtt_simple": "micropython-umqtt.simple==1.3.4",
    "umqtt_robust": "micropython-umqtt.robust==1.0",
}
_MOVED = {"umqtt.simple": "flatmq.umqtt", "umqtt.robust": "flatmq.umqtt_robust"}


class Seen(NamedTuple):
    """The result of a program."""

    printed: list[str]
    messages: list[Heard]


def real_umqtt() -> list[Path]:
    """The folders to import the real umqtt from; the test fails if it cannot be had."""
    try:
        # MicroPython looks for a submodule in one folder only.
        folder = ROOT / "build" / "peers" / "umqtt_both" / "umqtt"
        for name, requirement in _SDISTS.items():
            fetched = peers.fetch(ROOT / "build" / "peers", name, (requirement,), ())
            for source in (fetched / "umqtt").glob("*.py"):
                folder.mkdir(parents=True, exist_ok=True)
                _copy(source, folder)
    except peers.PeerError as error:
        pytest.fail(str(error))
    return [folder.parent]


def _copy(source: Path, folder: Path) -> None:
    """Copy a file that tests of other processes may be importing."""
    target, data = folder / source.name, source.read_bytes()
    if not target.is_file() or target.read_bytes() != data:
        made = folder / f".{source.name}-{os.getpid()}"
        made.write_bytes(data)
        made.replace(target)


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


def folders(which: str, python: str) -> Sequence[Path]:
    """Return the folders from which a program imports.

    `which` is "umqtt", "flatmq", or a folder that goes first.
    """
    if which == "umqtt":
        return real_umqtt()
    if which != "flatmq":
        return [Path(which), *folders("flatmq", python)]
    return [LIB if python == "cpython" else bytecode.library()]


def run(program: Path, which: str, python: str, heap: str = HEAP) -> Seen:
    """Run a program to its end, by way of a proxy that it can have cut its connection."""
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
                case ["refuse" | "accept" as what]:
                    proxy.refuse(what == "refuse")
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

        output = converse(
            [*interpreter_command(python, heap), str(program), proxy.host, str(proxy.port)],
            interpreter.environment(*folders(which, python), PROGRAMS),
            DEADLINE,
            carry_out,
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
