"""The sketch of each board on the MicroPython interpreter, with fake pins and a real broker."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sizes
from conftest import BROKERS, SharedBrokers
from flatmq_rigs.proxy import Direction, Fault, Proxy, Rules, Way
from flatmq_tools import boards
from sizes import spread
from sketches import bme280_registers
from sketches.board_bench import (
    ANSWER,
    BOARDS,
    HEAP,
    HERE,
    Board,
    Watcher,
    resolved,
    sketch,
    switched_on,
)
from uart import ptys

PICOS = ["pico", "pico_2", "pico_2_w", "pico_w"]
ESP32S = ["esp32", "esp32_c3", "esp32_s3"]
NAMES = sorted([*PICOS, *ESP32S])
WITHOUT_RADIO = ["pico", "pico_2"]
LED = {"esp32": 2, "esp32_s3": 48, "esp32_c3": 8}  # else "LED"
WATCHDOG = {"esp32": 30000, "esp32_s3": 30000, "esp32_c3": 30000,
            "pico": 8300, "pico_w": 8300, "pico_2": 16700, "pico_2_w": 16700}  # fmt: skip

RAW = (415148, 519888, 30000)  # pressure, temperature: the datasheet's example; humidity
ROM = bytes.fromhex("28ff641e8216c3a1")
# 27.6 degrees in a Pico, 39 or 53.3 in an ESP32.
ALONE = "adc[4] = 14000; mcu_temperature = 39"
# A DS18B20 at -10.125 degrees, a DHT22 at -4.1 with 65.2 %, and a BME280.
ATTACHED = (
    f"one_wire[{ROM!r}] = bytes.fromhex('5eff4b467fff0210a1');"
    "dht = bytes((2, 0x8c, 0x80, 41, (2 + 0x8c + 0x80 + 41) & 255));"
    f"i2c[0x76] = bytearray({bme280_registers.registers(*RAW)!r})"
)
# A sketch waits a second for its sensors, which these do not need.
SOON = "import station; station.READY_MS = 30"

_count = itertools.count()


class Stand:
    """Boards and those who watch them, for one test."""

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._folder = folder
        self.host = host
        self.port = port
        self._boards: list[Board] = []
        self._watchers: list[Watcher] = []

    def device(self, name: str) -> str:
        """A name that no other test uses."""
        return f"{name}-{next(_count)}"

    def board(
        self, name: str, device: str, port: int = 0, serial: bool = False, **of_device: Any
    ) -> Board:
        """A board that is not switched on."""
        settings = {
            "device": {"name": device, "interval": 1, **of_device},
            "wifi": {"ssid": "home", "password": "s3cret"},
            "broker": {"host": self.host, "port": port or self.port},
        }
        board = Board(name, self._folder / (device or name), settings, port or self.port, serial)
        self._boards.append(board)
        return board

    def watcher(self, device: str) -> Watcher:
        watcher = Watcher(self.host, self.port, device)
        self._watchers.append(watcher)
        return watcher

    def started(
        self, name: str, setup: str = f"{ALONE};{SOON}", port: int = 0, **of_device: Any
    ) -> tuple[Board, Watcher]:
        """A board that runs, and who watches it."""
        device = self.device(name)
        watcher = self.watcher(device)
        board = self.board(name, device, port, **of_device)
        board.boot(setup)
        return board, watcher

    def close(self) -> None:
        for board in self._boards:
            board.kill()
            print(board.name, *board.output)  # shown when the test fails
        for watcher in self._watchers:
            watcher.close()


@pytest.fixture
def stand(shared_brokers: SharedBrokers, tmp_path: Path) -> Iterator[Stand]:
    broker = shared_brokers.get("mosquitto", "shared")
    stand = Stand(tmp_path, broker.host, broker.port)
    yield stand
    stand.close()


def on_boards(*names: str) -> pytest.MarkDecorator:
    """Parametrize by `name`; a sample has one with each family of chips."""
    return pytest.mark.parametrize(
        "name", sizes.one_each(names, lambda name: name.partition("_")[0])
    )


def test_every_board_has_its_sketch() -> None:
    assert boards.names() == NAMES
    used = {sketch(name) for name in NAMES}
    assert {*BOARDS.glob("*/main.py")} == {*used, BOARDS / "host" / "main.py"}


@spread("name", NAMES, kind=BROKERS)
def test_readings_arrive_with_numbers_and_units(
    name: str, kind: str, stand: Stand, shared_brokers: SharedBrokers
) -> None:
    """All that each board can have on its pins, the watchdog's time, status, boot and seq."""
    broker = shared_brokers.get(kind, "shared")
    stand.host, stand.port = broker.host, broker.port
    fine = bme280_registers.fine(RAW[1])
    volts = 14000 * 3.3 / 65535
    pico = 27 - (volts - 0.706) / 0.001721
    old = (128 - 32) / 1.8
    wanted = {
        f"ds18b20/{ROM.hex()}/temp": (-10.125, 0, "Cel"),
        "dht22/temp": (-4.1, 0, "Cel"),
        "dht22/humidity": (65.2, 0, "%RH"),
        "bme280/temp": (fine / 5120, 0.01, "Cel"),
        "bme280/pressure": (bme280_registers.pressure(fine, RAW[0]), 3, "Pa"),
        "bme280/humidity": (bme280_registers.humidity(fine, RAW[2]), 0.1, "%RH"),
        "chip/temp": (pico, 0.01, "Cel")
        if name in PICOS
        else ((old, 0.1, "Cel") if name == "esp32" else (39, 0, "Cel")),
    }
    setup = f"{ALONE};{ATTACHED};{SOON}"
    if name == "esp32":
        setup += ";raw_temperature = 128"
    board, watcher = stand.started(name, setup)
    assert board.await_("watchdog") == f"watchdog {WATCHDOG[name]}"
    packs = [watcher.pack() for _ in range(2)]
    for pack in packs:
        for key, (value, error, unit) in wanted.items():
            assert pack[key][1] == unit, key
            assert abs(float(pack[key][0]) - value) <= error, (key, pack[key])
        assert set(pack) == {*wanted, "boot", "seq"}
    assert [pack["seq"][0] for pack in packs] == [1, 2]
    assert packs[0]["boot"] == packs[1]["boot"]
    assert watcher.retained("status") == b"online"
    board.kill()
    watcher.status(b"offline")
    assert watcher.retained("status") == b"offline"


