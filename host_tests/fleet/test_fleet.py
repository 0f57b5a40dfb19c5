"""`flatmq fleet`: what it says that it did is what an independent subscriber saw."""

import resource
import socket
import time
from collections import Counter
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from click.testing import Result

import sizes
import typed_command
from conftest import BROKERS, SharedBrokers
from flatmq_tools import broker as brokers
from flatmq_tools import fleet as fleets
from flatmq_tools import senml
from flatmq_tools.errors import ToolError
from flatmq_tools.fleet import Settings, compare, limits, plan, truth
from flatmq_tools.fleet.fleet import Fleet
from observer import Observer

DEADLINE = 20.0  # seconds
TROUBLED = plan.Troubles(
    lost=0.05, duplicated=0.05, reordered=0.03, drop_outs=6, reboots=6, silent=0.2, clocks=0.2
)


class Subscriber(Observer):
    """An independent client that keeps what the boards of a prefix send."""

    def __init__(self, target: brokers.Broker, prefix: str) -> None:
        self.packs: list[tuple[str, int, int, float, float]] = []  # device, boot, seq, time, now
        self.statuses: dict[str, list[str]] = {}
        self._prefix = prefix
        self._payloads: set[bytes] = set()
        topics = "dev/+/telemetry", "dev/+/status"
        super().__init__(target.host, target.port, *topics, name=f"sees-{prefix}")

    def _take(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        _, device, what = message.topic.split("/")
        if not device.startswith(self._prefix) or message.retain:
            return
        if what == "status":
            self.statuses.setdefault(device, []).append(message.payload.decode())
            return
        if message.dup and message.payload in self._payloads:
            return  # the broker says that it delivers it again
        self._payloads.add(message.payload)
        boot, seq, reading = senml.resolve(message.payload)
        assert (boot.name, seq.name) == (f"{device}/boot", f"{device}/seq")
        assert (reading.name, reading.unit) == (f"{device}/chip/temp", "Cel")
        assert isinstance(boot.value, int) and isinstance(seq.value, int)
        self.packs.append((device, boot.value, seq.value, reading.time, time.time()))

    def wait(self, packs: int, statuses: int) -> None:
        """Wait until so many have come."""
        self.until(
            lambda: len(self.packs) >= packs and sum(map(len, self.statuses.values())) >= statuses
        )

    @property
    def seen(self) -> dict[compare.Key, compare.Seen]:
        return compare.count((device, boot, seq) for device, boot, seq, _, _ in self.packs)


def messages(boots: list[truth.Boot]) -> int:
    """Packs that reach a subscriber when nothing but the plan goes wrong."""
    return sum(boot.published + len(boot.duplicated) for boot in boots)


def statuses(boots: list[truth.Boot]) -> int:
    """Status messages of boards and, as their wills, of the broker."""
    return sum(boot.connects + boot.wills + (boot.end == truth.END) for boot in boots)


def run(*arguments: object) -> Result:
    return typed_command.flatmq("fleet", *arguments)


def troubled(target: brokers.Broker, prefix: str, *more: object) -> Result:
    options = []
    for name, value in vars(TROUBLED).items():
        options += ["--" + name.replace("_", "-"), value]
    return run("--devices", 40, "--rate", 10, "--seconds", 3, "--prefix", prefix, *options, *more,
               target.address)  # fmt: skip


@pytest.mark.parametrize("kind", sizes.sample(BROKERS, 1))
def test_the_truth_is_what_a_subscriber_saw(
    kind: str, shared_brokers: SharedBrokers, tmp_path: Path
) -> None:
    target = shared_brokers.get(kind, "shared")
    path = tmp_path / "truth.jsonl"
    prefix = f"truth-{kind}"
    with Subscriber(target, prefix) as observer:
        done = troubled(target, prefix, "--seed", 7, "--truth", path)
        assert done.exit_code == 0, done.output
        boots = truth.read(path)
        observer.wait(messages(boots), statuses(boots))
    total = truth.summary(boots)
    # Each trouble was there, or its count would prove nothing.
    for name in ("lost", "duplicated", "reordered", "drop_outs", "reboots", "dead", "stuck"):
        assert getattr(total, name) > 0, (name, total)
    assert total.losses == total.again == total.unacknowledged == total.no_room == 0
    assert total.readings == total.published + total.lost
    assert total.acknowledged == total.published
    assert compare.differences(boots, observer.seen) == []
    assert len(observer.packs) == messages(boots)

    by_device: dict[str, list[truth.Boot]] = {}
    for boot in boots:
        by_device.setdefault(boot.device, []).append(boot)
    assert by_device.keys() == observer.statuses.keys()
    for device, its in by_device.items():
        told = Counter(observer.statuses[device])
        # The will of each connection that was cut, and of no other.
        assert told["offline"] == sum(boot.wills for boot in its), device
        assert told["online"] == sum(boot.connects for boot in its), device
        assert told["asleep"] == (its[-1].end == truth.END), device
    last = {device: its[-1].status for device, its in by_device.items()}
    assert {device: told[-1] for device, told in observer.statuses.items()} == last


def test_clocks_are_off_by_what_the_truth_says(near: brokers.Broker, tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    with Subscriber(near, "clock") as observer:
        done = run("--devices", 12, "--rate", 5, "--seconds", 1, "--prefix", "clock", "--calm",
                   "--clocks", 0.5, "--seed", 3, "--truth", path, near.address)  # fmt: skip
        assert done.exit_code == 0, done.output
        boots = truth.read(path)
        observer.wait(60, 24)
    clocks = {boot.device: boot.clock for boot in boots}
    assert 0 in clocks.values() and len(set(clocks.values())) > 1
    assert len(observer.packs) == 60
    for device, _, _, told, came in observer.packs:
        delay = came - told + clocks[device]
        assert -0.1 < delay < DEADLINE, (device, delay)


def _plan(boots: list[truth.Boot]) -> list[dict[str, object]]:
    timeless = []
    for boot in boots:
        fields = dict(vars(boot))
        del fields["began"], fields["ended"]
        timeless.append(fields)
    return timeless


def test_a_seed_has_the_same_again(near: brokers.Broker, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "two", "three")]
    for path, seed in zip(paths, (5, 5, 6), strict=True):
        done = troubled(near, "same", "--seed", seed, "--truth", path, "--rate", 30,
                        "--seconds", 1.5, "--drop-outs", 1)  # fmt: skip
        assert done.exit_code == 0, done.output
    one, two, three = (_plan(truth.read(path)) for path in paths)
    assert one == two
    assert one != three


def test_what_is_acknowledged_outlives_the_broker(tmp_path: Path) -> None:
    """Acknowledged readings arrive although the broker is killed twice.

    It comes back each time, and once it answered nothing before. What may have arrived twice
    is named.
    """
    target = brokers.mosquitto(persistence=True, extra="max_queued_messages 0")
    settings = Settings(30, 10, 6, 1, "kill")
    fleet = Fleet(target.host, target.port, settings)
    kills = [0.25, 0.5, 0.65]

    def show(what: str, share: float) -> None:
        if what == "publishing" and kills and share >= kills[0]:
            kills.pop(0)
            if kills:
                # What it acknowledged last is in its file once it answers: see docs/brokers.md.
                _ping(target)
            if len(kills) == 1:
                target.freeze()
            else:
                target.restart()

    with target, Subscriber(target, "kill") as observer:
        fleet.run(show)
        assert fleet.complete
        boots = fleet.boots
        # Their number says nothing: some that were sent again have come twice.
        observer.until(lambda: not compare.differences(boots, observer.seen))
        total = truth.summary(boots)
        assert not kills and total.losses >= 2 * 30
        assert total.again > 0
        assert total.readings == 30 * 60 == total.published + total.no_room
        assert total.acknowledged == total.published
        assert compare.differences(boots, observer.seen) == []


def _ping(target: brokers.Broker) -> None:
    """Answers of the broker, in so many turns of its loop that nothing is left to be read.

    It reads a packet of each connection in a turn, and on a busy machine several are waiting.
    """
    with socket.create_connection((target.host, target.port), DEADLINE) as sock:
        connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04ping"
        for packet, answer in ((connect, 4), *[(b"\xc0\x00", 2)] * 20):
            sock.sendall(packet)
            with sock.makefile("rb") as file:
                assert len(file.read(answer)) == answer


def test_a_board_that_cannot_be_told_is_not_complete(tmp_path: Path) -> None:
    """The fleet ends by itself, and says so, when the broker goes permanently.

    It keeps what it knows.
    """
    target = brokers.mosquitto()
    fleet = Fleet(target.host, target.port, Settings(5, 10, 1, 1, "gone", grace=1.0))

    def show(what: str, share: float) -> None:
        if what == "publishing" and share >= 0.4:
            target.kill()

    with target:
        fleet.run(show)
    total = truth.summary(fleet.boots)
    assert not fleet.complete
    assert 0 < total.acknowledged < total.published <= total.readings == 50
    assert total.unacknowledged == total.published - total.acknowledged


def test_a_fleet_that_is_stopped_says_so(
    monkeypatch: pytest.MonkeyPatch, near: brokers.Broker
) -> None:
    """It has acknowledged all that it published until then."""
    monkeypatch.setattr(fleets, "_shown", lambda fleet, console: None)
    done = run("--devices", 3, "--seconds", 60, near.address)
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "incomplete: it was stopped before its end"


def test_refusals_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with brokers.mosquitto(users={"alice": "s3cret"}) as target:
        done = run("--devices", 3, "--seconds", 1, target.address)
        assert done.exit_code == 1
        assert "0 of 3 boards came online: CONNACK: return code 5" in done.output
        monkeypatch.setenv("FLATMQ_PASSWORD", "s3cret")
        done = run("--devices", 3, "--seconds", 1, "--user", "alice", target.address)
        assert done.exit_code == 0, done.output
    assert run("--devices", 3, "127.0.0.1:1").output.splitlines() == [
        "Error: no broker answers at 127.0.0.1:1"
    ]
    with pytest.raises(ToolError, match="not one reading"):
        Fleet("127.0.0.1", 1, Settings(1, 0.1, 5))


@pytest.mark.parametrize(
    "options",
    [("--prefix", "a/#"), ("--prefix", ""), ("--prefix", "ä b"), ("--prefix", "x" * 70_000),
     ("--rate", "nan"), ("--lost", "nan"), ("--drop-outs", "nan"), ("--reboots", "inf"),
     ("--truth", "/proc/there/truth"), ("--user", "\udcff")],
    ids=lambda options: " ".join(options)[:20],
)  # fmt: skip
def test_a_wrong_option_is_a_sentence_before_it_runs(
    options: tuple[str, str], near: brokers.Broker
) -> None:
    done = run("--devices", 1, "--seconds", 1, *options, near.address)
    assert done.exit_code
    assert done.output.splitlines()[-1].startswith("Error: ")
    assert "boards to" not in done.output


def test_open_files_are_allowed_or_their_number_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: asked.append(limit))
    limits.raise_open_files(900)
    assert asked == []
    limits.raise_open_files(3000)
    assert asked == [(3064, 4096)]
    with pytest.raises(ToolError, match=r"need 5,064 open files, and 4,096 .* at most 4,032"):
        limits.raise_open_files(5000)


