"""Store and forward: keep messages on flash until the broker has them, even across reboots.

    spool = Spool(client, "/spool")
    client.start()
    while True:
        spool.poll(20)  # instead of client.poll
        ...
        spool.publish(b"sensors/pico-1/temp", payload)

The client does not import this module. Records use the upper half of the packet identifiers. So a
record keeps its identifier across a reboot, and no message that bypasses the spool ever has it.
"""

import random

from . import plain
from .journal import FIRST_ID, IDS, Journal
from .port import Shown, const, drop, load
from .store import RECORD, Store

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Iterator

    from . import Client

_DUP = const(8)

# Found without the miss in the module that a builtin costs.
_len = len
_BUFFERS = (bytes, bytearray, memoryview)
_LASTING = (bytes, str)


def _plain(payload, qos, most):
    load("wire", "").number("qos", qos, 1, most)
    return plain(payload)


class Stats(Shown):
    """Counters since the spool was made."""

    def __init__(self) -> None:
        self.appended = 0  # records made durable
        self.direct = 0  # messages that went straight to the client (durable=False)
        self.refused = 0  # calls of publish that returned False
        self.dropped = 0  # records lost: removed for newer ones, larger than tx_size, or set
        # aside with no room on flash
        self.replayed = 0  # records handed to the client
        self.acknowledged = 0  # records that the broker has acknowledged
        self.set_aside = 0  # records that the client gave up; see Spool.dropped
        self.corrupt = 0  # places on flash with an incomplete or damaged record


