"""Cut the power at each write, on MicroPython.

Usage: `powercut.py FULL HEAD DURABLE FIRST STEP SECOND VERSION`.

FULL is "drop" or "refuse", HEAD the size of the head, DURABLE 1 or 0. Every STEP-th write from
FIRST on is cut, both ways, each in a run of its own; SECOND is 0, or says that in every SECOND-th
of those the power is cut again at each write of what follows. VERSION is 4, or 5 for MQTT 5, in
which the broker refuses a reading by reason code instead of closing. The last line says what was
seen.
"""

import gc
import random
import sys

import vfs
from flash_chip import STOP, TORN, Chip, PowerCut
from model_broker import Broker

import flatmq.port
from flatmq import Client
from flatmq.spool import Spool

MOST = 512 // 15  # records in a segment
PATIENCE = 3000  # polls
BROKEN = [0] * 5  # what World.check found in all runs
GONE = [0]
TOPICS = (b"a/temperature", b"b")
FORBIDDEN = b"c"  # the broker does not take it
LARGE = 700  # bytes of an incoming message that comes in pieces


class Failure(Exception):
    """A promise was broken."""


def payload(i):
    """Return the i-th reading, which shows whether it is whole."""
    return b"%05d" % i + bytes((i * 7 + k) & 255 for k in range(i * 13 % 50))


def copied(value):
    """Return the value, of which no container changes with the other's."""
    if isinstance(value, (list, set)):
        return type(value)([copied(each) for each in value])
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return value


class World:
    """The part of the world that outlives a reboot.

    That is the flash, the broker, and the notes of those who watch.
    """

    def __init__(self, full, head, durable, version):
        self.version = version
        self.full = full
        self.head = head
        self.durable = durable
        self.chip = Chip(40)
        vfs.VfsLfs2.mkfs(self.chip)
        self.broker = Broker(version)
        self.broker.forbidden = FORBIDDEN
        self.broker.refuses = version == 5
        self.aside = set()  # readings that were set aside
        self.published = 0
        self.accepted = set()
        self.dropped = 0
        self.dropping = False
        self.unsettled = set()  # went past the flash, and were not all acknowledged since
        self.loose = set()  # such readings when the power was cut: they may be lost
        self.pieces = b""
        self.handled = {}
        self.open = None  # the message whose handler has begun, and whose PUBREC has not left
        self.interrupted = None  # such a message when the power was cut
        self.again = 0  # handlers that were called again because of that
        self.sent = 0
        self.spool = None

    def boot(self):
        """The board starts: a file system, a client, a spool."""
        self.broker.plug()
        flatmq.port.ticks_ms = self.broker.ticks_ms
        vfs.mount(vfs.VfsLfs2(self.chip), "/f")
        self.client = Client(
            b"board", link=self.broker, clean_session=False, tx_size=256, rx_size=128,
            inflight=4, incoming=8, keepalive=0, retry_ms=1, retry_max_ms=1, give_up=2,
            version=self.version,
        )  # fmt: skip
        self.client.subscribe(b"in", self.on_message, 2, chunks=True)
        self.spool = Spool(
            self.client, "/f/s", segment=512, segments=3, head=self.head, full=self.full,
            durable=self.durable,
        )  # fmt: skip
        self.store_drop = self.spool._store.drop
        self.spool._store.drop = self.drop
        self.client.start()

    def drop(self, acked):
        """Count what is dropped at once, also when the power is cut in the middle of it."""
        self.dropping = True
        n = self.store_drop(acked)
        self.dropping = False
        self.dropped += max(n, 0)
        return n

    def on_message(self, message):
        self.pieces = (self.pieces if message.offset else b"") + message.payload
        if message.last:
            self.on_whole(self.pieces)

    def on_whole(self, n):
        if self.interrupted == n:
            self.interrupted = None
            self.again += 1
            self.handled[n] -= 1
        self.open = n
        self.handled[n] = self.handled.get(n, 0) + 1

    def publish(self, qos, topic=None):
        i = self.published
        self.published += 1
        direct = self.spool.stats.direct
        if self.spool.publish(topic or TOPICS[i & 1], payload(i), qos):
            self.accepted.add(i)
            if self.spool.stats.direct > direct:
                self.unsettled.add(i)

    def poll(self):
        self.spool.poll(1)
        self.open = None  # what was handled in this poll was answered in it
        if not self.client.pending:
            self.unsettled = set()

    def until(self, what, condition):
        for _ in range(PATIENCE):
            if condition():
                return
            self.poll()
        raise Failure(what)

    def send(self, size=0):
        self.broker.send(b"%d" % self.sent + bytes(size))
        self.sent += 1

    def all_sent(self):
        """Wait until nothing waits, on flash or past it."""
        self.until("all sent", lambda: not self.spool.pending and not self.client.pending)
        for _, topic, body in self.spool.dropped():
            i = int(body[:5])
            if topic != FORBIDDEN or body != payload(i):
                raise Failure("torn: what was set aside")
            self.aside.add(i)

    def off(self):
        """The power is gone, or switched off."""
        self.chip.dead = True
        self.interrupted = self.open or self.interrupted
        self.open = None
        self.loose |= self.unsettled
        self.unsettled = set()
        if self.spool is not None and self.spool.stats.corrupt:
            raise Failure("littlefs never leaves a torn record")
        self.spool = None
        vfs.umount("/f")

    def lives(self, what):
        """Call `what`, and return whether the power was cut meanwhile.

        Code that runs on after that gets errors from the flash.
        """
        try:
            what()
        except (PowerCut, OSError):
            if not self.chip.dead:
                raise
            return True
        return False

    def photo(self):
        """Return what the world is while the power is off, for `back_to`."""
        parts = [(of, copied(of.__dict__)) for of in (self, self.broker)]
        return parts, self.chip.image()

    def back_to(self, photo):
        """Be again as it was."""
        parts, image = photo
        for of, kept in parts:
            for name, value in kept.items():
                setattr(of, name, copied(value))
        self.chip.restore(image)

    # What happens

    def day(self):
        """Run one day of the board.

        There are readings with and without a broker, with one that keeps its answers back,
        and messages that come in, one of them in pieces while the spool is replayed; more
        than it holds; one that the broker does not take.
        """
        self.boot()
        for i in range(3):
            self.publish(1 + (i & 1))
        self.until("online", lambda: self.client.connected)
        self.send()
        self.all_sent()
        for i in range(3):
            self.publish(2 - (i & 1))
            self.all_sent()
        for i in range(6):  # more at once than the client takes
            self.publish(1 + (i & 1))
        self.all_sent()
        self.broker.acks = False
        self.send()
        for i in range(4):
            self.publish(2 - (i & 1))
            self.poll()
        for _ in range(4):
            self.poll()
        self.broker.acks = True
        self.poll()
        self.poll()
        self.broker.up = False
        for i in range(34):
            self.publish(1 + (i & 1), FORBIDDEN if i == 20 else None)
            self.poll()
        self.send(LARGE)
        self.broker.up = True
        self.all_sent()
        self.until("all received", lambda: not self.broker.outgoing)

    def after(self):
        """The next morning: it goes on working."""
        self.boot()
        self.send()
        for i in range(5):
            self.publish(1 + (i & 1))
        self.all_sent()
        self.until("all received", lambda: not self.broker.outgoing)

    # What must hold

    def check(self):
        """Count the readings and incoming messages that were not handled as they should be.

        Counts readings lost, not whole, delivered twice at QoS 2, out of order, and
        incoming messages not handled exactly once. What had gone past the flash, and was
        not acknowledged, may be lost with the power, and is counted in GONE.
        """
        seen = set()
        newest = [-1, -1]  # of each topic
        torn = twice = order = 0
        for topic, qos, body in self.broker.taken:
            i = int(body[:5])
            torn += body != payload(i) or topic != TOPICS[i & 1]
            if i in seen:
                twice += qos == 2
            else:
                order += i < newest[i & 1]
                newest[i & 1] = max(i, newest[i & 1])
            seen.add(i)
        # A segment that was being dropped when the power was cut is there or not.
        allowed = self.dropped + (MOST if self.dropping else 0)
        if self.full == "refuse" and allowed:
            raise Failure("dropped")
        if self.broker.complaints:
            raise Failure(self.broker.complaints[0])
        missing = self.accepted - seen - self.aside
        GONE[0] += len(missing & self.loose)
        lost = max(0, len(missing - self.loose) - allowed)
        once = sum(n == 1 for n in self.handled.values())
        wrong = self.sent - once + len(self.handled) - once
        return lost, torn, twice, order, wrong


