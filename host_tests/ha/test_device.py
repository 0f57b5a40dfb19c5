"""A device of Home Assistant: its message, states and commands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import peer
from conftest import library, printed
from flatmq import Client
from flatmq.ha import Device
from ha import documented
from ha.documented import available
from packets import strict
from packets.properties import Id
from unit.fake_link import Bench, Clock
from unit.short import Short
from v5.clients5 import Bench5

CONFIG = "homeassistant/device/{}/config"
HERE = Path(__file__).parent
HEAP = "160k"  # of a 64-bit interpreter, for the client, the device and the compiler


class Home(Bench):
    """A device on a client without a network, and what a broker has had from it."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        super().__init__(clock, **{"client_id": b"tank-1", "tx_size": 256, **options})
        self.kept: dict[str, bytes] = {}  # retained
        self.took: list[tuple[str, bytes]] = []

    def device(self, name: str = "Tank", **options: Any) -> Device:
        self.made = Device(self.client, name, **options)
        return self.made

    def settle(self) -> list[tuple[str, bytes]]:
        """Poll, and acknowledge everything until nothing is sent. Returns what was published."""
        self.took = []
        while True:
            self.made.poll()
            self.drain()
            packets = self.sent()
            for packet in packets:
                if packet.first >> 4 == 8:
                    filters = 2 if b"homeassistant" in packet.body else 1
                    self.feed(peer.suback(packet.pid, *[1] * filters))
                elif packet.first >> 4 == 3:
                    sent = peer.take_apart(packet)
                    self.took.append((sent.topic.decode(), sent.payload))
                    if sent.retain:
                        self.kept[sent.topic.decode()] = sent.payload
                    self.feed(peer.puback(sent.pid))
            if not packets:
                return self.took

    def start(self) -> list[tuple[str, bytes]]:
        self.online()
        return self.settle()

    def message(self, identifier: str = "tank-1") -> dict[str, Any]:
        topic = CONFIG.format(identifier)
        return documented.read(topic.encode(), self.kept[topic])

    def command(self, key: str, payload: bytes) -> list[tuple[str, bytes]]:
        self.feed(peer.publish(b"dev/tank-1/" + key.encode() + b"/set", payload))
        return self.settle()

    def says(self, payload: bytes) -> None:
        """Home Assistant says so at its own topic."""
        self.feed(peer.publish(b"homeassistant/status", payload))


@pytest.fixture
def home(clock: Clock) -> Home:
    return Home(clock)


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_the_message_has_what_is_documented(python: str) -> None:
    """With one component of each platform, and many times as large as the queue."""
    folders = [library(python), HERE.parent / "spool"]
    size, *lines = printed(python, HEAP, HERE / "describe.py", folders=folders).splitlines()
    seen = {}
    for line in lines:
        topic, payload = (bytes.fromhex(word) for word in line.split())
        seen[topic.decode()] = payload
    topic = CONFIG.format("board")
    assert len(seen[topic]) > 4 * int(size)
    message = documented.read(topic.encode(), seen[topic])
    assert message["device"]["identifiers"] == "board"
    assert message["device"]["name"] == 'Kitchen "ö"'
    assert set(message["components"]) == {*documented.PLATFORMS, "gone", "sensor-2"}
    for key, each in message["components"].items():
        if key == "gone":
            assert each == {"platform": "switch"}
            continue
        assert each["unique_id"] == f"board_{key}"
        assert each["platform"] == key.partition("-")[0]
        if "state_topic" in each:
            assert each["state_topic"] == f"dev/board/{key}"
        if "command_topic" in each:
            assert each["command_topic"] == f"dev/board/{key}/set"
    number = message["components"]["number"]
    assert [number[name] for name in ("min", "max", "step")] == [5, 30, 0.5]
    assert message["components"]["sensor"]["unit_of_measurement"] == "°C"
    assert message["components"]["light"]["name"] == "Lamp"
    assert seen["dev/board/sensor"] == b"-21.50"
    assert seen["dev/board/binary_sensor"] == b"ON"
    assert seen["dev/board/light"] == b"0"
    assert seen["dev/board/number"] == b"21.5"
    assert seen["dev/board/sensor-2"] == "trüb".encode()
    assert seen["dev/board/switch"] == b"None"
    assert seen["dev/board/update"] == b"1.0"