@on_boards("pico_w", "esp32_s3", "pico")
def test_commands_are_obeyed_and_bad_ones_refused(name: str, stand: Stand) -> None:
    board, watcher = stand.started(name, interval=86400)
    watcher.status(b"online")
    pin = f"pins.get({LED.get(name, 'LED')!r})"
    assert watcher.command("led", b"on") == b"done"
    board.until(f"{pin} == 1")
    assert watcher.command("led", b"off") == b"done"
    board.until(f"{pin} == 0")
    assert watcher.command("interval", b"1") == b"done"
    first = watcher.pack()["seq"][0]
    assert watcher.pack()["seq"][0] == first + 1
    refused = [
        ("interval", b"0"), ("interval", b"86401"), ("interval", b""), ("interval", b"1.5"),
        ("interval", b"9" * 200), ("interval", b"-1"), ("led", b"ON"), ("led", b""),
        ("led", b"\xff\0"), ("identify", b"0"), ("identify", b"x"), ("sleep", b""),
        ("sleep", b"-5"), ("sleep", b"86401"), ("reboot", b""), ("a/b", b"1"),
    ]  # fmt: skip
    for command, payload in refused:
        answer = watcher.command(command, payload)
        assert answer.startswith(b"refused: "), (command, payload, answer)
    assert watcher.command("interval", b"86400") == b"done"
    board.do(f"pins[{LED.get(name, 'LED')!r}] = None")
    assert watcher.command("identify", b"1") == b"done"
    board.until(f"{pin} == 1")
    board.until(f"{pin} == 0")
    board.until(f"{pin} == 1")
    assert watcher.command("identify") == b"done"  # and still alive
    assert board.ask("longest < timeout") == "True"


def test_a_retained_command_is_obeyed_where_that_is_wanted(stand: Stand) -> None:
    device = stand.device("pico_w")
    watcher = stand.watcher(device)
    for command, payload in (("interval", b"77"), ("sleep", b"10"), ("identify", b"5")):
        watcher.order(command, payload, retain=True)
    others = [f"other{i}" for i in range(14)]  # more answers than there is room for at a time
    for command in others:
        watcher.order(command, retain=True, payload=b"x")
    board = stand.board("pico_w", device)
    board.boot(f"{ALONE};{SOON}")
    answers = {watcher.next("answer") for _ in range(3 + len(others))}
    assert {a for a in answers if not a.startswith(b"other")} == {
        b"interval: done",
        b"sleep: refused: not retained",
        b"identify: refused: not retained",
    }
    for command in ("interval", "sleep", "identify", *others):
        watcher.order(command, retain=True)