class Spool:
    """A spool in `folder`, for a `client` that has not been started.

    segment    bytes per file, 512 to 65,535; the size of a flash block causes the least wear
    segments   maximum number of files, 2 to 255
    head       bytes of the file for the newest records, 0 or 64 to 1024. The best size is what
               littlefs stores inside the folder: 4 times its prog size (128; 512 for 256)
    full       what to do if there is no room: "drop" the oldest segment, or "refuse" the record
    durable    False: while the client is online and the spool is empty, a message goes straight
               to the client, and a power cut loses it until the broker has acknowledged it

    A record that `publish` accepted is delivered at least once, even if the power fails at any
    time. With `clean_session=False` and a broker that keeps the session, a QoS 2 record is
    delivered exactly once. So are incoming QoS 2 messages, except that a handler interrupted by
    the power cut is called again. Records that are dropped or set aside are counted in `stats`.

    Records keep the order of `publish`. A message sent with `client.publish` may overtake them.

    `pending` counts the records that the broker has not acknowledged. If the flash fails,
    `publish` and `poll` raise OSError, and nothing is accepted or acknowledged. After Ctrl-C the
    next call reads the flash again. ValueError names the argument that broke its rule.

    The spool sets `client.on_dropped` and, with `clean_session=False`, `client.gate`. It calls
    the `on_dropped` that the client had before.
    """

    def __init__(
        self,
        client: "Client",
        folder: str,
        *,
        segment: int = 4096,
        segments: int = 16,
        head: int = 128,
        full: str = "drop",
        durable: bool = True,
    ) -> None:
        if not hasattr(client, "stats"):
            raise TypeError(f"client must be a Client, not {type(client).__name__}")
        number = load("wire", "").number
        number("segment", segment, 512, 65535)
        number("segments", segments, 2, 255)
        if head:
            number("head", head, 64, min(segment, 1024))
        if full not in ("drop", "refuse"):
            raise ValueError(f"full must be 'drop' or 'refuse', not {full!r}")
        drop("wire")
        if client.state != "offline" or client.pending or client.stats.connects:
            raise ValueError("create the Spool before client.start() and before the first publish")
        number("max_qos with a Spool", client.max_qos, 1, 2)
        self._out = out = client.handover()
        keeps = not out.clean  # else nothing must be remembered
        if keeps and client.gate is not None:
            raise ValueError(f"client.gate must be None, not {client.gate!r}: the Spool sets it")
        self._qos = (1, 2)[: client.max_qos]
        self._client = client
        self._folder = folder
        self._segment = segment
        self._sizes = segment, segments, head
        self._drops = full == "drop"
        self._durable = durable
        self.stats = Stats()
        self._topic: bytes | str | None = None  # the topic last passed to publish,
        self._name = b""  # and the same checked
        self._first = 0  # the first byte of its PUBLISH
        # Bytes of topic and payload that fit in a packet and in a record.
        self._most = min(out.most, segment - RECORD)
        # The numbers of the records in flight: a ring. A step is one assignment, for Ctrl-C.
        self._flight = [0] * out.inflight
        self._from = self._to = 0
        # Packet identifiers of records that the client gave up, 0 for each free place
        self._aside = [0] * out.inflight
        self._ready = False  # the store has read a record that was not handed over yet
        self._interrupted = False  # Ctrl-C may have left the store between two states
        self._late = False  # what may be in flight could not be read at the start
        self._journal = j = Journal(folder + "/journal", out.inflight)
        # A new spool begins at a random number: a board whose flash was erased must not reuse
        # identifiers that the broker still knows.
        start = random.getrandbits(15)
        self._store = Store(folder, segment, segments, head, j.acked, start)
        j.retain(self._pid(j.acked), self._store.next - j.acked)
        j.acked = self._store.seq
        if keeps:
            j.watch(out.restore(j.received))
        else:
            j.forget()
            j.watch([])
        try:  # noqa: SIM105 (there is no contextlib on a board)
            j.save()  # now it has its place on flash, even if there is no room later
        except OSError:
            pass
        self.stats.corrupt = self._store.bad
        self.pending = self._store.count()
        self._on_dropped = client.on_dropped
        client.on_dropped = self._note
        self._before = 0
        if keeps:
            # Records before this number may have been sent before the reboot: how far the broker
            # had acknowledged is on flash only now and then.
            self._before = self._store.next
            try:
                self._feed(True)
            except OSError:
                self._late = True
            client.gate = self._gate

    # The interface for applications

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 1,
        retain: bool = False,
    ) -> bool:
        """Accept a message at QoS 1 or 2.

        Returns True once it is durable, False if there is no room for it. May wait for the
        flash: a few ms, or some 100 ms if a block must be erased.

        ValueError for a bad topic name or QoS, and for a message that is too large for a segment
        or for `tx_size`; TypeError for a payload that is neither a buffer nor str; OSError if the
        flash fails. Allocates nothing if the topic is bytes and the payload is bytes or another
        buffer, except when a segment begins or ends.
        """
        if self._interrupted:
            self._recover()
        if topic is not self._topic or payload.__class__ not in _BUFFERS or qos not in self._qos:
            payload = self._checked(topic, payload, qos)
        if _len(self._name) + _len(payload) > self._most:
            self._refuse(payload)
        if not (self._durable or self.pending) and self._direct(payload, qos, retain):
            return True
        self._first = (0x31 if retain else 0x30) | qos << 1
        return self._append(payload)

    def poll(self, ms: int = 0) -> bool:
        """Do what `client.poll` does, and hand over and remove records.

        Records are handed to the client while it has room, and removed once they are
        acknowledged. Flash access takes time in addition to `ms`. Raises OSError if the
        flash fails, and MemoryError; the next call tries again. A record that cannot be read in
        a thousand calls is given up, with those behind it in its file.
        """
        if self._interrupted:
            self._recover()
        try:
            return self._poll(ms)
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def dropped(self) -> "Iterator[tuple[int, bytes, bytes]]":
        """Iterate over the records that the client gave up, oldest first.

        Each is the first byte of the PUBLISH (QoS and retain), topic and payload. Up to
        two segments of them stay on flash; then the oldest are removed.
        """
        return load("aside", "").read(self._folder, self._segment)

    def close(self) -> None:
        """Close the files. The spool cannot be used afterwards.

        Only needed before the file system is unmounted.
        """
        self._store.close()
        self._journal.close()

    def _poll(self, ms):
        try:
            if self._client.state == "online":
                self._try_feed(ms)
            return self._client.poll(ms)
        finally:  # even after an error: records freed now may make the missing room
            self._take()

    def _try_feed(self, ms):
        try:
            self._feed(False)
        except Exception:  # the connection lives on
            self._client.poll(ms)
            raise

    def _recover(self):
        """Read the store again, after Ctrl-C. The flash always has a whole state."""
        old = self._store
        old.close()
        j = self._journal
        store = Store(self._folder, *self._sizes, j.acked, 0)
        store.next = max(store.next, old.next)
        n = _len(self._flight)
        i = self._flight[self._to % n]
        if self._to - self._from < n and self._out.awaits(self._pid(i)):
            self._to += 1  # it was handed over
        if self._to > self._from:
            store.seq = self._flight[(self._to - 1) % n] + 1
        store.bad += self.stats.corrupt
        self._store = store
        self._ready = False
        self.stats.corrupt = store.bad
        self.pending = self._to - self._from + store.count()
        self._interrupted = False

    def _checked(self, topic, payload, qos):
        """Put the topic name into `_name`, and return the payload as a buffer.

        ValueError or TypeError for a bad argument.
        """
        if topic is not self._topic:
            self._out.check(topic)
            self._name = topic.encode() if topic.__class__ is str else bytes(topic)
            self._topic = topic if topic.__class__ in _LASTING else None
        if qos in self._qos and payload.__class__ in _BUFFERS:
            return payload
        return _plain(payload, qos, self._qos[-1])

    def _refuse(self, payload):
        """Raise ValueError for a message that is too large."""
        n = _len(self._name) + _len(payload) + RECORD
        if n > self._segment:
            raise ValueError(f"record must be at most segment, {self._segment} bytes, not {n}")
        self._out.put(FIRST_ID, 0x32, self._name, payload)

    def _direct(self, payload, qos, retain):
        if self._client.state != "online":
            return False
        if self._client.publish(self._name, payload, qos, retain) is None:
            return False
        self.stats.direct += 1
        return True

    # Records

    def _append(self, payload):
        try:
            return self._add(payload)
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def _add(self, payload):
        while not self._store.append(self._first, self._name, payload, self._acked()):
            if not (self._drops and self._drop()):
                self.stats.refused += 1
                return False
        self.stats.appended += 1
        self.pending += 1
        return True

    def _drop(self):
        """Remove the oldest segment with no record in flight. Returns False if there is none."""
        n = self._store.drop(self._acked())
        if n < 0:
            return False
        self._ready = False
        self.stats.dropped += n
        self.pending -= n
        return True

    def _acked(self):
        """Return the number of the first record that may still be needed."""
        if self._from == self._to:
            return self._store.seq
        return self._flight[self._from % _len(self._flight)]

    def _pid(self, seq):
        """Return the packet identifier of a record."""
        return FIRST_ID + seq % IDS

    def _feed(self, early):
        """Hand the client as many records as it has room for.

        `early`: before the client may send, so that it resumes those past PUBREC.
        """
        while self._to - self._from < _len(self._flight) and self._load():
            if not self._hand_over(early):
                break

    def _load(self):
        """Read the next record unless it is ready. Returns False if there is none."""
        if not self._ready:
            self._ready = self._read()
            if self._store.bad != self.stats.corrupt:
                self.stats.corrupt = self._store.bad
                self.pending = self._to - self._from + self._store.count()
        return self._ready

    def _read(self):
        n = self._store.seq
        try:
            return self._store.read()
        finally:
            if n != self._store.seq:
                self._forget(n)

    def _forget(self, seq):
        """Forget the records from `seq` on to the next one: they have been given up."""
        n = self._store.seq
        self._journal.retain(self._pid(n), IDS - n + seq)

    def _hand_over(self, early):
        """Hand over the record that is ready, or skip it. Returns False if it has to wait."""
        store = self._store
        pid = self._pid(store.seq)
        self._flight[self._to % _len(self._flight)] = store.seq
        if _len(store.topic) + _len(store.payload) > self._out.most:
            self.stats.dropped += 1
            self.pending -= 1
        elif self._journal.is_done(pid) or self._put(pid, early):
            self._to += 1
        else:
            return False
        self._ready = False
        store.advance()
        return True

    def _put(self, pid, early):
        """Put the record that is ready into the client. Returns False if there is no room."""
        first = self._store.first
        if self._out.awaits(pid):  # used by the record that is 32,256 older
            return False
        if first & 4 and self._client.max_qos == 1:  # stored when `max_qos` was higher
            first -= 2
        elif self._journal.is_received(pid):
            first |= 2 if early else _DUP
        if self._store.seq < self._before:
            first |= _DUP
        if not self._out.put(pid, first, self._store.topic, self._store.payload):
            return False
        self.stats.replayed += 1
        return True

    def _take(self):
        """Remove the records that are acknowledged or set aside."""
        j = self._journal
        n = self._from
        some = n < self._to
        self._settle()
        while self._from < self._to and not self._out.awaits(self._pid(self._acked())):
            self._remove(self._pid(self._acked()))
        if j.changed or (some and not self.pending):
            j.save()
        if n != self._from:
            self._store.free(j.acked)

    def _settle(self):
        n = self._acked()
        self._journal.settle(self._out, self._pid(n), self._store.seq - n)

    def _remove(self, pid):
        """Remove the oldest record in flight."""
        if pid in self._aside:
            self._set_aside(pid)
        else:
            self.stats.acknowledged += 1
        self._journal.remove(pid)
        self._from += 1
        self.pending -= 1
        self._journal.acked = self._acked()

    # The functions that the client calls

    def _gate(self, same):
        """Save the state of QoS 2 messages before acknowledgements leave: see `Client.gate`."""
        if same is not None:
            self._settle()
        if same is False:  # for the broker, none is past PUBREC any more
            self._journal.forget()
            self._journal.save()
            self._before = 0
        else:
            self._journal.note(self._out)
        if self._late and same is not None:
            self._feed(True)
            self._late = False

    def _note(self, packet_id, topic, reason):
        """Note that the client has set a message aside.

        Its record is copied once it is the oldest one in flight.
        """
        if packet_id >= FIRST_ID:
            self._aside[self._aside.index(0)] = packet_id
        if self._on_dropped:
            self._on_dropped(packet_id, topic, reason)

    def _set_aside(self, pid):
        """Copy the oldest record in flight to those that were set aside. OSError."""
        self._ready = False
        if self._store.look(self._acked()) and load("aside", "").keep(
            self._folder, self._segment, self._store
        ):
            self.stats.set_aside += 1
        else:
            self.stats.dropped += 1
        self._aside[self._aside.index(pid)] = 0
        self._journal.changed = True
