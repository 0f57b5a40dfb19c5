"""Receive what the broker keeps for a client, with a session that outlives this process."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from flatmq import MQTTError
from flatmq.message import Subscription
from flatmq.v5.reasons import text

from ..trust import Trust
from . import refusals, room
from .log import Writer
from .options import Settings
from .receive import BulkClient, BulkClient5

FULL = "the log in {} is full: the broker has to wait"
TURN_MS = 100  # a turn of a thread waits this long, at most
_TX_SIZE = 1 << 20  # bytes: a SUBSCRIBE has all filters in one packet
_STOP_S = 8.0  # that the thread may take to end
_TROUBLE_S = 1.0  # between two tries to append to a disk that has no room
# For the broker to read the last acknowledgements and close. Closing before it does loses them
# if more has arrived from it meanwhile, and it sends those messages again.
_PATIENCE_MS = 5000


class IngestError(RuntimeError):
    """The broker refuses a filter, or the ingest has failed; the text says why."""


class Ingest:
    """Receive what matches `filters`, at up to `qos`, from a broker into a `log`.

    `broker` is (host, port). Trimming and closing the log is left to the caller.

    client_id      the name of the session in which the broker keeps messages while the ingest is
                   away: the same after a restart, and used by nobody else; by default it is made
                   from the log's id
    user, password, keepalive (s), timeout (s): as for `flatmq.Client`
    version        4 for MQTT 3.1.1, 3 for 3.1, 5 for MQTT 5
    clean_session  True: the broker keeps nothing while the ingest is away
    session_expiry s for which the broker keeps messages while the ingest is away, 0 to
                   4,294,967,295, which is forever; None for forever. Only in MQTT 5
    tls            how the broker is verified; None for no TLS
    delay_ms       how long a message waits for others to share its sync, at most
    link           replaces host and port: see `flatmq.Client`
    say            takes a line for people when the broker has broken a rule, or lost the session,
                   and in `background` when no messages come

    SUBSCRIBE is sent only if the broker has no session, or was asked for something else last
    time: each SUBSCRIBE brings every retained message again. `subscribed.json`, beside the
    log's files, says what the broker has granted. Raises ValueError for a bad filter.
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
        session_expiry: int | None = None,
        version: int = 4,
        timeout: int = 10,
        tls: Trust | None = None,
        delay_ms: int = 5,
        link: Any = None,
        say: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> None:
        self.log = log
        self.say = say
        self.broker = broker
        self.filters = [filters] if isinstance(filters, str) else list(filters)
        self.qos = qos
        self.client_id = client_id or f"flatmq-{log.id}"
        if link is None and tls is not None:
            link = tls.link(*broker)
        options.setdefault("tx_size", _TX_SIZE)
        kind: type[BulkClient] | type[BulkClient5] = BulkClient
        if version == 5:
            kind = BulkClient5
            options["session_expiry"] = session_expiry
        elif session_expiry is not None:
            raise ValueError(f"session_expiry must be None in MQTT 3.1.1, not {session_expiry!r}")
        self.client = kind(
            log, self.client_id, *broker, user=user, password=password, keepalive=keepalive,
            clean_session=clean_session, version=version, timeout=timeout, delay_ms=delay_ms,
            link=link, forgotten=self._forgotten, **options,
        )  # fmt: skip
        self._clean = clean_session
        self._note = log.folder / "subscribed.json"
        self._wanted = {
            "client_id": self.client_id,
            "broker": list(broker),
            "filters": sorted(self.filters),
            "qos": qos,
        }
        self._seen: MQTTError | None = None  # the error that was looked at last
        self._subscription: Subscription | None = None
        noted = self._noted()
        self._remembered = noted == self._wanted  # the broker has the subscriptions as they are
        self._known = self._remembered  # it has granted them at some time
        self._refused = ""  # what was said of a refusal last
        if not self._remembered:
            self._subscribe()
            stale = [f for f in noted.get("filters", []) if f not in self.filters]
            if stale:
                self.client.unsubscribe(stale)
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self.trouble: OSError | None = None
        """Why the disk did not take the last message; see `turn`."""
        self._taken = 0  # messages, when that began

    def _noted(self) -> dict[str, Any]:
        """Return what this broker granted to this session last; empty if that is not known."""
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if all(note[key] == self._wanted[key] for key in ("client_id", "broker")):
                return dict(note)
        return {}

    def _subscribe(self) -> None:
        client = self.client
        self._subscription = client.subscribe(self.filters, client.take, self.qos, chunks=True)

    def _forgotten(self) -> None:
        """Handle a session without subscriptions. The client renews its own by itself."""
        if self._remembered and not self._clean:
            self.say(
                "{}:{} has lost the session of {}, and the messages that waited in it: the ingest "
                "subscribes again".format(*self.broker, self.client_id)
            )
        self._remembered = False
        if self._subscription is not None:
            self._subscription.granted = None
        self._note.unlink(missing_ok=True)

    @property
    def connected(self) -> bool:
        """True while the broker has accepted the connection."""
        return self.client.connected

    @property
    def error(self) -> MQTTError | None:
        """The reason why the last connection ended or failed; None once one is accepted."""
        return self.client.error

    @property
    def session_expiry(self) -> int | None:
        """Seconds for which the broker keeps the session after this connection, as it reported.

        None if it has reported nothing, or the version of MQTT is not 5.
        """
        client = self.client
        if not isinstance(client, BulkClient5) or client.server.session_expiry < 0:
            return None
        return client.server.session_expiry

    @property
    def subscribed(self) -> bool:
        """True if the broker has granted the filters in this session."""
        return self.connected and self._remembered

    def start(self) -> None:
        """Begin to connect."""
        self.client.start()

    def poll(self, ms: int = 0) -> bool:
        """Do what there is to do, and wait up to `ms` milliseconds for something to come in.

        Returns whether something did. Raises IngestError if the broker refuses a filter; all that
        it has granted before are tried again.
        Raises OSError if the disk does not take a message, which is then not acknowledged;
        a later call tries again.
        """
        if self._subscription is None and not self._remembered:
            self._subscribe()
        moved = self.client.poll(ms)
        error = self.client.error  # None again once a connection is accepted
        if error is not self._seen:
            self._seen = error
            if error is not None and error.kind == "protocol":
                self.say(
                    "{}:{} broke a rule of MQTT, so the ingest reconnects: {}".format(
                        *self.broker, error.detail
                    )
                )
        if not self._remembered and self._subscription and self._subscription.granted:
            self._granted(self._subscription.granted)
        return moved

    def _granted(self, granted: bytes) -> None:
        refused = [
            f if code == 0x80 else f"{f} ({text('SUBACK', code)})"
            for f, code in zip(self.filters, granted, strict=True)
            if code >= 0x80
        ]
        if refused:
            reason = (
                f"the broker at {self.broker[0]}:{self.broker[1]} refuses to subscribe "
                f"{self.client_id} to {', '.join(refused)}"
            )
            if not self._known:
                raise IngestError(reason)
            if reason != self._refused:  # the client tries it again: see `subs`
                self._refused = reason
                self.say(f"{reason}, which it has granted before: trying again")
            return
        self._refused = ""
        self._known = True
        if not self._clean:  # with a clean session there is nothing to come back to
            draft = self._note.with_suffix(".new")
            draft.write_text(json.dumps(self._wanted), encoding="utf-8")
            draft.replace(self._note)
        self._remembered = True  # only now: a disk that takes nothing is tried again

    def background(self) -> None:
        """Poll in a thread until `stop`. `check` raises what ended it.

        What keeps messages away is reported once, and when they come again.
        """
        self._thread = threading.Thread(target=self._turn, name="ingest", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        said = ""
        try:
            while not self._over.is_set():
                self.turn(TURN_MS)
                if (away := self._away()) != said:
                    said = away
                    self.say(away or "receiving from {}:{} again".format(*self.broker))
        except BaseException as error:
            self._failure = error

    def _away(self) -> str:
        """Return why no messages come; empty if they do, or if it does not connect yet."""
        if self.trouble is not None:
            folder = self.log.folder
            return f"paused, as the disk of the log in {folder} takes nothing: {self.trouble}"
        if self.log.full:
            return FULL.format(self.log.folder)
        if self.error is None:
            return ""
        return "no connection to {}:{}: {}".format(*self.broker, self.error.detail)

    def turn(self, ms: int) -> bool:
        """Do as `poll`, but wait for a second if the disk does not accept a message.

        Most likely it is full. `trouble` has the reason until a message was accepted or
        there is room. Raises LogError if it is not known what of the log is durable.
        """
        try:
            moved = self.poll(ms)
        except OSError as error:
            if self.trouble is None:
                self._taken = self.client.messages
            self.trouble = error
            self._over.wait(_TROUBLE_S)
            return False
        if self.trouble is not None:
            taken = self.client.messages != self._taken
            if taken or (room.is_full(self.trouble) and room.has_room([self.log.folder])):
                self.trouble = None
        return moved

    def check(self) -> None:
        """Raise IngestError if the thread has failed, or if the broker refuses this client.

        A broker that has accepted it before is tried again: it may not know its users yet.
        """
        if self._failure is not None:
            raise IngestError(f"the ingest has failed: {self._failure!r}") from self._failure
        if refusals.final(self.error) and not self.client.stats.connects:
            raise IngestError("{}:{} refuses the client: {}".format(*self.broker, self.error))

    def stop(self) -> None:
        """End the thread, acknowledge what is in the log, and disconnect.

        The broker keeps the session. A name lookup may take longer than `_STOP_S`: nothing is
        unacknowledged then.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                return
            self._thread = None
        client = self.client
        if client.connected or not self._failure:
            client.commit()
        client.disconnect(_PATIENCE_MS)  # a connection that is only being made is closed, too


def by_settings(settings: Settings, log: Writer, say: Callable[[str], None]) -> Ingest:
    """Return an ingest with the options of `format("mqtt")`. Raises TrustError."""
    assert settings.host is not None
    return Ingest(
        log, (settings.host, settings.port), settings.filters, settings.qos, settings.client_id,
        clean_session=settings.clean_session, session_expiry=settings.session_expiry,
        user=settings.username, password=settings.password, keepalive=settings.keep_alive,
        version=settings.mqtt_version, timeout=settings.connection_timeout, tls=settings.trust,
        say=say,
    )  # fmt: skip