@on_boards("pico_w", "esp32")
def test_wifi_lost_and_regained(name: str, stand: Stand) -> None:
    """The radio and the link go; what is read meanwhile waits, and comes in order."""
    quick = "import wifi as w; w.GRACE_MS = 200; w.TRY_MS = 300; w.FIRST_MS = 50; w.LAST_MS = 100"
    away = threading.Event()

    def rules(_: int) -> Rules:
        return Rules(up=Way(limit=0)) if away.is_set() else Rules()

    setup = f"{ALONE};{SOON};{quick};in_range = False"
    with Proxy(stand.host, stand.port, rules) as proxy:
        board, watcher = stand.started(name, setup, port=proxy.port)
        board.until("wifi.count('connect') >= 4 and 'off' in wifi")  # in vain; the radio restarts
        assert proxy.accepted == 0  # nobody looks for the broker without Wi-Fi
        board.do("in_range = True")
        watcher.status(b"online")
        last = watcher.pack()["seq"][0]
        away.set()
        board.do("in_range = False")
        proxy.strike("cut")
        watcher.status(b"offline")
        board.do("wifi[:] = []")
        board.until("'disconnect' in wifi and 'connect' in wifi")
        before = int(board.ask("turns"))
        board.until(f"turns > {before + 100}")
        away.clear()
        board.do("in_range = True")
        watcher.status(b"online")
        assert board.ask("longest < timeout") == "True"
    assert last >= 1


@pytest.mark.parametrize(
    ("name", "asked"),
    [("pico_w", ["on", "pm=16", "connect"]), ("esp32", ["on", "connect"])],
)
def test_the_radio_of_the_pico_does_not_sleep(name: str, asked: list[str], stand: Stand) -> None:
    board, watcher = stand.started(name)
    watcher.pack()
    assert board.ask("wifi") == str(asked)


def test_readings_of_an_outage_wait_on_flash(stand: Stand) -> None:
    """With the spool they even outlive the loss of power."""
    with Proxy(stand.host, stand.port) as proxy:
        board, watcher = stand.started("pico_w", port=proxy.port, spool=True)
        assert watcher.pack()["seq"][0] == 1
        proxy.refuse()
        proxy.strike("reset")
        watcher.status(b"offline")
        board.until("pins.clear() is None")
        fills = int(board.ask("turns"))
        board.until(f"turns > {fills + 100}")  # 20 ms each, and readings every second
        board.kill()
        proxy.refuse(False)
        board.boot(f"{ALONE};{SOON}")
        first = watcher.pack()
        while True:
            pack = watcher.pack()
            if pack["boot"] != first["boot"]:
                break
            assert pack["seq"][0] <= first["seq"][0] + 1
            first = pack
        assert first["seq"][0] >= 3
        assert pack["seq"][0] == 1


def test_the_watchdog_is_not_fed_while_the_loop_hangs(stand: Stand) -> None:
    board, watcher = stand.started("pico_w")
    watcher.pack()
    # The sensor never answers; and 8.3 s are long for a test.
    board.do("import machine; machine.ADC.read_u16 = lambda adc: hang(timeout // 20)")
    assert board.await_("reset") == "reset by watchdog"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("pico_w", "mem32 0x4005b000 0x40000000"),
        ("pico_2", "mem32 0x400db000 0x40000000"),
        ("esp32", "watchdog 3600000"),
    ],
)
def test_whoever_interrupts_the_sketch_is_not_reset(name: str, wanted: str, stand: Stand) -> None:
    board, watcher = stand.started(name)
    watcher.pack()
    board.await_("watchdog")
    board.do("raise KeyboardInterrupt")
    assert board.next() == wanted
    assert board.next() is None


@pytest.mark.parametrize(
    ("name", "own"), [("pico_w", "pico-e6610aff"), ("esp32", "esp32-e6610aff")]
)
def test_a_board_without_a_name_has_one(name: str, own: str, stand: Stand) -> None:
    watcher = stand.watcher(own)
    board = stand.board(name, "")
    board.boot(f"{ALONE};{SOON}")
    assert resolved(watcher.next("telemetry"))["seq"] == (1, None)


@on_boards(*NAMES)
def test_nothing_on_the_pins_and_no_watchdog(name: str, stand: Stand) -> None:
    board, watcher = stand.started(name, watchdog=False)
    assert set(watcher.pack()) == {"chip/temp", "boot", "seq"}
    assert not any(line.startswith("@watchdog") for line in board.output)


@on_boards("pico_w", "esp32_c3", "pico")
def test_deep_sleep_waits_until_all_is_acknowledged(name: str, stand: Stand) -> None:
    """The first acknowledgement is kept back, and then lost with its connection."""
    kept_back = threading.Event()

    def watch(direction: Direction, first: int) -> Fault | None:
        if direction == "down" and first == 0x40 and not kept_back.is_set():
            kept_back.set()
            return "stall"
        return None

    with Proxy(stand.host, stand.port, lambda _: Rules(watch=watch)) as proxy:
        board, watcher = stand.started(name, port=proxy.port, sleep=True)
        assert kept_back.wait(ANSWER)
        turns = int(board.ask("turns"))
        board.until(f"turns > {turns + 30}")  # it is awake
        proxy.strike("cut")
        told = board.await_("deepsleep")
        assert 0 < int(told.split()[1]) <= 1000
        assert board.next() is None
        assert watcher.pack()["seq"][0] == 1
        watcher.status(b"asleep")
    assert watcher.retained("status") == b"asleep"