def day(full, head, durable, version, cut_at, how):
    """A life with a cut.

    Returns the world without power, and whether the cut came.
    """
    random.seed(cut_at)  # the packet identifiers begin anywhere
    w = World(full, head, durable, version)
    w.chip.power_on(cut_at, how)
    cut = w.lives(w.day)
    w.off()
    return w, cut


def morning(w, cut_at=0, how=STOP):
    """The rest of a life after a cut, perhaps with a second.

    Returns whether that came.
    """
    w.chip.power_on(cut_at, how)
    cut = w.lives(w.after)
    w.off()
    if cut:
        w.chip.power_on()
        w.after()
        w.off()
    check(w)
    return cut


def check(w):
    for i, n in enumerate(w.check()):
        BROKEN[i] += n
    if any(BROKEN):
        raise Failure(f"lost, torn, twice, order, incoming: {BROKEN}")
    gc.collect()


def main():
    full, head = sys.argv[1], int(sys.argv[2])
    durable, at, step, second, version = [int(a) for a in sys.argv[3:8]]
    cuts = again = 0
    while True:
        for how in (STOP, TORN):
            name = f"{full} head {head} cut {at} {how}"
            try:
                w, cut = day(full, head, durable, version, at, how)
                if cut:
                    cuts += 1
                    night = w.photo()
                    morning(w)
                else:
                    check(w)
                again += w.again
                m = 1
                while cut and second and (at // step) % second == 0:
                    name = f"{full} head {head} cut {at} {how} then {m}"
                    w.back_to(night)
                    random.seed(m)
                    cut2 = morning(w, m, (STOP, TORN)[m & 1])
                    again += w.again
                    if not cut2:
                        break
                    cuts += 1
                    m += 1
            except Exception:
                print("FAILED", name)
                raise
        if not cut:
            break
        if at // step % 20 == 0:
            print("...", at, cuts)
        at += step
    print("SEEN", w.chip.writes, cuts, again, w.published, w.dropped, *GONE, *BROKEN)


main()
