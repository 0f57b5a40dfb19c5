"""Messages of a broker come into the log of an ingest, once and in order, in both versions."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import peer
import sizes
from brokers.fake import FakeBroker
from flatmq.properties import Properties
from flatmq_tools import broker
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.ingest import Ingest, IngestError
from packets.properties import Id, properties
from pipeline import mqtt
from pipeline.mqtt import PATIENCE, publish, receiving, until
from unit.fake_link import Bench, Clock, fake_clock

PAIRS = [("b", "1"), ("a", "2"), ("b", "3")]
CARRIED = Properties(
    PAIRS, content_type="application/senml+json", response_topic="answers",
    correlation_data=b"\0\xff", payload_format=1,
)  # fmt: skip
CASES = [(kind, version) for kind in ("mosquitto", "embedded") for version in (4, 5)]


class There:
    """A broker, and the version of MQTT that a test speaks to it."""

    def __init__(self, server: broker.Broker | FakeBroker, version: int) -> None:
        self.server = server
        self.version = version

    def ingest(self, writer: log.Writer, *filters: str, **options: Any) -> Ingest:
        return receiving(self.server, writer, *filters, version=self.version, **options)

    def publish(self, messages: Iterable[tuple[str, bytes]], *more: Any) -> None:
        """Publish them, in MQTT 5 with CARRIED."""
        carried = CARRIED if self.version == 5 else None
        publish(self.server, messages, *more, properties=carried, version=self.version)


@pytest.fixture(scope="module", params=sizes.one_each(CASES, key=lambda case: case[1]), ids=str)
def there(request: pytest.FixtureRequest) -> Iterator[There]:
    kind, version = request.param
    with mqtt.broker() if kind == "mosquitto" else broker.embedded(version=version) as made:
        yield There(made, version)


@pytest.fixture
def scripted() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made
        assert made.complaints == []


def scripted_link(clock: Clock, writer: log.Writer, *filters: str, **more: Any) -> Any:
    """An ingest on a link without a network, and what it is on."""
    bench = Bench(clock)
    worker = Ingest(writer, ("there", 1883), filters, link=bench.link, **more)
    bench.client = worker.client
    return worker, bench


def rows(writer: log.Writer, start: int = 0) -> list[dict[str, Any]]:
    found = log.read(writer.folder, start, writer.synced)
    return [row for b in found for row in b.to_pylist()]


def payloads(writer: log.Writer, start: int = 0) -> list[bytes]:
    return [m["payload"] for m in rows(writer, start)]


def test_every_qos_size_and_property(there: There, writer: log.Writer) -> None:
    ingest = there.ingest(writer, "every/#", qos=2, rx_size=16384)
    before = time.time()
    sent = [b"%d" % i + b"x" * (100_000 if i % 200 == 199 else i % 200) for i in range(600)]
    for qos in range(3):
        there.publish([(f"every/{i}", sent[i]) for i in range(qos, 600, 3)], qos)
    until(lambda: writer.synced == 600)
    ingest.stop()
    found = rows(writer)
    assert [m["offset"] for m in found] == list(range(600))
    assert {m["topic"]: m["payload"] for m in found} == {
        f"every/{i}": payload for i, payload in enumerate(sent)
    }
    names = ("content_type", "response_topic", "correlation_data", "payload_format")
    expected = (
        ["application/senml+json", "answers", b"\0\xff", 1] if there.version == 5 else [None] * 4
    )
    for m in found:
        # The embedded broker sends everything at the QoS that it has granted.
        qos = int(m["topic"].rpartition("/")[2]) % 3 if there.server.kind == "mosquitto" else 2
        assert (m["qos"], m["retain"]) == (qos, False)
        assert before - 1 < m["timestamp"].timestamp() < time.time() + 1
        assert [m[name] for name in names] == expected
        pairs = [(each["name"], each["value"]) for each in m["user_properties"] or ()]
        assert pairs == (PAIRS if there.version == 5 else [])


def test_what_comes_while_it_is_away(there: There, writer: log.Writer) -> None:
    """Retained messages come once. With other filters, what no longer matches does not come."""
    there.publish([("away/a/kept", b"retained")], 1, True)
    for known, more in ((1, range(30)), (31, range(30, 31)), (32, ())):
        ingest = there.ingest(writer, "away/a/#", client_id="away")
        until(lambda: writer.synced == known)  # noqa: B023
        ingest.stop()
        there.publish([("away/a/x", b"%d" % i) for i in more])
    other = there.ingest(writer, "away/b/#", client_id="away")
    if there.server.kind == "mosquitto":  # the embedded one does not answer UNSUBSCRIBE here
        until(lambda: not other.client.requests)
        there.publish([("away/a/x", b"unwanted")])
    there.publish([("away/b/x", b"31")])
    until(lambda: b"31" in payloads(writer))
    other.stop()
    assert payloads(writer) == [b"retained", *(b"%d" % i for i in range(32))]
    assert [m["retain"] for m in rows(writer)] == [True] + [False] * 32


def test_a_log_that_fails_ends_the_thread(there: There, writer: log.Writer) -> None:
    ingest = there.ingest(writer, "fails")
    ingest.check()
    writer.close()
    there.publish([("fails", b"")])
    until(lambda: ingest._failure)
    with pytest.raises(IngestError, match="the ingest has failed: LogError"):
        ingest.check()


def test_a_log_that_is_full_is_reported(there: There, tmp_path: Path) -> None:
    said: list[str] = []
    with log.Writer(tmp_path / "small", limit_bytes=1) as small:
        ingest = there.ingest(small, "full", say=said.append)
        there.publish([("full", b"x")])
        until(lambda: f"the log in {small.folder} is full: the broker has to wait" in said)
        small.trim(1)
        until(lambda: said[-1].startswith("receiving from "))
        ingest.stop()


def test_filters_that_fill_many_kilobytes(there: There, writer: log.Writer) -> None:
    there.ingest(writer, *(f"{'level/' * 10}{i}" for i in range(3000))).stop()


def test_a_connection_that_is_being_made_ends_too(writer: log.Writer) -> None:
    """No broker there knows of a client that has left, however long the process lives."""
    with socket.create_server((broker.LOOPBACK, 0)) as silent:
        made = Ingest(writer, silent.getsockname(), ["#"])
        made.start()
        made.background()
        end, _ = silent.accept()
        with end:
            end.settimeout(PATIENCE)
            assert end.recv(1) == b"\x10"  # CONNECT
            made.stop()
            while end.recv(1024):
                pass


def test_a_filter_that_is_refused(scripted: FakeBroker, writer: log.Writer) -> None:
    with fake_clock() as clock:
        worker, bench = scripted_link(clock, writer, "mine", "theirs")
        bench.online()
        worker.poll()
        (subscribe,) = bench.sent()
        bench.stream.incoming.append(peer.suback(subscribe.pid, 1, 0x80))
        with pytest.raises(IngestError, match="to theirs"):
            worker.poll()
    scripted.answer_with("SUBACK", 0x9E)
    with pytest.raises(IngestError, match=r"\$share/g/t \(SUBACK: reason code 0x9e, shared"):
        There(scripted, 5).ingest(writer, "$share/g/t")


def test_a_refusal_is_final_unless_the_client_was_accepted_before(
    clock: Clock, writer: log.Writer
) -> None:
    worker, bench = scripted_link(clock, writer, "t")
    bench.online(5)
    with pytest.raises(IngestError, match=r"there:1883 refuses the client: .*code 5"):
        worker.check()
    bench.online()
    bench.lose()
    bench.online(5)
    worker.check()


def test_filters_that_were_granted_before_are_tried_again(
    clock: Clock, writer: log.Writer
) -> None:
    """The broker's access control may be ill for a while. It is said once of each filter."""
    said: list[str] = []
    worker, bench = scripted_link(clock, writer, "t", "u", say=said.append)
    for answers in ([(1, 1)], [(0x80, 0x80), (0x80, 0x80), (1, 0x80), (0x80,), (1,)]):
        bench.online()
        for codes in answers:
            while not (asked := bench.sent()):
                bench.pass_time(100)
            bench.stream.incoming.append(peer.suback(asked[0].pid, *codes))
            worker.poll()
            assert worker.subscribed == (codes == answers[-1])
        bench.lose()
    ends = [text.rpartition(" to ")[2] for text in said if "refuses" in text]
    assert ends == [f"{f}, which it has granted before: trying again" for f in ("t, u", "u")]