def test_troubles_are_as_frequent_as_asked_for() -> None:
    """By law of large numbers, with seeds that are fixed."""
    troubles = plan.Troubles(
        lost=0.02, duplicated=0.03, reordered=0.01, drop_outs=3, reboots=1.2, silent=0, clocks=0.1
    )
    plans = [plan.Plan(1, number, 200, 2.0, troubles) for number in range(1000)]
    turns = [turn for each in plans for turn in each.turns()]
    counts = Counter(t.reading for t in turns) + Counter(t.before for t in turns)
    share = {name: count / len(turns) for name, count in counts.items()}
    wanted = {"lost": 0.02, "twice": 0.03, "held": 0.01, "drop-out": 3 / 120, "reboot": 1.2 / 120}
    for name, value in wanted.items():
        assert share[name] == pytest.approx(value, rel=0.15), name
    assert sum(each.clock != 0 for each in plans) == pytest.approx(100, abs=30)
    calm = [plan.Plan(1, number, 100, 1.0, plan.CALM).turns() for number in range(50)]
    assert {turn for turns in calm for turn in turns} == {plan.Turn(plan.NOTHING, plan.SENT, 0.0)}


def test_differences_are_found() -> None:
    """Each thing that may be wrong in what arrived, once."""
    boot = truth.Boot("a", 1, readings=6, published=5, lost=[3], duplicated=[4], reordered=[5])
    arrived = [("a", 1, n) for n in (1, 2, 4, 4, 6, 5)]
    assert compare.differences([boot], compare.count(arrived)) == []
    wrong = {
        "readings": arrived[:-1],
        "duplicates": [*arrived, ("a", 1, 1)],
        "lost": [*arrived, ("a", 1, 3)],
        "reordered": sorted(arrived),
        "no such boot": [*arrived, ("a", 2, 1)],
    }
    for name, messages_ in wrong.items():
        found = compare.differences([boot], compare.count(messages_))
        assert any(name in line for line in found), (name, found)
    assert compare.differences([boot], {}) != []
    # What was sent again may have come twice, and no more often.
    boot.again = [2]
    assert compare.differences([boot], compare.count([*arrived, ("a", 1, 2)])) == []
    assert compare.differences([boot], compare.count([*arrived, ("a", 1, 2), ("a", 1, 2)])) != []