def test_all_of_it_is_retained_and_there_first(home: Home) -> None:
    pump = home.device().switch("pump", bool)
    pump.set(False)
    sent = home.start()
    assert [topic for topic, _ in sent] == ["dev/tank-1/status", CONFIG.format("tank-1"),
                                           "dev/tank-1/pump"]  # fmt: skip
    assert set(home.kept) == {topic for topic, _ in sent}
    assert home.kept["dev/tank-1/pump"] == b"OFF"


# Availability


def test_a_device_sets_the_will(home: Home) -> None:
    home.device()
    home.start()
    message = home.message()
    assert message["availability_topic"] == "dev/tank-1/status"
    assert home.kept["dev/tank-1/status"] == b"online"
    assert available(message, "online")
    assert not available(message, "offline")
    home.lose()
    home.clock.now += 1000
    will = strict.from_client(0x10, home.greet().body, 4).connect.will
    assert (will.topic, will.payload, will.retain) == (b"dev/tank-1/status", b"offline", True)
    home.feed(peer.connack())
    assert ("dev/tank-1/status", b"online") in home.settle()


@pytest.mark.parametrize("will", ["gone", 'it said "bye"\\', ""])
def test_the_will_of_the_program_is_the_availability(will: str, home: Home) -> None:
    home.client.set_will(b"my/status", will.encode(), 1, True)
    home.device(online=None)
    home.start()
    message = home.message()
    assert message["availability_topic"] == "my/status"
    assert not available(message, will)
    assert available(message, "online, failed: dht22 12, led 1")
    assert available(message, "asleep")
    assert "my/status" not in home.kept


def test_a_will_that_is_not_retained_is_refused(home: Home) -> None:
    home.client.set_will(b"my/status", b"gone", 1)
    with pytest.raises(ValueError, match="the will must be retained"):
        home.device()


def test_somebody_must_publish_a_status(home: Home) -> None:
    with pytest.raises(
        ValueError, match="online must be given, unless the program has set a will"
    ):
        home.device(online=None)


# Again


def test_after_home_assistant_has_started_it_comes_after_a_while(home: Home) -> None:
    level = home.device().sensor("level")
    level.set(1)
    first = home.start()
    home.says(b"online")
    assert home.settle() == []
    home.clock.now += 16384
    assert sorted(home.settle()) == sorted(first)
    home.says(b"offline")
    home.clock.now += 16384
    assert home.settle() == []


@pytest.mark.parametrize("days", [7, 12])
def test_it_is_published_after_days_without_a_network(days: int, home: Home) -> None:
    """The clock wraps in 12 days: what was due half of that ago looks like the future."""
    level = home.device().sensor("level")
    level.set(1)
    home.clock.now += days * 86_400_000
    assert CONFIG.format("tank-1") in dict(home.start())


def test_a_fleet_does_not_answer_at_once(clock: Clock) -> None:
    fleet = [Home(clock, client_id=b"tank-%d" % i) for i in range(40)]
    for home in fleet:
        home.device()
        home.start()
        home.says(b"online")
    answered = []
    for _ in range(17):
        clock.now += 1000
        answered.append(sum(bool(home.settle()) for home in fleet))
    assert sum(answered) == 40
    assert max(answered) < 20


def test_it_is_published_once_per_start(home: Home) -> None:
    home.device()
    home.start()
    home.lose()
    home.clock.now += 1000
    home.online()
    assert [topic for topic, _ in home.settle()] == ["dev/tank-1/status"]


