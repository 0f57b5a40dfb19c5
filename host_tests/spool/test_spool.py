"""A spool in an ordinary folder, against a model.

There are reboots at any time, garbage behind what was written, a broker that comes and goes; and
what publish refuses.
"""

import errno
import itertools
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import flatmq.journal
import flatmq.port
import flatmq.store
import sizes
from flatmq import Client, flash
from flatmq.spool import Spool
from spool.board import Board
from spool.model_broker import Broker
from unit.test_interrupts import CtrlC, at_each_line

pytestmark = pytest.mark.usefixtures("ticking")

TOPICS = (b"t", b"a/longer/topic")
PATIENCE = 2000  # polls
ACCESS = flash.access
EVER = 1 << 30


def _payload(i: int, size: int) -> bytes:
    return b"%05d" % i + bytes((i + k) % 256 for k in range(size))


class ASpool(RuleBasedStateMachine):
    """Publishes, polls and reboots; the broker keeps its session throughout."""

    @initialize(
        version=st.sampled_from([4, 5]),
        full=st.sampled_from(["drop", "refuse"]),
        head=st.sampled_from([0, 64, 128]),
        inflight=st.integers(1, 6),
        durable=st.booleans(),
    )
    def begin(self, version: int, full: str, head: int, inflight: int, durable: bool) -> None:
        self.version = version
        self.folder = Path(tempfile.mkdtemp(prefix="flatmq-spool-"))
        self.durable = durable
        self.unsettled: set[int] = set()  # sent past the flash, and not all acknowledged since
        self.loose: set[int] = set()  # such readings when it rebooted
        self.full, self.head, self.inflight = full, head, inflight
        self.broker = Broker(self.version)
        self.clock = mock.patch.object(flatmq.port, "ticks_ms", self.broker.ticks_ms)
        self.clock.start()
        self.sizes: list[int] = []
        self.accepted: set[int] = set()
        self.dropped = 0
        self._boot()

    def _boot(self) -> None:
        self.broker.plug()
        self.client = Client(
            b"m", link=self.broker, clean_session=False, tx_size=512, inflight=self.inflight,
            keepalive=0, retry_ms=1, retry_max_ms=1, version=self.version,
        )  # fmt: skip
        self.spool = Spool(
            self.client, str(self.folder / "s"), segment=512, segments=3, head=self.head,
            full=self.full, durable=self.durable,
        )  # fmt: skip
        self.client.start()

    def _poll(self) -> None:
        self.spool.poll(1)
        if not self.client.pending:
            self.unsettled.clear()

    def _gone(self) -> None:
        self.dropped += self.spool.stats.dropped
        self.loose |= self.unsettled
        self.unsettled.clear()
        self.spool.close()

    @rule(qos=st.integers(1, 2), size=st.integers(0, 60), times=st.integers(1, 8))
    def publish(self, qos: int, size: int, times: int) -> None:
        for _ in range(times):
            i = len(self.sizes)
            self.sizes.append(size)
            direct = self.spool.stats.direct
            if self.spool.publish(TOPICS[i & 1], _payload(i, size), qos):
                self.accepted.add(i)
                if self.spool.stats.direct > direct:
                    assert not self.durable
                    self.unsettled.add(i)
            else:  # of each segment something may be on its way
                assert self.full == "refuse" or self.spool._to - self.spool._from >= 3

    @rule(times=st.integers(1, 12))
    def poll(self, times: int) -> None:
        for _ in range(times):
            self._poll()

    @rule(up=st.booleans(), acks=st.booleans())
    def weather(self, up: bool, acks: bool) -> None:
        self.broker.up, self.broker.acks = up, acks

    @rule()
    def reboot(self) -> None:
        self._gone()
        self._boot()

    @rule(garbage=st.binary(min_size=1, max_size=40), where=st.sampled_from(["segment", "head"]))
    def reboot_after_a_torn_write(self, garbage: bytes, where: str) -> None:
        self._gone()
        files = sorted((self.folder / "s").glob("*.seg"))
        if where == "head":
            files = list((self.folder / "s").glob("head"))
        if files:
            with files[-1].open("ab") as f:
                f.write(garbage)
        (self.folder / "s" / "notes.txt").write_text("not ours")
        self._boot()
        assert (self.folder / "s" / "notes.txt").exists()

    @invariant()
    def whole_once_and_in_order(self) -> None:
        if not hasattr(self, "broker"):
            return
        seen: dict[int, int] = {}
        for topic, qos, body in self.broker.taken:
            i = int(body[:5])
            assert body == _payload(i, self.sizes[i]), "torn"
            assert topic == TOPICS[i & 1]
            if i not in seen:
                assert not seen or i > max(seen), "order"
            assert not (qos == 2 and i in seen), "twice at QoS 2"
            seen[i] = qos

    @invariant()
    def bounded(self) -> None:
        if hasattr(self, "spool"):
            files = list((self.folder / "s").glob("*.seg"))
            assert len(files) <= 3
            sizes = sum(f.stat().st_size for f in files)
            assert sizes <= 3 * (512 + 40)  # 40: what a torn write added

    def teardown(self) -> None:
        if not hasattr(self, "spool"):
            return
        try:
            self.broker.up = self.broker.acks = True
            for _ in range(PATIENCE):
                if not (self.spool.pending or self.client.pending):
                    break
                self._poll()
            assert not (self.spool.pending or self.client.pending)
            self._gone()
            taken = {int(body[:5]) for _, _, body in self.broker.taken}
            lost = self.accepted - taken - self.loose
            assert len(lost) <= self.dropped, f"{sorted(lost)}, dropped {self.dropped}"
            assert self.full == "drop" or not lost
            assert self.broker.complaints == []
        finally:
            self.clock.stop()
            shutil.rmtree(self.folder)


