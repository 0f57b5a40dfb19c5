"""Store and forward: readings taken while there is no broker wait on flash, and outlive a reboot.

    spool = Spool(client, "/spool")
    client.start()
    while True:
        spool.poll(20)  # in place of client.poll
        ...
        spool.publish(b"sensors/pico-1/temp", payload)

Imports only downward: the client does not know it. It takes the upper half of the packet
identifiers, so that a record has the same one after a reboot, and no message that is published
past the spool ever has it.
"""

import random

from .journal import FIRST_ID, IDS, Journal
from .port import const
from .session import PUBCOMP
from .store import RECORD, Store
from .wire import field, is_name, number

_OWN = const(32768)  # the session counts its own out up to here, and some hundreds past it

TYPE_CHECKING = False
if TYPE_CHECKING:  # there is no typing on a board
    from .client import Client

# A builtin is found after a miss in the module; a module global is found at once.
_len = len
_str = str


class Stats:
    """Counters since the spool was made."""

    def __init__(self) -> None:
        self.appended = 0  # records made durable
        self.direct = 0  # messages that went straight to the client (durable=False)
        self.refused = 0  # calls of publish that returned False
        self.dropped = 0  # records removed for newer ones, or given up because of their size
        self.replayed = 0  # records handed to the client
        self.acknowledged = 0  # records that the broker has taken
        self.corrupt = 0  # places on flash where a record was not whole