# The connections of a process: whether the broker has the session, whether the ingest then asks,
# and whether it is answered.
LOST = [
    [(False, True, True)],
    [(False, True, False)],
    [(True, True, True)],  # there is a session, and no subscription
    [(True, False, False)],
    [(False, True, True), (True, False, False), (False, True, True)],
    [(True, False, False), (False, True, True), (False, True, False)],
]


def test_a_session_that_is_lost(writer: log.Writer) -> None:
    """The broker then has no subscription, and the SUBACK of the session before says nothing."""
    note = writer.folder / "subscribed.json"
    for process in LOST:
        with fake_clock() as clock:
            worker, bench = scripted_link(clock, writer, "t")
            for present, asks, answered in process:
                bench.online(present=present)
                worker.poll()
                asked = bench.sent()
                assert [p.first for p in asked] == [0x82] * asks
                assert worker.subscribed == note.exists() == (not asks)
                if answered:
                    bench.stream.incoming.append(peer.suback(asked[0].pid, 1))
                    worker.poll()
                    assert worker.subscribed and note.exists()
                bench.lose()


def test_a_disk_that_does_not_take_what_was_granted(writer: log.Writer) -> None:
    """Without it the next ingest would subscribe again, and get all retained messages again."""
    note = writer.folder / "subscribed.json"
    note.with_suffix(".new").mkdir()
    with fake_clock() as clock:
        bench = Bench(clock)
        worker = Ingest(writer, ("there", 1883), ["t"], link=bench.link)
        bench.client = worker.client
        bench.online()
        bench.stream.incoming.append(peer.suback(bench.sent()[0].pid, 1))
        for _ in range(2):
            with pytest.raises(OSError):
                worker.poll()
        note.with_suffix(".new").rmdir()
        worker.poll()
    assert worker.subscribed and note.exists()


