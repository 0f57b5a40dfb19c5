"""The connection of `flatmq ota` to a broker, and the names and statuses of boards."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from flatmq import Client, MQTTError
from flatmq.rare.message import Subscription
from flatmq.topic import is_name

from .. import broker as brokers
from ..password import PASSWORD
from ..trust import Trust

_CONNECT_MS = 10_000
_STEP_MS = 50


class OnlineError(RuntimeError):
    """The broker cannot be used, or a name is none; the text says why."""


def named(target: str) -> str:
    """Return what the topics of a board, or of group/NAME, begin with. Raises OnlineError."""
    name = target.removeprefix("group/")
    raw = name.encode()
    if not name or "/" in name or not is_name(bytearray(raw), 0, len(raw)):
        raise OnlineError(f"{target}: must be the name of a board, or group/NAME")
    return target if target.startswith("group/") else f"dev/{name}"


def client(where: brokers.Broker, user: str | None, trust: Trust | None, **options: Any) -> Client:
    """Return a client for that broker, with the password from the environment."""
    return Client(
        f"ota-{os.getpid()}", where.host, where.port, user=user,
        password=os.environ.get(PASSWORD) if user else None, quiet=True, rx_size=4096,
        link=trust.link(where.host, where.port) if trust else None, **options,
    )  # fmt: skip


def connect(client: Client, *subscriptions: Subscription) -> None:
    """Connect, and wait until the subscriptions are in force. Raises OnlineError."""
    try:
        client.connect(_CONNECT_MS)
    except MQTTError as error:
        raise OnlineError(f"cannot connect to the broker: {error}") from error
    end = time.monotonic() + _CONNECT_MS / 1000
    while time.monotonic() < end and any(s.granted is None for s in subscriptions):
        client.poll(_STEP_MS)
    for each in subscriptions:
        if each.granted is None or 0x80 in each.granted:
            topics = b", ".join(each.filters).decode()
            raise OnlineError(f"the broker refuses the subscription to {topics}")


def publish(client: Client, topic: bytes, payload: bytes) -> None:
    """Publish a retained message, and wait for its PUBACK. Raises OnlineError."""
    client.publish(topic, payload, 1, True)
    if not client.wait(_CONNECT_MS):
        raise OnlineError("the broker does not acknowledge the manifest")


def status(payload: bytes) -> dict[str, Any]:
    """Return what a status says; {} if it is none."""
    try:
        said = json.loads(payload)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