@on_boards("pico_w", "esp32_c3")
def test_deep_sleep_when_it_is_asked_for(name: str, stand: Stand) -> None:
    board, watcher = stand.started(name)
    watcher.pack()
    watcher.order("sleep", b"1")
    watcher.status(b"asleep")
    assert int(board.await_("deepsleep").split()[1]) <= 1000
    assert board.next() is None


def test_a_board_that_always_sleeps(stand: Stand) -> None:
    """Each wake is a boot of its own, one more than the last, and loses nothing."""
    board, watcher = stand.started("esp32", sleep=True)
    boots = []
    for _ in range(3):
        pack = watcher.pack()
        assert pack["seq"][0] == 1
        boots.append(pack["boot"][0])
        assert board.await_("deepsleep") == "deepsleep 1000"
        assert board.next() is None
        board.boot(f"{ALONE};{SOON}")
    assert boots == [boots[0], boots[0] + 1, boots[0] + 2]
    watcher.order("sleep", b"0", retain=True)  # a sleeping board finds the command as it wakes
    assert watcher.pack(lambda pack: pack["seq"][0] == 2)["boot"][0] > boots[2]
    assert watcher.retained("status") == b"online"
    watcher.order("sleep", retain=True)


def test_a_reboot_has_another_boot_and_begins_at_1(stand: Stand) -> None:
    board, watcher = stand.started("pico_w")
    first = watcher.pack()
    board.kill()
    board.boot(f"{ALONE};{SOON}")
    second = watcher.pack(lambda pack: pack["boot"] != first["boot"])
    assert second["boot"][0] == first["boot"][0] + 1
    assert second["seq"][0] == 1
    board.kill()
    (board.folder / "boot_id").unlink()  # the flash is erased
    board.boot(f"{ALONE};{SOON}")
    third = watcher.pack(lambda pack: pack["boot"] != second["boot"])
    assert abs(third["boot"][0] - second["boot"][0]) > 1000


def test_a_sensor_that_fails_is_left_out(stand: Stand) -> None:
    """Also one that has not measured: a BME280 keeps what it measured last in its registers."""
    board, watcher = stand.started("pico_w", f"{ALONE};{ATTACHED};{SOON}")
    assert len(watcher.pack()) == 9
    board.do("import machine; machine.I2C.writeto_mem = None")
    watcher.pack(lambda pack: "bme280/temp" not in pack and "dht22/temp" in pack)
    board.do("one_wire.clear(); dht = bytes(4) + b'x'; i2c.clear()")
    assert watcher.pack(lambda pack: len(pack) == 3)["chip/temp"] == (Decimal("27.60"), "Cel")


def test_settings_that_are_missing_are_named(stand: Stand) -> None:
    board = stand.board("pico_w", stand.device("pico_w"))
    (board.folder / "settings.json").write_text('{"wifi": {"password": "s3cret"}}')
    with switched_on(board, ALONE):
        assert board.next() is None
    assert board.output[-1] == "SettingsError: /settings.json: wifi.ssid is missing\n"
    assert "s3cret" not in "".join(board.output)


@pytest.mark.parametrize("name", WITHOUT_RADIO)
def test_over_the_serial_line_and_the_bridge(
    name: str, shared_brokers: SharedBrokers, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link that main.py names, at a terminal; what the sketch prints goes between frames."""
    device = stand.device(name)
    watcher = stand.watcher(device)
    board = stand.board(name, device, serial=True)
    (board.folder / "setup").write_text(f"{ALONE};{SOON}")
    monkeypatch.setattr(ptys, "HEAP", HEAP)
    with ptys.bench(
        shared_brokers.get("mosquitto", "shared"),
        str(HERE / "run_board.py"),
        str(board.folder),
        str(HERE / "fakes"),
        name,
        "deaf",
    ) as (_, process, bridge):
        watcher.status(b"online")
        assert watcher.command("led", b"on") == b"done"
        assert watcher.pack(lambda pack: pack["seq"][0] > 1)["chip/temp"][0] == Decimal("27.60")
        assert f"@watchdog {WATCHDOG[name]}" in bridge.printed()
        process.reset()
    watcher.status(b"offline")
