"""The sketches on the MicroPython interpreter: a station with its part `ha`, and the relay."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flatmq_rigs.proxy import Proxy
from flatmq_tools.broker import Broker
from ha import documented
from observer import Observer, retained
from sketches.board_bench import ATTACHED, BOARDS, ROM, Board, settings

CONFIG = "homeassistant/device/{}/config"


class Hub:
    """The side of Home Assistant: it sees a device, and gives commands."""

    def __init__(self, host: str, port: int, device: str) -> None:
        self.device = device
        self._where = host, port
        self.seen = Observer(host, port, f"dev/{device}/#", CONFIG.format(device))

    def await_(self, topic: str, payload: bytes) -> None:
        self.seen.until(lambda: payload in self.seen.payloads(f"dev/{self.device}/{topic}"))

    def retained(self, topic: str) -> bytes | None:
        return retained(*self._where, topic)

    def message(self, *keys: str) -> dict[str, Any]:
        """Return the message, once it has these components."""
        topic = CONFIG.format(self.device)

        def there() -> bool:
            found = self.seen.payloads(topic)
            return bool(found) and set(keys) <= set(json.loads(found[-1])["cmps"])

        self.seen.until(there)
        assert self.retained(topic) == self.seen.payloads(topic)[-1]
        return documented.read(topic.encode(), self.seen.payloads(topic)[-1])

    def value(self, component: dict[str, Any]) -> str:
        """Return the last value of a sensor, as Home Assistant takes it out of a message."""
        payload = self.seen.payloads(component["state_topic"])[-1]
        found = json.loads(payload, parse_float=Decimal)
        return documented.rendered(component["value_template"], value_json=found)

    def command(self, component: dict[str, Any], payload: str) -> None:
        self.seen.publish(component["command_topic"], payload)


@pytest.fixture
def bench(near: Broker, tmp_path: Path) -> Iterator[Any]:
    """A function that boots a board with these settings; returns it and its hub."""
    made: list[tuple[Board, Hub]] = []

    def boot(
        device: str, setup: str = "", sketch: str = "pico_w", port: int = near.port,
        **of_device: Any,
    ) -> Any:  # fmt: skip
        given = settings(device, near.host, port, **of_device)
        board = Board("pico_w", tmp_path / device, given, port)
        (board.folder / "main.py").write_text((BOARDS / sketch / "main.py").read_text())
        (board.folder / "boot_id").write_text("1")
        made.append((board, Hub(near.host, near.port, device)))
        board.boot(setup)
        return made[-1]

    yield boot
    for board, hub in made:
        board.kill()
        hub.seen.close()
        print(*board.output)


def test_everything_measured_is_a_sensor(bench: Any) -> None:
    board, hub = bench("station-ha", ATTACHED, parts="ha")
    message = hub.message("chip_temp", "bme280_pressure", "dht22_humidity", "led")
    found = message["components"]
    bus = f"ds18b20_{ROM.hex()}_temp"
    measured = {
        "chip_temp": ("°C", "temperature", "27.60"),
        bus: ("°C", "temperature", "-10.1250"),
        "dht22_temp": ("°C", "temperature", "-4.1"),
        "dht22_humidity": ("%", "humidity", "65.2"),
        "bme280_temp": ("°C", "temperature", "25.08"),
        "bme280_humidity": ("%", "humidity", None),
        "bme280_pressure": ("Pa", "pressure", "100656"),
    }
    assert set(found) == {*measured, "led", "identify", "interval"}
    for key, (unit, word, value) in measured.items():
        each = found[key]
        assert (each["unit_of_measurement"], each["device_class"]) == (unit, word)
        assert each["state_class"] == "measurement"
        assert each["state_topic"] == "dev/station-ha/telemetry"
        assert each["expire_after"] == 63
        assert value in (None, hub.value(each))
    assert message["device"]["name"] == "station-ha"
    assert message["availability_topic"] == "dev/station-ha/status"
    for status in ("online", "online, failed: dht22 12, led 1", "asleep"):
        assert documented.available(message, status)
    assert not documented.available(message, "offline")
    # A sensor that does not answer has no value; nothing is published but telemetry.
    board.do("dht = bytes(4) + b'x'")
    hub.seen.until(lambda: hub.value(found["dht22_temp"]) == "None")
    named = ("telemetry", "status", "led", "interval")
    topics = {f"dev/station-ha/{name}" for name in named} | {CONFIG.format("station-ha")}
    assert {m.topic for m in hub.seen.messages} == topics


def test_a_sensor_without_memory_appears_later(bench: Any) -> None:
    setup = (
        "import flatmq.ha; add = flatmq.ha.Device.add; broken['heap'] = MemoryError(); tries = [];"
        "flatmq.ha.Device.add = lambda d, c: c.key == b'dht22_temp' and "
        "(tries.append(1) or len(tries) == 1 and use('heap')) or add(d, c)"
    )
    _, hub = bench("short-ha", f"{ATTACHED};{setup}", parts="ha")
    hub.message("chip_temp", "dht22_temp")


def test_a_sensor_that_answers_later_appears_then(bench: Any) -> None:
    setup = f"{ATTACHED};broken['chip'] = OSError(5)"
    board, hub = bench("late-ha", setup, parts="ha")
    assert "chip_temp" not in hub.message("bme280_temp")["components"]
    board.do("broken.clear()")
    assert "bme280_temp" in hub.message("chip_temp")["components"]


def test_led_interval_and_identify(bench: Any) -> None:
    _, hub = bench("obeys-ha", parts="ha")
    found = hub.message("chip_temp", "led")["components"]
    hub.await_("led", b"off")
    hub.await_("interval", b"1")
    hub.command(found["led"], found["led"]["payload_on"])
    hub.await_("led", b"on")
    hub.command(found["identify"], found["identify"]["payload_press"])
    hub.await_("answer", b"identify: done")
    hub.command(found["interval"], str(found["interval"]["max"]))
    hub.await_("interval", b"86400")
    hub.seen.until(
        lambda: hub.message("chip_temp")["components"]["chip_temp"]["expire_after"] == 259260
    )
    hub.command(found["interval"], "0")
    hub.await_("answer", b"interval: refused: 1 to 86400 s")
    assert b"0" not in hub.seen.payloads("dev/obeys-ha/interval")


def test_a_board_that_sleeps_is_described_before_its_first_sleep(bench: Any) -> None:
    """Not again when it wakes, until a command keeps it awake."""
    board, hub = bench("sleeps-ha", parts="ha", sleep=True)
    for wakes in range(3):
        if wakes:
            board.boot()
        board.await_("deepsleep")
        assert board.next() is None
    topic = CONFIG.format("sleeps-ha")
    assert "chip_temp" in hub.message("chip_temp")["components"]
    assert len(hub.seen.payloads(topic)) == 1
    hub.seen.publish("dev/sleeps-ha/cmd/sleep", "0", retain=True)
    board.boot()
    hub.seen.until(lambda: len(hub.seen.payloads(topic)) == 2)
    assert "chip_temp" in hub.message("chip_temp")["components"]
    seq = '"n":"seq","v":3}'
    hub.seen.until(
        lambda: any(seq in p.decode() for p in hub.seen.payloads("dev/sleeps-ha/telemetry"))
    )
    hub.seen.publish("dev/sleeps-ha/cmd/sleep", b"", retain=True)


def test_a_board_that_was_not_described_sleeps_while_there_is_no_broker(
    bench: Any, near: Broker
) -> None:
    """It does not wait for its next reading; the spool has the first."""
    setup = "station.AWAKE_MS = 100; import machine; machine.lightsleep = machine.deepsleep"
    with Proxy(near.host, near.port) as proxy:
        proxy.refuse()
        options = {"port": proxy.port, "parts": "ha", "sleep": True, "spool": True}
        board, _ = bench("alone-ha", setup, interval=3600, **options)
        board.await_("deepsleep")


def test_the_relay(bench: Any) -> None:
    board, hub = bench("relay-1", sketch="relay")
    (relay,) = hub.message("relay")["components"].values()
    assert relay["device_class"] == "outlet"
    assert hub.retained("dev/relay-1/status") == b"online"
    assert hub.retained("dev/relay-1/relay") == b"OFF"
    assert board.ask("pins[16]") == "0"
    hub.command(relay, "ON")
    hub.await_("relay", b"ON")
    assert board.ask("pins[16]") == "True"
    hub.command(relay, "on")
    hub.command(relay, "OFF")
    hub.await_("relay", b"OFF")
    assert board.ask("pins[16]") == "False"
    board.kill()
    hub.await_("status", b"offline")