class Spool:
    """A spool in the folder `folder` for a `client` that was not started yet.

    segment    bytes of a file, 512 to 65,535; one block of the flash is what wears it least
    segments   files at the most, 2 to 255
    head       bytes of the file of the newest records, 0 or 64 to 1024: what littlefs keeps in the
               folder, 4 times its prog size (128; 512 on a board with prog size 256)
    full       what to do without room: "drop" the oldest segment, or "refuse" the new record
    durable    False: while the broker is there, and the spool empty, a message goes straight to
               the client, and is lost with the power until the broker has it

    A record that `publish` accepted is delivered at least once, at QoS 2 exactly once with
    `clean_session=False` and a broker that keeps the session, across power cuts of the board at
    any time; unless it was dropped, which is counted. Incoming QoS 2 messages are then delivered
    exactly once as well, if the handler returned before the power was cut, and its return was
    noted: a handler that was interrupted is called again.

    Records keep the order of `publish`. A message that is published past the spool, by
    `client.publish`, may overtake them.

    `pending` counts records that the broker has not acknowledged, `stats` the rest. Flash errors
    are OSErrors, out of `publish` and `poll`; nothing is accepted, or acknowledged, then.
    ValueError names a value that is out of its limits, or a client that has begun its work.
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
        number("segment", segment, 512, 65535)
        number("segments", segments, 2, 255)
        if head:
            number("head", head, 64, min(segment, 1024))
        if full not in ("drop", "refuse"):
            raise ValueError(f"full: {full!r}, allowed is 'drop' and 'refuse'")
        s = self._session = client._session
        if client.state != "offline" or s.end:
            raise ValueError("client: was started, or has published, before its spool was made")
        self._client = client
        self._segment = segment
        self._drops = full == "drop"
        self._durable = durable
        self.stats = Stats()
        self._topic: bytes | str | None = None  # what publish was last given,
        self._name = b""  # and the same checked
        # Where a new spool begins: a board whose flash was erased must not use what it left.
        start = random.getrandbits(15)
        self._flight = [0] * s.slots  # the numbers of the records on their way: a ring
        self._from = self._count = 0
        self._unsaved = False  # the journal is to be written
        self._ready = False  # the store has read a record that is still to be handed over
        self._journal: Journal
        self._store: Store
        self._open(folder, segment, segments, head, start)
        self.pending = self._store.count()
        if not client._who[2]:  # else the broker does not remember what the journal is for
            self._resume()
            s.journal = self._journal

    def _open(self, folder, segment, segments, head, start):
        c = self._client
        self._journal = j = Journal(folder + "/journal", len(self._flight), c._receiving[1])
        self._store = Store(folder, segment, segments, head, j.acked, start)
        j.retain(self._pid(j.acked), self._store.next - j.acked)
        j.acked = self._store.seq
        try:  # noqa: SIM105 (there is no contextlib on a board)
            j.save()  # when there is no room for it later, it has its place already
        except OSError:
            pass
        self.stats.corrupt = self._store.bad

    def _resume(self):
        """Have the session go on with what was on its way: as if sent on an earlier connection."""
        s = self._session
        while self._count < len(self._flight) and self._load() and self._hand_over():
            pass
        s._done = s.end
        if self._journal.ids:
            ids = self._client._load()._ids
            ids[: len(self._journal.ids)] = self._journal.ids
            self._journal.ids = ids

    # What an application calls

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 1,
        retain: bool = False,
    ) -> bool:
        """Accept a message at QoS 1 or 2. Returns True when it is durable, False when there is no
        room for it. May wait for the flash: some ms, where a block is to be erased some 100.

        ValueError for a bad topic name or QoS, and for what would never fit in a segment or in
        `tx_size`. OSError when the flash fails. Allocates nothing when the topic is bytes, and
        the payload bytes or another buffer, but where a segment begins or ends.
        """
        if topic is not self._topic:
            self._name = field("topic name", topic, is_name)
            self._topic = topic if self._name is topic or isinstance(topic, _str) else None
        if payload.__class__ is _str:
            payload = payload.encode()
        number("qos", qos, 1, 2)
        self._check(_len(self._name) + _len(payload))
        if not (self._durable or self.pending) and self._direct(payload, qos, retain):
            return True
        qos <<= 1
        if retain:
            qos |= 1
        return self._append(0x30 | qos, payload)

    def poll(self, ms: int = 0) -> bool:
        """`client.poll`, with the records: hand over what there is room for, take away what was
        acknowledged. Flash takes its time besides `ms`. OSError when it fails, or cannot be read;
        the next call tries again."""
        if self._client._busy:  # a handler called
            return False
        self._feed()
        try:
            return self._client.poll(ms)
        finally:  # what is freed may be the room that was missing
            self._take()

    def close(self) -> None:
        """Close the files; the spool is of no use any more. Needed only before the file system is
        unmounted."""
        self._store.close()
        self._journal.close()

    def _check(self, n):
        number("record: bytes", n + RECORD, 0, self._segment)
        number("packet: bytes", _packet_size(n), 0, self._session._size)

    def _direct(self, payload, qos, retain):
        if self._client.state != "online":
            return False
        if self._client.publish(self._name, payload, qos, retain) is None:
            return False
        self.stats.direct += 1
        return True

    # Records

    def _append(self, first, payload):
        while not self._store.append(first, self._name, payload, self._acked()):
            if not (self._drops and self._drop()):
                self.stats.refused += 1
                return False
        self.stats.appended += 1
        self.pending += 1
        return True

    def _drop(self):
        """Remove the oldest segment of which nothing is on its way, if there is one."""
        n = self._store.drop(self._acked())
        if n < 0:
            return False
        self._ready = False
        self.stats.dropped += n
        self.pending -= n
        return True

    def _acked(self):
        """The number of the first record that may still be needed."""
        return self._flight[self._from] if self._count else self._store.seq

    def _pid(self, seq):
        """The packet identifier of a record."""
        return FIRST_ID + seq % IDS

    def _feed(self):
        """Hand over what there is room for."""
        if self._session._last > _OWN:
            self._session._last = 0
        if self._client.state == "online":
            while self._count < _len(self._flight) and self._load() and self._hand_over():
                pass

    def _load(self):
        """Have the next record ready. Returns whether there is one."""
        if not self._ready:
            self._ready = self._store.read()
            if self._store.bad != self.stats.corrupt:
                self.stats.corrupt = self._store.bad
                self.pending = self._count + self._store.count()
        return self._ready

    def _hand_over(self):
        """Give the record that is ready to the session. Returns whether it took it."""
        store = self._store
        pid = self._pid(store.seq)
        if _packet_size(_len(store.topic) + _len(store.payload)) > self._session._size:
            self.stats.dropped += 1
            self.pending -= 1
        elif self._journal.is_done(pid) or self._publish(pid):
            i = self._from + self._count
            self._flight[i % _len(self._flight)] = store.seq
            self._count += 1
        else:
            return False
        self._ready = False
        store.advance()
        return True

    def _publish(self, pid):
        s = self._session
        if pid in s.ids:  # of a record that is 32,256 older
            return False
        last = s._last
        s._last = pid - 1
        if s.publish(self._store.first, self._store.topic, self._store.payload) is None:
            s._last = last
            return False
        s._last = last
        if self._journal.is_received(pid):
            s._wait[s.ids.index(pid)] = PUBCOMP
        self.stats.replayed += 1
        return True

    def _take(self):
        """Take away what was acknowledged."""
        j = self._journal
        n = self._count
        if j.settle(self._session.ids):
            self._unsaved = True
        while self._count and self._pid(self._flight[self._from]) not in self._session.ids:
            j.remove(self._pid(self._flight[self._from]))
            self._from = (self._from + 1) % _len(self._flight)
            self._count -= 1
        n -= self._count
        if n:
            self.pending -= n
            self.stats.acknowledged += n
            j.acked = self._acked()
            if not self.pending:
                self._unsaved = True
        if self._unsaved:
            j.save()
            self._unsaved = False
        if n:
            self._store.free(j.acked)


def _packet_size(n):
    """Of a PUBLISH at QoS 1 or 2, whose topic name and payload have `n` bytes together."""
    n += 4
    return n + (2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5)