def test_it_needs_no_idle_client_if_there_is_room_for_it(clock: Clock) -> None:
    home = Home(clock, tx_size=1024)
    home.device().sensor("level").set(1)
    home.online()
    home.client.publish(b"other", b"", 1)  # never acknowledged
    home.made.poll()
    home.drain()
    sent = [peer.take_apart(packet) for packet in home.sent() if packet.first >> 4 == 3]
    home.kept = {each.topic.decode(): each.payload for each in sent if each.retain}
    assert list(home.message()["components"]) == ["level"]
    assert home.kept["dev/tank-1/level"] == b"1"


def test_a_message_that_waits_for_room_is_no_publish_that_was_refused(clock: Clock) -> None:
    home = Home(clock, tx_size=1024)
    home.device().sensor("level")
    home.online()
    home.client.publish(b"other", b"x" * 700, 1)
    for _ in range(9):
        home.made.poll()
        home.drain()
    assert home.client.stats.refused == 0
    home.settle()
    for packet in range(1, 9):
        home.feed(peer.puback(packet))
    home.settle()
    assert CONFIG.format("tank-1") in home.kept


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("limit", [(Id.MAXIMUM_QOS, 0), (Id.MAXIMUM_PACKET_SIZE, 150)])
def test_the_limits_of_a_broker_end_no_program(
    limit: tuple[int, int], busy: bool, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has the states all the same."""
    bench = Bench5(clock, tx_size=1024, client_id=b"tank-1")
    device = Device(bench.client, "Tank")
    device.sensor("level").set(1)
    bench.accepted(limit)
    if busy:
        bench.client.publish(b"other", b"x" * 20, bench.client.max_qos and 1)
    for _ in range(3):
        device.poll()
        bench.drain()
    sent = {packet.topic: packet.qos for packet in bench.packets() if packet.name == "PUBLISH"}
    qos = int(limit[0] != Id.MAXIMUM_QOS)
    assert sent.pop(b"other", qos) == qos
    config = CONFIG.format("tank-1").encode()
    assert (config in sent) == (not qos)
    assert capsys.readouterr().out.count("no description") == qos
    sent.pop(config, None)
    assert sent == {b"dev/tank-1/status": qos, b"dev/tank-1/level": qos}


def test_a_connection_that_is_lost_in_it_sends_it_again(home: Home) -> None:
    device = home.device()
    for i in range(9):
        device.sensor(f"s{i}")
    home.online()
    device.poll()
    home.drain()
    (_, status) = home.sent()
    home.feed(peer.puback(peer.take_apart(status).pid))
    home.stream.room = 700
    device.poll()
    home.drain()
    device.sensor("late")  # it does not change what is being sent
    home.lose()
    home.clock.now += 1000
    home.online()
    home.settle()
    assert len(home.message()["components"]) == 10
    assert [len(json.loads(payload)["cmps"]) for topic, payload in home.took if "config" in topic
            ] == [9, 10]  # fmt: skip


# Commands


def test_a_switch_obeys_and_says_so_afterwards(home: Home) -> None:
    calls: list[bool] = []
    device = home.device()
    device.switch("pump", calls.append)
    home.start()
    assert home.command("pump", b"ON") == [("dev/tank-1/pump", b"ON")]
    assert home.command("pump", b"OFF") == [("dev/tank-1/pump", b"OFF")]
    assert calls == [True, False]


def test_a_function_that_does_something_else_says_what(home: Home) -> None:
    device = home.device()
    pump = device.switch("pump", lambda _on: pump.set(False))  # it is dry
    home.start()
    assert home.command("pump", b"ON") == [("dev/tank-1/pump", b"OFF")]


def test_a_function_that_raises_leaves_the_state(home: Home) -> None:
    def fail(_on: bool) -> None:
        raise OSError(5)

    pump = home.device().switch("pump", fail)
    pump.set(False)
    home.start()
    with pytest.raises(OSError, match="5"):
        home.command("pump", b"ON")
    assert pump.value is False


BAD = {
    "switch": [b"", b"on", b"1", b"ONE", b"toggle"],
    "light": [b"", b"256", b"-1", b"1.5", b"bright", b"9999999999"],
    "number": [b"", b"4.5", b"30.5", b"21.2", b"five", b"1e3", b"nan", b"-", b".", b"5.", b"1.2.3",
               b"--5", b"99999999999", b"5 "],
    "button": [b"", b"press"],
    "update": [b"", b"1.1"],
}  # fmt: skip
GOOD: dict[str, list[tuple[bytes, Any, bytes | None]]] = {
    "switch": [(b"ON", True, b"ON"), (b"OFF", False, b"OFF")],
    "light": [(b"0", 0, b"0"), (b"255", 255, b"255"), (b"ON", 255, b"255"), (b"OFF", 0, b"0")],
    "number": [(b"5", 50, b"5.0"), (b"30.0", 300, b"30.0"), (b"21.5", 215, b"21.5"),
               (b"20.499999999999996", 205, b"20.5")],
    "button": [(b"PRESS", None, None)],
    "update": [(b"INSTALL", None, None)],
}  # fmt: skip


def every_platform(device: Device, called: Callable[..., None]) -> None:
    device.switch("switch", called)
    device.light("light", called)
    device.number("number", called, 50, 300, 5, 1)
    device.button("button", called)
    device.update("update", "1.0", "latest", called)


@pytest.mark.parametrize(
    ("platform", "payload"), [(kind, payload) for kind in BAD for payload in BAD[kind]]
)
def test_a_bad_command_is_counted_and_changes_nothing(
    platform: str, payload: bytes, home: Home
) -> None:
    calls: list[tuple] = []
    every_platform(home.device(), lambda *value: calls.append(value))
    home.start()
    assert home.command(platform, payload) == []
    assert (calls, home.made.refused) == ([], 1)


def test_a_number_without_limits_takes_any_payload(home: Home) -> None:
    calls: list[bytes] = []
    home.device().component("number", "level", calls.append, min=-5)
    home.start()
    assert home.command("level", b"-4.5") == [("dev/tank-1/level", b"-4.5")]
    assert calls == [b"-4.5"]


@pytest.mark.parametrize(
    ("platform", "payload", "value", "state"),
    [(kind, *case) for kind in GOOD for case in GOOD[kind]],
)
def test_a_command(
    platform: str, payload: bytes, value: Any, state: bytes | None, home: Home
) -> None:
    calls: list[tuple] = []
    every_platform(home.device(), lambda *value: calls.append(value))
    home.start()
    sent = home.command(platform, payload)
    assert calls == [() if value is None else (value,)]
    assert sent == ([] if state is None else [(f"dev/tank-1/{platform}", state)])
    assert home.made.refused == 0


def test_a_press_that_is_retained_is_refused(home: Home) -> None:
    """It comes with each connection: a button that restarts the board would do so for ever."""
    calls: list[tuple] = []
    every_platform(home.device(), lambda *value: calls.append(value))
    home.start()
    for key, payload in (("button", b"PRESS"), ("update", b"INSTALL"), ("switch", b"ON")):
        home.feed(peer.publish(b"dev/tank-1/%b/set" % key.encode(), payload, retain=True))
    assert (calls, home.made.refused) == ([(True,)], 2)


def test_a_negative_number(home: Home) -> None:
    calls: list[int] = []
    home.device().number("offset", calls.append, -50, 50, 1, 1)
    home.start()
    assert home.command("offset", b"-0.7") == [("dev/tank-1/offset", b"-0.7")]
    home.command("offset", b"-5.1")
    assert (calls, home.made.refused) == ([-7], 1)


def test_a_command_for_nothing(home: Home) -> None:
    home.device().sensor("level")
    home.start()
    assert home.command("level", b"ON") == home.command("other", b"ON") == []
    assert home.made.refused == 2


def test_any_other_platform(home: Home) -> None:
    calls: list[bytes] = []
    home.device().component("select", "mode", calls.append, options=["day", "night"])
    home.start()
    assert home.command("mode", b"night") == [("dev/tank-1/mode", b"night")]
    assert calls == [b"night"]


# States


def test_only_the_last_state_is_published_once_there_is_room(home: Home) -> None:
    level = home.device().sensor("level")
    home.start()
    home.stream.room = 0
    for i in range(9):
        level.set(i)
        home.made.poll()
    while home.client.publish(b"other", b"x" * 50, 1) is not None:
        pass
    level.set(1234, 3)
    home.made.poll()
    level.set(-5, 2)
    home.made.poll()
    home.stream.room = None
    sent = [payload for topic, payload in home.settle() if topic == "dev/tank-1/level"]
    assert sent[-1] == b"-0.05"
    assert b"1.234" not in sent


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(1.5, 0, "value must be int, bool, bytes, str or None, not 1.5"),
     (bytearray(2), 0, "value must be int"),
     (10**12, 0, "value must have at most 12 characters, not 1000000000000"),
     (1, 11, "value must have at most 12 characters")],
)  # fmt: skip
def test_a_state_that_cannot_be(value: Any, decimals: int, text: str, home: Home) -> None:
    level = home.device().sensor("level")
    with pytest.raises((TypeError, ValueError), match=text):
        level.set(value, decimals)


def test_a_state_larger_than_the_queue_keeps_no_other_one_back(home: Home) -> None:
    device = home.device()
    text, level = device.sensor("text"), device.sensor("level")
    home.start()
    text.set(b"x" * 300)
    level.set(1)
    with pytest.raises(ValueError, match="tx_size"):
        home.made.poll()
    assert home.settle() == [("dev/tank-1/level", b"1")]
    text.set(b"short")
    assert home.settle() == [("dev/tank-1/text", b"short")]


def test_a_state_is_published_once_there_is_memory(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = home.device().sensor("level")
    home.start()
    level.set(1)
    Short(monkeypatch, home.client, "publish")
    with pytest.raises(MemoryError):
        home.made.poll()
    assert home.settle() == [("dev/tank-1/level", b"1")]


def test_a_switch_is_no_number(home: Home) -> None:
    pump = home.device().switch("pump", bool)
    with pytest.raises(TypeError, match="value must be bool, bytes, str or None, not 1"):
        pump.set(1)


# Identity


def test_the_identifier_is_that_of_the_client_unless_given(clock: Clock) -> None:
    for options, wanted in (({}, "tank-1"), ({"identifier": "t_2"}, "t_2")):
        home = Home(clock)
        home.device("Tank", **options).sensor("level")
        home.start()
        message = home.message(wanted)
        assert message["device"]["identifiers"] == wanted
        assert message["components"]["level"]["unique_id"] == f"{wanted}_level"
        assert message["components"]["level"]["state_topic"] == f"dev/{wanted}/level"


def test_what_cannot_be_a_device(home: Home, clock: Clock) -> None:
    with pytest.raises(ValueError, match=r"identifier must be .*, not b'a.b'"):
        Device(Client(b"a.b", link=home.link), "Tank")
    with pytest.raises(ValueError, match="identifier must be"):
        Device(Client(b"", link=home.link), "Tank")
    with pytest.raises(TypeError, match="client must be a Client, or the core of an aio"):
        Device(object(), "Tank")  # type: ignore[arg-type]
    home.online()
    with pytest.raises(ValueError, match="client must not be started"):
        home.device()


def test_what_cannot_be_a_component(home: Home) -> None:
    device = home.device()
    device.sensor("level")
    for again in (device.sensor, lambda key: device.remove("switch", key)):
        with pytest.raises(ValueError, match="key must be a new one, not b'level'"):
            again("level")
    with pytest.raises(ValueError, match="not b'status'"):
        device.sensor("status")
    with pytest.raises(ValueError, match=r"key must be letters, digits, _ and -, not b'a/b'"):
        device.sensor("a/b")
    for limits in ((5, 5), (6, 5), (0, 5, 0), (0, 5, 1, 4)):
        with pytest.raises(ValueError, match="min must be below max"):
            device.number("n", bool, *limits)