def test_what_is_asked_of_the_broker(scripted: FakeBroker, writer: log.Writer) -> None:
    for expiry, asked in ((86_400, 86_400), (None, 0xFFFFFFFF)):
        There(scripted, 5).ingest(writer, "t", session_expiry=expiry, client_id="asks").stop()
        connect = [p for p in scripted.received if p.name == "CONNECT"][-1]
        assert connect.connect and not connect.connect.clean_start
        assert connect.properties.first(Id.SESSION_EXPIRY) == asked
        assert connect.properties.first(Id.TOPIC_ALIAS_MAXIMUM, 0) == 0
        assert connect.properties.first(Id.REQUEST_PROBLEM_INFORMATION) == 0
    with pytest.raises(ValueError, match=r"session_expiry must be None in MQTT 3\.1\.1, not 5"):
        Ingest(writer, ("b", 1), ["t"], session_expiry=5)


def test_messages_wait_for_the_session_expiry_and_no_longer(
    scripted: FakeBroker, writer: log.Writer
) -> None:
    said: list[str] = []
    for away, session_expiry in ((60, None), (3601, None), (0, 60)):
        # The broker may keep the session for less, and says so.
        scripted.announces = properties([(Id.SESSION_EXPIRY, 60)] if session_expiry else [])
        before = writer.next_offset
        ingest = There(scripted, 5).ingest(
            writer, "t", session_expiry=3600, client_id="away", say=said.append
        )
        assert ingest.session_expiry == session_expiry
        scripted.publish(b"t", b"now", 1)
        until(lambda: b"now" in payloads(writer, before))  # noqa: B023
        ingest.stop()
        assert scripted.until(lambda: not scripted.online(b"away"), PATIENCE)
        scripted.publish(b"t", b"%d" % away, 1)
        scripted.pass_time(away)
    assert payloads(writer) == [b"now", b"60", b"now", b"now"], "what waited for an hour is lost"
    (text,) = said
    assert text.startswith(f"{scripted.address} has lost the session of away")


def test_no_more_in_flight_than_the_ingest_takes(scripted: FakeBroker, writer: log.Writer) -> None:
    """An acknowledgement gives its place back, and leaves after the sync."""
    ingest = There(scripted, 5).ingest(writer, "t", incoming=5, delay_ms=0)
    for i in range(200):
        scripted.publish(b"t", b"%d" % i, 1 + i % 2)
    until(lambda: writer.synced == 200)
    ingest.stop()
    assert list(map(int, payloads(writer))) == list(range(200))


def test_the_ingest_takes_no_memory_for_pandas() -> None:
    """Programs that use it afterwards get it."""
    program = (
        "import sys; from flatmq_tools.pipeline import arrow; arrow.load()\n"
        "from flatmq_tools.pipeline import landing\n"
        "from flatmq_tools.pipeline.report import command\n"
        "import pyarrow as pa; assert 'pandas' not in sys.modules\n"
        "assert pa.table({'a': [1, 2]}).to_pandas()['a'].sum() == 3\n"
        "import pandas; assert pa.array(pandas.Series([None, 'x'])).null_count == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