def test_against_the_model() -> None:
    searching = settings().max_examples > 1000
    examples = settings().max_examples if searching else 300 if sizes.whole() else 60
    run_state_machine_as_test(
        ASpool, settings=settings(max_examples=examples, stateful_step_count=40)
    )


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(Client(b"c", tx_size=300, link=Broker()), str(tmp_path / "s"), segment=512)


@pytest.mark.parametrize(("topic", "payload", "qos", "text"), [
    (b"t", bytes(600), 1, "record must be at most segment, 512 bytes, not 610"),
    (b"t", bytes(400), 1, "packet must be at most tx_size, 300 bytes, not 408"),
    (b"t", bytes(293), 1, "packet must be at most tx_size, 300 bytes, not 301"),
    (b"t", b"", 0, "qos must be 1 to 2, not 0"),
    (b"t/#", b"", 1, "topic name"),
])  # fmt: skip
def test_what_never_fits_is_named(
    spool: Spool, topic: bytes, payload: bytes, qos: int, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        spool.publish(topic, payload, qos)
    assert spool.pending == 0


def test_a_payload_that_is_no_bytes_is_named(spool: Spool) -> None:
    with pytest.raises(TypeError, match="payload must be bytes or str, not int"):
        spool.publish(b"t", 5)  # type: ignore[arg-type]
    assert spool.publish("t", "text")
    assert spool.pending == 1


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("size", [*range(120, 135), *range(16384, 16388)])
def test_the_largest_record_is_the_one_that_the_client_takes(
    tmp_path: Path, size: int, version: int
) -> None:
    board = Board(tmp_path, version, segment=20000)
    board.client_options["tx_size"] = size
    board.boot()
    largest = next(n for n in range(size, 0, -1) if _accepts(board.spool, n))
    with pytest.raises(ValueError, match="tx_size"):
        board.client.publish(b"t", bytes(largest + 1), 1)
    board.poll()
    assert [len(body) for _, _, body in board.broker.taken] == [largest]
    assert (board.spool.pending, board.spool.stats.dropped) == (0, 0)


def _accepts(spool: Spool, n: int) -> bool:
    try:
        return spool.publish(b"t", bytes(n))
    except ValueError:
        return False


@pytest.mark.parametrize("client", [None, b"id"])
def test_what_is_no_client_is_named(client: object, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="client must be a Client, not "):
        Spool(client, str(tmp_path))  # type: ignore[arg-type]


def test_a_client_that_has_begun_its_work_is_refused(tmp_path: Path) -> None:
    client = Client(b"c", link=Broker())
    client.publish(b"t", b"1", 1)
    with pytest.raises(ValueError, match="before the first publish"):
        Spool(client, str(tmp_path))
    client = Client(b"c", link=Broker())
    client.start()
    with pytest.raises(ValueError, match=r"before client\.start"):
        Spool(client, str(tmp_path))


@pytest.mark.parametrize("version", [4, 5])
def test_no_other_message_has_an_identifier_of_a_record(tmp_path: Path, version: int) -> None:
    """They survive a reboot, so that another message would be taken for a repetition."""
    with mock.patch("random.getrandbits", return_value=32765):
        board = Board(tmp_path, version)
    board.publish(0)
    assert [board.client.publish(b"t", b"", 1) for _ in range(4)] == [32766, 32767, 1, 2]
    board.poll()
    assert len(board.broker.taken) == 5
    assert (board.spool.pending, board.client.pending) == (0, 0)


class _Watched(Broker):
    """Keeps, in `again`, each PUBLISH that comes a second time without DUP."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[bytes] = set()
        self.again: list[bytes] = []

    def write(self, buf: bytearray, off: int, n: int) -> int | None:
        done = super().write(buf, off, n)
        rest = bytes(buf[off : off + (done or 0)])
        while rest:
            end = 2 + rest[1]
            if rest[0] >> 4 == 3:
                if rest[2:end] in self.seen and not rest[0] & 8:
                    self.again.append(rest[2:end])
                self.seen.add(rest[2:end])
            rest = rest[end:]
        return done


@pytest.mark.parametrize("polls", range(1, 30))
def test_after_a_reboot_what_was_sent_is_sent_with_dup(tmp_path: Path, polls: int) -> None:
    """Also the last of what was in flight when a message before it was acknowledged early."""
    broker = _Watched()
    board = Board(tmp_path, broker=broker)
    for i in range(12):
        board.publish(i, qos=2 - i % 2)
    board.poll(polls)
    board.boot()
    board.poll()
    assert broker.again == []
    assert board.spool.pending == 0


def test_a_gate_that_is_set_already_is_not_lost_silently(tmp_path: Path) -> None:
    client = Client(b"c", link=Broker(), clean_session=False)
    client.gate = lambda same: None
    with pytest.raises(ValueError, match=r"client\.gate must be None, not <function"):
        Spool(client, str(tmp_path))
    client = Client(b"c", link=Broker())
    client.gate = gate = lambda same: None
    Spool(client, str(tmp_path))  # has nothing to save there
    assert client.gate is gate


def test_a_full_flash_gives_back_the_room_of_settled_records(tmp_path: Path) -> None:
    board = Board(tmp_path, head=128)

    def write(*arguments: Any) -> None:
        if list(tmp_path.rglob("*.seg")):
            raise OSError(errno.ENOSPC, "no space")
        flash.write(*arguments)

    board.publish(*range(30))
    board.poll()
    assert (board.spool.pending, len(list(tmp_path.rglob("*.seg")))) == (0, 1)
    with mock.patch("flatmq.store.write", write):
        board.publish(30)
    board.poll()
    assert board.got == list(range(31))
    assert (board.spool.stats.refused, board.spool.stats.dropped) == (0, 0)


def test_a_record_that_rots_in_a_segment_is_counted_and_passed_over(tmp_path: Path) -> None:
    board = Board(tmp_path, segment=512, head=0)
    board.publish(*range(40))
    board.spool.close()
    rotten = sorted(tmp_path.rglob("*.seg"))[1]
    data = bytearray(rotten.read_bytes())
    data[100] ^= 4
    rotten.write_bytes(data)
    board.boot()
    board.poll()
    assert (board.spool.pending, board.spool.stats.corrupt) == (0, 1)
    assert board.got == sorted(board.got)
    assert 40 - 512 // 35 <= len(board.got) < 40
    assert board.got[-1] == 39


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """With durable=False, and online."""
    board = Board(tmp_path, durable=False)
    board.poll(20)
    assert board.client.connected
    return board


@pytest.mark.parametrize("qos", [1, 2])
def test_not_durable_with_a_broker_nothing_touches_the_flash(board: Board, qos: int) -> None:
    before = board.flash()
    for n in range(50):
        board.publish(n, qos=qos)
        assert (board.spool.pending, board.client.pending) == (0, 1)
        board.poll(20)
    assert board.flash() == before
    assert board.got == list(range(50))
    assert (board.spool.stats.direct, board.spool.stats.appended) == (50, 0)


def test_a_large_message_comes_in_pieces_while_the_spool_is_replayed(board: Board) -> None:
    """Neither holds the other up.

    Acknowledgements of records come between its pieces, and its own leaves between records.
    """
    large = bytes(i & 255 for i in range(3000))
    whole: list[bytes] = []
    waiting: list[int] = []  # records, at each piece
    data = bytearray()

    def take(message) -> None:
        assert message.offset == len(data)
        waiting.append(board.spool.pending)
        message.write_to(pieces)
        if message.last:
            whole.append(bytes(data))

    class Pieces:
        def write(self, piece: bytes) -> int:
            data.extend(piece)
            return len(piece)

    pieces = Pieces()
    board.client.subscribe(b"in", take, qos=2, chunks=True)
    board.poll(20)
    board.broker.up = False
    board.poll(20)
    board.publish(*range(40), qos=2)
    board.broker.send(large)
    losses = board.client.stats.losses
    board.broker.up = True
    board.poll(400)
    assert whole == [large]
    assert waiting[0] > 30, "it came after the replay"
    assert board.got == list(range(40))
    assert (board.spool.pending, board.broker.outgoing) == (0, [])
    assert (board.client.stats.losses, board.client.stats.skipped) == (losses, 0)


def test_a_broker_without_qos_2_gets_older_records_at_qos_1(board: Board) -> None:
    board.broker.up = False
    board.poll(20)
    board.publish(1, 2, 3, qos=2)
    board.client_options["max_qos"] = 1
    board.boot()
    with pytest.raises(ValueError, match="qos must be 1 to 1, not 2"):
        board.publish(4, qos=2)
    board.publish(5)
    board.poll(20)
    assert [(int(body[:5]), qos) for _, qos, body in board.broker.taken] == [
        (1, 1), (2, 1), (3, 1), (5, 1)
    ]  # fmt: skip


def test_a_spool_needs_qos_1(tmp_path: Path) -> None:
    client = Client(b"b", "127.0.0.1", max_qos=0)
    with pytest.raises(ValueError, match="max_qos with a Spool must be 1 to 2, not 0"):
        Spool(client, str(tmp_path / "s"))


class _Full(list):
    """A list for which there is no memory, once."""

    short = True

    def append(self, item: Any) -> None:
        if self.short:
            self.short = False
            raise MemoryError("memory allocation failed")
        super().append(item)


def _all_arrive(board: Board) -> None:
    board.broker.up = True
    board.poll()
    assert list(dict.fromkeys(board.got)) == list(range(40))
    assert board.spool.pending == board.spool.stats.corrupt == 0


@pytest.fixture
def offline(tmp_path: Path) -> Board:
    """A board whose records go to segments, and stay there."""
    board = Board(tmp_path, segment=512, head=0)
    board.broker.up = False
    board.publish(*range(20))
    return board


class _Flash:
    """A file system that fails to "open" or "read" files whose names end in `name`.

    `fails` is how often. A file that could not be read once cannot be read until it is opened
    again.
    """

    def __init__(self, what: str, name: str) -> None:
        self.what = what
        self.name = name
        self.fails = 0

    def access(self, path: str, mode: str) -> Any:
        if self.what == "open":
            self.check(path)
            return ACCESS(path, mode)
        file = ACCESS(path, mode)
        dead: list[Exception] = []

        def alive() -> None:
            try:
                self.check(path)
            except OSError as e:
                dead.append(e)
            if dead:
                raise dead[0]

        return SimpleNamespace(
            read=lambda: alive() or file.read(),
            readinto=lambda buf: alive() or file.readinto(buf),
            **{name: getattr(file, name) for name in ("seek", "write", "fileno", "close")},
        )

    def check(self, path: str) -> None:
        if self.fails and path.endswith(self.name):
            self.fails -= 1
            raise OSError(errno.EIO, "the card is out")

    def polls(self, board: Board, times: int = 100) -> int:
        """Poll, and return how often that failed."""
        count = 0
        for _ in range(times):
            try:
                board.spool.poll(1)
            except OSError:
                count += 1
        return count


@pytest.fixture
def failing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> _Flash:
    made = _Flash(*request.param)
    for module in (flatmq.store, flatmq.journal, flash):
        monkeypatch.setattr(module, "access", made.access)
    return made


ways = pytest.mark.parametrize(
    "failing", [("open", ".seg"), ("read", ".seg")], ids=["open", "read"], indirect=True
)


def test_a_segment_that_cannot_be_opened_for_lack_of_memory_is_read_later(offline: Board) -> None:
    offline.publish(*range(20, 40))
    offline.broker.up = True
    error = MemoryError("memory allocation failed")
    with mock.patch.object(flatmq.store, "access", side_effect=error), pytest.raises(MemoryError):
        offline.poll()
    _all_arrive(offline)


@ways
def test_a_segment_that_cannot_be_read_now_is_read_later(failing: _Flash, tmp_path: Path) -> None:
    """Meanwhile the connection lives, and what comes in is handled."""
    taken: list[bytes] = []
    board = Board(tmp_path, on=lambda m: taken.append(m.payload), segment=512, head=0)
    board.broker.up = False
    board.publish(*range(40))
    failing.fails = EVER
    board.broker.up = True
    board.broker.send(b"in")
    assert failing.polls(board) > 50
    assert taken == [b"in"]
    failing.fails = 0
    _all_arrive(board)


@pytest.mark.parametrize("polls", [0, 10, 14])
@ways
def test_a_segment_that_cannot_be_read_at_the_start_is_read_later(
    failing: _Flash, polls: int, tmp_path: Path
) -> None:
    """Even if others are read and removed, and the board starts again."""
    board = Board(tmp_path, segment=512, head=0)
    board.publish(*range(40), qos=2)
    board.poll(polls)  # with 14, some are past PUBREC
    board.spool.close()
    failing.name = sorted(tmp_path.rglob("*.seg"))[0].name
    failing.fails = EVER
    for _ in range(2):
        board.boot()
        failing.polls(board)
        board.spool.close()
    failing.fails = 0
    board.boot()
    _all_arrive(board)
    assert len(board.got) == 40
    assert board.broker.complaints == []


@pytest.mark.parametrize("polls", range(8, 24))
@ways
def test_what_is_past_pubrec_and_read_late_comes_once(
    failing: _Flash, polls: int, tmp_path: Path
) -> None:
    """The broker may have released it: only PUBREL may be sent again."""
    board = Board(tmp_path, segment=512, head=0)
    board.publish(*range(40), qos=2)
    board.poll(polls)
    board.spool.close()
    failing.name = sorted(tmp_path.rglob("*.seg"))[0].name
    failing.fails = 5  # three times as it starts, and then
    board.boot()
    failing.polls(board, 300)
    assert (failing.fails, board.got) == (0, list(range(40)))
    assert (board.spool.pending, board.broker.complaints) == (0, [])


@pytest.mark.parametrize(
    "failing",
    [(what, name) for name in ("head", "journal", ".seg") for what in ("open", "read")],
    ids=" ".join,
    indirect=True,
)
def test_the_newest_files_are_read_again_at_the_start(failing: _Flash, tmp_path: Path) -> None:
    """A spool that began without them would write over them, or send records again."""
    board = Board(tmp_path, segment=4096, head=128 if failing.name == "head" else 0)
    board.broker.acks = False
    board.publish(*range(3), qos=2)
    board.poll(20)
    board.spool.close()
    failing.fails = 2
    board.boot()
    board.poll()
    assert (board.got, board.spool.pending, board.spool.stats.corrupt) == ([0, 1, 2], 0, 0)
    assert (failing.fails, board.broker.complaints) == (0, [])


@pytest.mark.parametrize("failing", [("open", "head")], ids=["open"], indirect=True)
def test_a_head_that_is_made_again_keeps_its_records(failing: _Flash, tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.broker.up = False
    board.publish(0, 1)
    failing.fails = 1
    errors = [OSError(errno.EIO, "write")]

    def write(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        flash.write(*arguments)

    with mock.patch.object(flatmq.store, "write", write):
        board.publish(2)
    board.boot()
    board.poll()
    assert (failing.fails, board.got, board.spool.pending) == (0, [0, 1, 2], 0)


@ways
def test_a_segment_that_can_never_be_read_is_given_up_for_the_others(
    failing: _Flash, tmp_path: Path
) -> None:
    board = Board(tmp_path, segment=512, head=0)
    board.broker.up = False
    board.publish(*range(40))
    failing.name = sorted(tmp_path.rglob("*.seg"))[1].name
    failing.fails = EVER
    board.broker.up = True
    assert failing.polls(board, 3000) > 500
    assert (board.spool.pending, board.spool.stats.corrupt) == (0, 1)
    assert board.got[0] == 0
    assert board.got[-1] == 39
    assert 40 - 512 // 35 <= len(board.got) < 40


@ways
def test_records_past_pubrec_that_can_never_be_read_hold_up_no_other(
    failing: _Flash, tmp_path: Path
) -> None:
    board = Board(tmp_path, segment=512, head=0)
    board.publish(*range(40), qos=2)
    board.poll(14)
    board.spool.close()
    failing.name = sorted(tmp_path.rglob("*.seg"))[0].name
    failing.fails = EVER
    board.boot()
    failing.polls(board, 1500)
    board.publish(*range(40, 60), qos=2)
    board.poll()
    assert board.spool.pending == 0
    assert set(range(14, 60)) <= set(board.got)


def test_a_segment_whose_removal_was_reported_as_failed_is_gone(
    offline: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = flatmq.store.os.remove
    failures = [OSError(errno.EIO, "the card")]

    def removes(path: str) -> None:
        remove(path)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(flatmq.store.os, "remove", removes)
    offline.broker.up = True
    with pytest.raises(OSError, match="the card"):
        offline.poll()
    offline.publish(*range(20, 40))
    _all_arrive(offline)


@pytest.mark.parametrize("name", ["_firsts", "_ends"])
def test_a_segment_that_cannot_be_begun_for_lack_of_memory_is_begun_later(
    name: str, offline: Board
) -> None:
    """Nothing is appended to it that would be looked for in the segment before."""
    store = offline.spool._store
    setattr(store, name, _Full(getattr(store, name)))
    for n in range(20, 40):
        try:
            offline.publish(n)
        except MemoryError:
            offline.publish(n)
    assert not getattr(store, name).short
    _all_arrive(offline)


@pytest.mark.parametrize(("head", "qos"), [(0, 1), (128, 2)])
def test_ctrl_c_anywhere_loses_and_doubles_nothing(
    head: int, qos: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the program goes on, with the same spool."""
    monkeypatch.setattr(flash.os, "fsync", lambda fd: None)  # which would take a minute
    lives = itertools.count()

    def life(ctrl_c: CtrlC) -> bool:
        folder = tmp_path / str(next(lives))
        folder.mkdir()
        board = Board(folder, head=head, segment=512, segments=4)
        board.poll(8)
        accepted = []
        interrupted = False
        for n in range(24):
            board.broker.acks = not 8 <= n < 16
            try:
                with ctrl_c:
                    board.publish(n, qos=qos)
                    accepted.append(n)
                    board.spool.poll(1)
            except KeyboardInterrupt:
                interrupted = True
        board.poll(40)
        got = list(dict.fromkeys(board.got))
        assert set(accepted) <= set(got)
        assert got == sorted(got)
        assert qos == 1 or board.got == got
        assert (board.spool.pending, board.broker.complaints) == (0, [])
        board.spool.close()
        return interrupted

    at_each_line(life, "spool", "store", "journal")
