"""A board whose updates run in this process, with a desk that answers in any way."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from flatmq.ota import Updates
from flatmq_tools.ota import package, push
from ota.fakes import Client, Message
from unit.fake_link import Clock

OWN, GROUP = b"dev/b/ota/manifest", b"group/attic/ota/manifest"
ARCHIVE = package.archive({"main.mpy": bytes(range(256)) * 40})
MADE = package.Package("toy", "2", 20, archive=ARCHIVE)


class Board:
    """A board of the kind toy with version 1, whose counter is 10."""

    clock: Clock
    made = MADE
    part = 0  # bytes of a message that come at a time; 0: all of it

    def __init__(self, folder: Path, key: RSAPrivateKey) -> None:
        self.folder = folder
        self.key = key
        (folder / "a").write_bytes(package.archive({"main.mpy": b"old"}))
        (folder / "slot").write_text(json.dumps({"version": "1", "counter": 10}))
        self.said: dict[str, Any] = {}
        self.restart()

    def restart(self, **changed: Any) -> None:
        """Start, with what is on the flash and these fields in its record."""
        if changed:
            slot = self.folder / "slot"
            slot.write_text(json.dumps({**json.loads(slot.read_text()), **changed}))
        self.client = Client()
        self.resets = 0
        self.updates = Updates(
            self.client,  # type: ignore[arg-type]
            b"dev/b/", "toy", self.key.public_key().public_numbers().n, groups=(b"attic",),
            reset=self._reset, folder=str(self.folder),
        )  # fmt: skip

    def _reset(self) -> None:
        self.resets += 1

    def manifest(self, topic: bytes = OWN, **changed: Any) -> bytes:
        """Return what offers it, or its group, `made` with these fields changed."""
        to = topic.removesuffix(b"/ota/manifest").decode()
        return push.manifest(dataclasses.replace(self.made, **changed), to, self.key)

    def offered(self, topic: bytes = OWN, **changed: Any) -> None:
        """Have that come."""
        self.hears(topic, self.manifest(topic, **changed))

    def hears(self, topic: bytes, payload: bytes) -> None:
        whole = max(1, len(payload))
        size = self.part or whole
        for at in range(0, whole, size):
            self.client.handler(Message(topic, payload, at, size))

    def turns(self, answer: Any = None) -> None:
        """Have it go on for a while; `answer` is that of `turn`."""
        for _ in range(100):
            self.turn(answer)

    def turn(self, answer: Any = None) -> None:
        """Have it go on; answer a request with what `answer` makes of the right answer."""
        self.updates.poll()
        sent, self.client.sent = self.client.sent, []
        for topic, payload in sent:
            if topic == b"dev/b/ota/get" and answer:
                at = int.from_bytes(payload[8:], "big")
                for each in answer(payload + ARCHIVE[at : at + package.PIECE]):
                    self.hears(b"dev/b/ota/piece", each)
            elif topic == b"dev/b/ota/status":
                self.said = json.loads(payload)

    def is_unchanged(self) -> bool:
        """Return whether it would run what it ran before."""
        record = json.loads((self.folder / "slot").read_text())
        return (record["version"], record.get("run", "a")) == ("1", "a") and not self.resets
