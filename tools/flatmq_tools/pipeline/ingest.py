"""Who has the broker keep a session, and fills the log from it? An Ingest."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flatmq import MQTTError
from flatmq.router import Subscription
from flatmq.wire import is_filter
from flatmq.wire import field

from .log import Writer
from .receive import BulkClient
from .tls import TLS

TURN_MS = 100  # that a turn of a thread may wait
_FULL_MS = 20  # between two looks at a log that is full
_TROUBLE_S = 1.0  # between two tries to append to a disk that has no room
# For the broker to read the last acknowledgements and close. To close before it does loses them if
# more has arrived from it meanwhile, and it sends those messages again.
_PATIENCE_MS = 5000


class IngestError(RuntimeError):
    """The broker does not give what is wanted, or the ingest has failed; the text says why."""


class _Client(BulkClient):
    """Remembers over a restart what the broker was last asked for, and granted."""

    note: Path

    def forget(self) -> None:
        super().forget()
        self.note.unlink(missing_ok=True)


class Ingest:
    """Receives what matches `filters`, at `qos` at the most, from the broker at (host, port) into
    a `log`, which stays the caller's to trim and to close.

    client_id      must be the same after a restart, and of nobody else: that is the name of the
                   session, in which the broker keeps messages meanwhile; made of the log's id
                   where it is not given
    user, password, keepalive (s), version, timeout (s): as of `flatmq.Client`
    clean_session  True: the broker keeps nothing while this is away
    tls            who is trusted, and what is shown; None: no TLS
    delay_ms       that a message waits for others to be synced with, at the most
    link           in place of host and port: see `flatmq.Client`

    SUBSCRIBE is sent when the broker has no session, or was asked for something else last time:
    to send it again would bring every retained message again. ValueError for a bad filter.
    """

    def __init__(
        self,
        log: Writer,
        broker: tuple[str, int],
        filters: Sequence[str],
        qos: int = 1,
        client_id: str = "",
        *,
        user: str | None = None,
        password: str | None = None,
        keepalive: int = 60,
        clean_session: bool = False,
        version: int = 4,
        timeout: int = 10,
        tls: ssl.SSLContext | None = None,
        delay_ms: int = 5,
        link: Any = None,
        **options: Any,
    ) -> None:
        self.log = log
        self.broker = broker
        self.filters = [filters] if isinstance(filters, str) else list(filters)
        self.qos = qos
        self.client_id = client_id or f"flatmq-{log.id}"
        if link is None and tls is not None:
            link = TLS(*broker, tls)
        self.client = _Client(
            log, self.client_id, *broker, user=user, password=password, keepalive=keepalive,
            clean_session=clean_session, version=version, timeout=timeout, delay_ms=delay_ms,
            link=link, subscriptions=2, **options,
        )  # fmt: skip
        self.client.note = log.folder / "subscribed.json"
        self._wanted = {
            "client_id": self.client_id,
            "broker": list(broker),
            "filters": sorted(self.filters),
            "qos": qos,
        }
        self._subscribe(self._noted())
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.trouble: OSError | None = None
        """Why the disk did not take the last message; see `turn`."""

    def _noted(self) -> dict[str, Any]:
        """What the broker was last asked for, where it was this one, and the same session."""
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(self.client.note.read_text(encoding="utf-8"))
            if all(note[key] == self._wanted[key] for key in ("client_id", "broker")):
                return dict(note)
        return {}

    def _subscribe(self, noted: dict[str, Any]) -> None:
        self._subscription = self.client.subscribe(self.filters, self.client.take, self.qos, True)
        self.client.remembered = noted == self._wanted
        stale = [f for f in noted.get("filters", []) if f not in self.filters]
        if stale:
            # An UNSUBSCRIBE: by itself the client takes none for what another process asked for.
            names = [field("topic filter", f, is_filter) for f in stale]
            self.client._router._put(Subscription(names, None, 0))

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted the connection."""
        return self.client.connected

    @property
    def error(self) -> MQTTError | None:
        """Why the last connection ended, or could not be made; None since one was accepted."""
        return self.client.error

    @property
    def subscribed(self) -> bool:
        """Whether the broker has granted the filters, in this session."""
        return self.connected and (self.client.remembered or bool(self._subscription.granted))

    def start(self, wait_ms: int = 0) -> None:
        """Begin to connect. With `wait_ms`, poll until the broker has granted the filters:
        MQTTError when it has not by then, and at once when it refuses the connection."""
        if not wait_ms:
            self.client.start()
            return
        end = time.monotonic() + wait_ms / 1000
        self.client.connect(wait_ms)
        while not self.subscribed:
            left = end - time.monotonic()
            if left <= 0:
                raise self.error or MQTTError("timeout", f"SUBACK after {wait_ms} ms")
            self.poll(min(TURN_MS, int(left * 1000) + 1))

    def poll(self, ms: int = 0) -> bool:
        """Do what there is to do, and wait up to `ms` for something to come in. Returns whether
        something did. IngestError when the broker refuses a filter; OSError when the disk does
        not take a message, which is then not acknowledged, and taken by a later call."""
        client = self.client
        full = client.waits and client.connected
        moved = client.poll(0 if full else ms)
        if full and not moved and ms:
            time.sleep(min(ms, _FULL_MS) / 1000)  # something to read is always there
        if self._subscription.granted and not client.remembered:
            self._note(self._subscription.granted)
        return moved

    def _note(self, granted: bytes) -> None:
        refused = [f for f, code in zip(self.filters, granted, strict=True) if code == 0x80]
        if refused:
            raise IngestError(
                f"the broker at {self.broker[0]}:{self.broker[1]} refuses to subscribe "
                f"{self.client_id} to {', '.join(refused)}"
            )
        self.client.remembered = True
        if not self.client._who[2]:  # with a clean session there is nothing to come back to
            draft = self.client.note.with_suffix(".new")
            draft.write_text(json.dumps(self._wanted), encoding="utf-8")
            draft.replace(self.client.note)

    def background(self) -> None:
        """Poll in a thread of its own until `stop`. `check` tells whether it still does."""
        self._thread = threading.Thread(target=self._turn, name="ingest", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        try:
            while not self._over.is_set():
                self.turn(TURN_MS)
        except BaseException as error:
            self._failure = error

    def turn(self, ms: int) -> bool:
        """As `poll`, but when the disk does not take a message, for want of room most likely, wait
        a second: `trouble` says why. LogError when nobody knows what of the log would last."""
        try:
            moved = self.poll(ms)
        except OSError as error:
            self.trouble = error
            self._over.wait(_TROUBLE_S)
            return False
        if moved:
            self.trouble = None
        return moved

    def check(self) -> None:
        """IngestError when the thread has failed."""
        if self._failure is not None:
            raise IngestError(f"the ingest has failed: {self._failure!r}") from self._failure

    def stop(self) -> None:
        """End the thread, acknowledge what is in the log, and disconnect. The session stays."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        client = self.client
        if client.connected:
            client.commit()
            client.disconnect(_PATIENCE_MS)
        elif not self._failure:
            client.commit()
