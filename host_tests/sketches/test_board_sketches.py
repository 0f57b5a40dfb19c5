"""The sketch of each board on the MicroPython interpreter, with fake pins and a real broker."""

import io
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import sizes
import typed_command
from conftest import BROKERS, LIB, SharedBrokers, printed
from flatmq_rigs import steps
from flatmq_rigs.proxy import Direction, Fault, Proxy, Rules, Way
from flatmq_tools import boards, remote_logs, timing
from flatmq_tools.broker import Broker
from flatmq_tools.desk_client import Desk
from observer import Observer
from sizes import spread
from sketches import bme280_registers
from sketches.board_bench import (
    ANSWER,
    ATTACHED,
    BOARDS,
    HEAP,
    HERE,
    RAW,
    ROM,
    SETUP,
    Board,
    Watcher,
    resolved,
    settings,
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
        self, name: str, port: int = 0, serial: bool = False, device: str | None = None,
        **of_device: Any,
    ) -> Board:  # fmt: skip
        """A board that is not switched on."""
        device = self.device(name) if device is None else device
        port = port or self.port
        given = settings(device, self.host, port, **of_device)
        board = Board(name, self._folder / (device or name), given, port, serial)
        self._boards.append(board)
        return board

    def watcher(self, device: str) -> Watcher:
        watcher = Watcher(self.host, self.port, device)
        self._watchers.append(watcher)
        return watcher

    def watched(self, name: str, port: int = 0, **more: Any) -> tuple[Board, Watcher]:
        """A board that is not switched on, and who watches it."""
        device = self.device(name)
        return self.board(name, port, device=device, **more), self.watcher(device)

    def started(
        self, name: str, setup: str = "", port: int = 0, **more: Any
    ) -> tuple[Board, Watcher]:
        """A board that runs, and who watches it."""
        board, watcher = self.watched(name, port, **more)
        board.boot(setup)
        return board, watcher

    def close(self) -> None:
        for board in self._boards:
            board.kill()
            print(board.name, *board.output)  # shown when the test fails
        for watcher in self._watchers:
            watcher.close()


@pytest.fixture
def stand(near: Broker, tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path, near.host, near.port)
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
    others = {BOARDS / name / "main.py" for name in ("host", "relay")}
    assert {*BOARDS.glob("*/main.py")} == used | others


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
    setup = ATTACHED
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


def test_an_interval_that_comes_again_delays_no_reading(stand: Stand) -> None:
    """As a retained one does with each connection: where these are short, none was read."""
    _, watcher = stand.started("pico_w")
    watcher.pack()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert watcher.command("interval", b"1") == b"done"
    assert len(watcher.payloads(f"dev/{watcher.device}/telemetry")) >= 3


def test_a_retained_command_is_obeyed_where_that_is_wanted(stand: Stand) -> None:
    board, watcher = stand.watched("pico_w")
    for command, payload in (("interval", b"77"), ("sleep", b"10"), ("identify", b"5")):
        watcher.order(command, payload, retain=True)
    others = [f"other{i}" for i in range(14)]  # more answers than there is room for at a time
    for command in others:
        watcher.order(command, retain=True, payload=b"x")
    board.boot()
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

    setup = f"{quick};in_range = False;broken['wifi'] = RuntimeError(257)"
    with Proxy(stand.host, stand.port, rules) as proxy:
        board, watcher = stand.started(name, setup, port=proxy.port)
        board.until("wifi.count('on') >= 2")  # an unknown error of ESP-IDF is no OSError
        board.do("broken.clear()")
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


@on_boards("pico_w", "esp32")
def test_why_there_is_no_wifi_is_printed_once(name: str, stand: Stand) -> None:
    quick = "import wifi as w; w.GRACE_MS = w.TRY_MS = 100; w.FIRST_MS = w.LAST_MS = 50"
    board, watcher = stand.watched(name)
    board.boot(f"{quick};password = 'another';broken['wifi'] = RuntimeError(257)")
    board.until("wifi.count('off') >= 2")
    board.do("broken.clear()")
    causes = {
        "RuntimeError(257,)": "in_range = True",
        "wrong password": "in_range = False",
        "no such network": "in_range = True; password = None",
    }
    for cause, then in causes.items():
        board.do("wifi[:] = []")
        board.until("wifi.count('connect') >= 7")
        assert board.output.count(f"no Wi-Fi home: {cause}\n") == 1
        board.do(then)
    watcher.status(b"online")
    board.do("in_range = False; wifi[:] = []")
    board.until("wifi.count('connect') >= 3")
    assert board.output.count("no Wi-Fi home: no such network\n") == 2


@pytest.mark.parametrize("sketch", ["pico_w", "relay"])
def test_a_wifi_that_is_connected_and_carries_nothing_is_restarted(
    sketch: str, stand: Stand
) -> None:
    with Proxy(stand.host, stand.port) as proxy:
        proxy.refuse()
        board, watcher = stand.watched("pico_w", port=proxy.port)
        (board.folder / "main.py").write_text((BOARDS / sketch / "main.py").read_text())
        board.boot("import wifi as w; w.STUCK_MS = 300; w.GRACE_MS = w.FIRST_MS = 50")
        board.until("wifi.count('off') >= 2 and wifi[-1] == 'connect'")
        board.do("w.STUCK_MS = 60000")
        proxy.refuse(False)
        watcher.status(b"online")
        board.do("wifi[:] = []; w.STUCK_MS = 300")
        turns = int(board.ask("turns"))
        board.until(f"turns > {turns + 30}")  # 20 ms each, without Wi-Fi or news
        assert board.ask("wifi") == "[]"


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
        board.until(f"turns > {fills + 150}")  # 20 ms each, and readings every second
        board.kill()
        proxy.refuse(False)
        board.boot()
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
    board = stand.board(name, device="")
    board.boot()
    assert resolved(watcher.next("telemetry"))["seq"] == (1, None)


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
        board.boot()
    assert boots == [boots[0], boots[0] + 1, boots[0] + 2]
    watcher.order("sleep", b"0", retain=True)  # a sleeping board finds the command as it wakes
    assert watcher.pack(lambda pack: pack["seq"][0] == 2)["boot"][0] > boots[2]
    assert watcher.retained("status") == b"online"
    watcher.order("sleep", retain=True)


NEW = "station.Station.updates = type('Updates', (), {'record': {'state': 'new'}})"


@pytest.mark.parametrize("setup", ["", f"station.AWAKE_MS = 100;{NEW}"])
def test_a_board_that_cannot_sleep_goes_on_reading(setup: str, stand: Stand) -> None:
    """Without a broker it is awake, and what it reads is kept. A new version has its time."""
    with Proxy(stand.host, stand.port) as proxy:
        proxy.refuse()
        board, watcher = stand.watched("pico_w", proxy.port, sleep=True, spool=True)
        board.boot(setup)
        board.until("turns > 150")  # 20 ms each, and readings every second
        proxy.refuse(False)
        board.await_("deepsleep")
    assert watcher.pack()["seq"][0] == 1
    assert watcher.pack()["seq"][0] == 2


@on_boards("pico_w", "esp32_c3")
def test_a_sleeping_board_spares_its_battery_while_there_is_no_broker(
    name: str, stand: Stand
) -> None:
    """The readings of each wake are in the spool, and come with a later one.

    Where there was no Wi-Fi, the next wake uses none of its addresses.
    """
    with Proxy(stand.host, stand.port) as proxy:
        proxy.refuse()
        board, watcher = stand.watched(name, proxy.port, sleep=True, spool=True)
        for more in (";in_range = False", ""):
            board.boot(f"station.AWAKE_MS = 100{more}")
            assert f"on,{FRESH}" in board.await_("asked ").replace(",pm=16", "")
            assert board.await_("deepsleep") == "deepsleep 1000"
        proxy.refuse(False)
        board.boot()
        packs = [watcher.pack() for _ in range(3)]
        assert [pack["seq"][0] for pack in packs] == [1, 1, 1]
        boots = [pack["boot"][0] for pack in packs]
        assert boots == [boots[0], boots[0] + 1, boots[0] + 2]
        watcher.status(b"asleep")


# What the radio is asked for when a board wakes, besides "on", its power mode and "off".
FRESH = "connect"
KEPT = {"pico_w": "10.0.0.7,connect@6",
        "esp32_c3": "10.0.0.7,connect,disconnect,channel=6,connect"}  # fmt: skip
MOVED = {"pico_w": "10.0.0.7,connect@11", "esp32_c3": KEPT["esp32_c3"].replace("6", "11")}
REFUSED = {name: re.split(",channel|,connect@", KEPT[name])[0] + ",off,on,dhcp,connect"
           for name in KEPT}  # fmt: skip
# What is so from the start; what happens before the first wake, to the bench or to a file on the
# board; and what is asked for in the wakes.
SLEEPS: dict[str, tuple[str, str, Callable[[str], list[str]]]] = {
    "nothing happens": ("", "", lambda name: [KEPT[name], KEPT[name]]),
    "another access point": (
        "",
        "access_point = '020000000002', 11",
        # An ESP32 goes on with the other channels by itself.
        lambda name: [KEPT[name] + ",disconnect,dhcp,connect" * (name == "pico_w"), MOVED[name]],
    ),
    "awake for longer": (
        "",
        "station.READY_MS = 2000; w.HELD_MS = 100",
        lambda name: [KEPT[name] + ",off,disconnect,on,dhcp,connect"],
    ),
    "a radio that refuses": (
        "",
        "broken['channel'] = RuntimeError(257)",
        # After two failures in a row it is not tried at two wakes.
        lambda name: [REFUSED[name], REFUSED[name], FRESH, FRESH, REFUSED[name]],
    ),
    "a radio that does not know": (
        "access_point = '000000000000', 0",
        "access_point = '000000000000', 0",
        lambda name: ["10.0.0.7,connect"],
    ),
    "a lease that ends": (
        "import kept; kept.LEASE_S = 82",
        "import kept; kept.LEASE_S = 82",
        lambda name: [KEPT[name], KEPT[name], KEPT[name].partition(",")[2], KEPT[name]],
    ),
    "another network": ("", "settings.json", lambda name: [FRESH]),
    "no power for a while": ("", "slept", lambda name: [FRESH, KEPT[name]]),
    "nothing that can be read": ("", '{"ssid', lambda name: [FRESH, KEPT[name]]),
    "a part of a record": (
        "",
        '{"ssid": "home", "failures": 0}',
        lambda name: ["off,on," + FRESH, KEPT[name]],
    ),
    "a record with another time": (
        "",
        '{"ssid": "home", "failures": 0, "from": "now"}',
        lambda name: ["off,on," + FRESH, KEPT[name]],
    ),
    "a record with other failures": (
        "",
        '{"ssid": "home", "failures": "none"}',
        lambda name: [FRESH, KEPT[name]],
    ),
    "a record without the seconds": (
        "",
        '{"ssid": "home", "failures": 0, "last": 2000000000, "bssid": "", "channel": 0,'
        ' "address": ["10.0.0.7", "", "", ""]}',
        lambda name: ["10.0.0.7,connect", KEPT[name].partition(",")[2]],
    ),
}


@spread("case", SLEEPS, kind=["pico_w", "esp32_c3"])
def test_a_sleeping_board_keeps_its_network(case: str, kind: str, stand: Stand) -> None:
    """It joins with what it has kept, and drops that as soon as a join fails."""
    start, change, wanted = SLEEPS[case]
    board, watcher = stand.started(kind, start, sleep=True)

    def asked() -> str:
        """Return what the radio was asked for until the board slept."""
        found = board.await_("asked ").removeprefix("asked ")
        assert (",pm=16" in found) == (kind == "pico_w")  # whose radio would sleep
        board.await_("deepsleep")
        assert board.next() is None
        assert watcher.pack()["seq"][0] == 1
        return found.replace(",pm=16", "").removeprefix("on,").removesuffix(",off")

    assert asked() == FRESH
    setup = "import wifi as w;w.KEPT_MS = w.GRACE_MS = 300;w.FIRST_MS = 50"
    if change == "settings.json":
        file = board.folder / change
        file.write_text(file.read_text().replace('"home"', '"other"'))
    elif change == "slept":
        (board.folder / change).unlink()
    elif change.startswith("{"):
        for file in ("kept", "slept"):  # a Pico's, and RTC memory
            (board.folder / file).write_text(change)
    elif change:
        setup += f";{change}"
    for radio in wanted(kind):
        board.boot(setup)
        assert asked() == radio


def test_a_sensor_that_fails_is_left_out(stand: Stand) -> None:
    """Also one that has not measured: a BME280 keeps what it measured last in its registers."""
    board, watcher = stand.started("pico_w", ATTACHED)
    assert len(watcher.pack()) == 9
    board.do("import machine; machine.I2C.writeto_mem = None")
    watcher.pack(lambda pack: "bme280/temp" not in pack and "dht22/temp" in pack)
    board.do("one_wire.clear(); dht = bytes(4) + b'x'; i2c.clear()")
    assert watcher.pack(lambda pack: len(pack) == 3)["chip/temp"] == (Decimal("27.60"), "Cel")


def test_a_dead_ds18b20_silences_no_other_on_its_bus(stand: Stand) -> None:
    other = ROM[:-1] + b"\0"
    both = f"{ATTACHED};one_wire[{other!r}] = one_wire[{ROM!r}]"
    board, watcher = stand.started("pico_w", both)
    names = [f"ds18b20/{rom.hex()}/temp" for rom in (ROM, other)]
    for dead, name, alive in ((ROM, *names), (other, *reversed(names))):
        board.do(f"pad = one_wire.pop({dead!r})")
        watcher.pack(lambda pack, dead=name, alive=alive: dead not in pack and alive in pack)
        board.do(f"one_wire[{dead!r}] = pad")
        watcher.pack(lambda pack: set(names) < set(pack))
    assert "ds18b20 failed\n" in board.output


@pytest.mark.parametrize("scratchpad", ["50054b467fff0c101c", "00" * 9], ids=["reset", "zeros"])
def test_what_a_ds18b20_has_not_measured_is_no_reading(scratchpad: str, stand: Stand) -> None:
    """85 degrees after it had no power, and the zeros of a bus held down, whose checksum fits."""
    board, watcher = stand.started("pico_w", ATTACHED)
    name = f"ds18b20/{ROM.hex()}/temp"
    assert watcher.pack()[name][0] == Decimal("-10.125")
    board.do(f"one_wire[{ROM!r}] = bytes.fromhex({scratchpad!r})")
    assert (
        watcher.pack(lambda pack: pack.get(name, [0])[0] != Decimal("-10.125")).get(name) is None
    )
    board.do(f"one_wire[{ROM!r}] = bytes.fromhex('50054b467fff1010bd')")  # 85 degrees, measured
    assert watcher.pack(lambda pack: name in pack)[name][0] == 85


def test_a_bme280_that_had_no_power_measures_the_humidity_again(stand: Stand) -> None:
    """Its reset switches that off: the register would hold the value for "skipped"."""
    board, watcher = stand.started("pico_w", ATTACHED)
    before = watcher.pack()["bme280/humidity"]
    board.do("i2c[0x76][0xF2] = i2c[0x76][0xF4] = 0")
    board.ask("turns")
    assert [watcher.pack()["bme280/humidity"] for _ in range(2)] == [before, before]
    # The reset comes between the measurement and the reading.
    board.do("i2c[0x76][0xF7:0xFF] = bytes.fromhex('8000008000008000')")
    after = watcher.pack(lambda pack: pack.get("bme280/humidity") != before)
    assert not any(name.startswith("bme280") for name in after)


# What breaks at the start, what later, and the part that the status names.
SPOOL = "import flatmq.spool; flatmq.spool.Spool.{} = lambda *a, **k: use('spool')"
FULL = SPOOL.replace("'spool'", "'heap'") + ";broken['heap'] = MemoryError()"
FAULTS = {
    "the LED": ("broken['led'] = OSError(5)", "", "led"),
    "the LED, later": ("", "broken['led'] = OSError(5)", "led"),
    "the chip's sensor": ("broken['chip'] = OSError(5)", "", "chip"),
    "a watchdog that does not start": ("broken['wdt'] = OSError(5)", "", "watchdog"),
    "a watchdog that cannot be fed": ("", "broken['feed'] = OSError(5)", "watchdog"),
    "a sensor that is unplugged": (ATTACHED, "i2c.clear()", "bme280"),
    "a sensor that answers badly": (ATTACHED, "dht = bytes(4) + b'x'", "dht22"),
    "a sensor that answers badly at the start": (f"{ATTACHED};dht = bytes(4) + b'x'", "", "dht22"),
    "no place for the spool": (SPOOL.format("__init__"), "", "spool"),
    "no memory to load the spool": (FULL.format("__init__"), "", "spool"),
    "no memory for the spool": (FULL.format("publish"), "", "spool"),
    "no room on flash": (SPOOL.format("publish"), "", "spool"),
    "flash that cannot be read": (SPOOL.format("poll"), "", "spool"),
    "a part": (
        "import flatmq.timesync; flatmq.timesync.TimeSync.poll = lambda *a: use('time')",
        "broken['time'] = OSError(5)",
        "time",
    ),
    "memory for a message": (
        "obey = station.Station._obey;"
        "station.Station._obey = lambda *a: use(a[1].decode()) or obey(*a);"
        "broken['identify'] = MemoryError()",
        "",
        "memory",
    ),
    "memory for the client, always": (
        "poll = station.Client.poll; broken['poll'] = MemoryError();"
        "station.Client.poll = lambda client, ms: (poll(client, ms), use('poll'))",
        "",
        "memory",
    ),
    "memory for the status, and to count that": (
        "greet = station.Station._greet; count = station.Station.count;"
        "station.Station._greet = lambda s: use('it') if broken.pop('once', 0) else greet(s);"
        "station.Station.count = lambda *a: use('it') if broken.pop('also', 0) else count(*a);"
        "broken['once'] = broken['also'] = broken['it'] = MemoryError()",
        "",
        "memory",
    ),
}
ONCE = (
    "a watchdog that does not start", "no place for the spool", "no memory to load the spool",
    "memory for a message", "memory for the status, and to count that",
)  # fmt: skip


@spread("fault", FAULTS, board=NAMES)
def test_a_part_that_fails_is_counted_in_the_status(fault: str, board: str, stand: Stand) -> None:
    """Readings arrive all the same, and commands are obeyed."""
    first, later, part = FAULTS[fault]
    setup = f"station.NEWS_MS = 300;{first or 'pass'};broken['spool'] = OSError(28)"
    there, watcher = stand.started(board, setup, spool=part == "spool", parts="time")
    if fault == "memory for a message":
        watcher.status(b"online")
        watcher.order("identify")
    if later:
        watcher.status(b"online")
        there.do(later)
    start = f"online, failed: {part} ".encode()
    counts: list[int] = []

    def counted(payload: bytes) -> bool:
        if payload.startswith(start):
            counts.append(int(payload.removeprefix(start)))
        return payload.startswith(start)

    watcher.next("status", counted)
    if fault not in ONCE:
        watcher.next("status", counted)
        assert counts[1] > counts[0]
    assert counts[0] >= 1
    seq = watcher.pack()["seq"][0]
    assert watcher.pack()["seq"][0] == seq + 1
    assert watcher.command("led", b"on") == b"done"
    assert there.output.count(f"{part} failed\n") == 1


def test_without_memory_to_ping_the_client_is_polled(stand: Stand) -> None:
    """The module of `ping` is loaded when Wi-Fi is there."""
    setup = "station.Client.ping = lambda client: use('ping'); broken['ping'] = MemoryError()"
    _, watcher = stand.started("pico_w", setup)
    watcher.status(b"online, failed: memory 1")
    assert watcher.command("led", b"on") == b"done"


HOST = """
import sensor

class Failing:
    name = b"x"
    n = 0

    def read(self):
        self.n += 1
        if self.n & 1:
            raise OSError(5)
        return self.n

sensor.open_sensor = Failing
import main
main.HOST, main.PORT, main.DEVICE = "127.0.0.1", {port}, b"{device}"
main.EVERY_MS, main.READINGS = 1, 4
raise SystemExit(main.main())
"""


@pytest.mark.parametrize("python", ["micropython", "cpython"])
def test_the_host_sketch_reports_readings_that_fail(
    python: str, stand: Stand, tmp_path: Path
) -> None:
    device = stand.device(python)
    script = tmp_path / "host.py"
    script.write_text(HOST.format(port=stand.port, device=device))
    topics = f"sensors/{device}", f"status/{device}"
    with Observer(stand.host, stand.port, *topics) as seen:
        printed(python, HEAP, script, folders=[BOARDS / "host", LIB], timeout=ANSWER)
        seen.until(lambda: len(seen.messages) == 4)
        assert [json.loads(sent)["x"] for sent in seen.payloads(topics[0])] == [2, 4]
        assert seen.payloads(topics[1]) == [b"failed 1", b"failed 2"]


@on_boards(*NAMES)
def test_a_sensor_that_is_not_there_is_no_failure(name: str, stand: Stand) -> None:
    """Nor is a bus on which nothing can be looked for, or a watchdog that is not asked for."""
    board, watcher = stand.started(name, "broken['i2c'] = OSError(5)", watchdog=False)
    watcher.status(b"online")
    assert set(watcher.pack()) == {"chip/temp", "boot", "seq"}
    assert not any(line.startswith("@watchdog") for line in board.output)


@on_boards("pico_w", "esp32_c3", "pico")
def test_the_steps_from_reset_to_puback_are_printed(name: str, stand: Stand) -> None:
    """The rig puts itself before the board's sketch, and changes nothing else."""
    board, watcher = stand.watched(name, sleep=True)
    steps.make(name, board.folder)
    board.boot()
    assert watcher.pack()["seq"][0] == 1
    board.await_("deepsleep")
    assert board.next() is None
    told = steps.read("".join(board.output))
    assert list(told) == [
        "main.py", "imported and made", "Wi-Fi", "connected", "read and published",
        "acknowledged", "asleep",
    ]  # fmt: skip
    times = list(told.values())
    assert times == sorted(times)


def test_settings_that_are_missing_are_named(stand: Stand) -> None:
    board = stand.board("pico_w")
    (board.folder / "settings.json").write_text('{"wifi": {"password": "s3cret"}}')
    with switched_on(board):
        assert board.next() is None
    assert board.output[-1] == "SettingsError: /settings.json: wifi.ssid is missing\n"
    assert "s3cret" not in "".join(board.output)


@pytest.mark.parametrize("name", WITHOUT_RADIO)
def test_over_the_serial_line_and_the_bridge(
    name: str, near: Broker, stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link that main.py names, at a terminal; what the sketch prints goes between frames."""
    board, watcher = stand.watched(name, serial=True)
    (board.folder / "setup").write_text(SETUP)
    monkeypatch.setattr(ptys, "HEAP", HEAP)
    words = [str(HERE / "run_board.py"), str(board.folder), str(HERE / "fakes"), name, "deaf"]
    with ptys.bench(near, *words) as (_, process, bridge):
        watcher.status(b"online")
        assert watcher.command("led", b"on") == b"done"
        assert watcher.pack(lambda pack: pack["seq"][0] > 1)["chip/temp"][0] == Decimal("27.60")
        assert f"@watchdog {WATCHDOG[name]}" in bridge.printed()
        process.reset()
    watcher.status(b"offline")


# Crashes: what the watchdog of each board leaves when it has run out.
RAN_OUT = {
    "pico_w": "mem32[0x4005801c] = 0x6ab73121",
    "pico_2_w": "mem32[0x400d801c] = 0x6ab73121",
    "esp32": "pass",
}
BY_WATCHDOG = "import machine; machine._cause = machine.WDT_RESET"


@on_boards("pico_w", "esp32_c3", "pico")
def test_a_crash_is_published_after_the_reset(name: str, stand: Stand) -> None:
    board, watcher = stand.started(name, parts="crashes")
    watcher.pack()
    board.do("raise ValueError('the pool is empty')")
    assert board.next() is not None  # it starts its watchdog
    while board.next() is not None:
        pass
    assert board.output[-1] == "ValueError: the pool is empty\n"
    assert watcher.retained("crash") is None
    board.boot()
    record = json.loads(watcher.next("crash"))
    assert record["cause"] == "exception"
    assert record["trace"].endswith("ValueError: the pool is empty")
    assert "in turn\n" in record["trace"]
    assert record["heap"] > 1000
    assert 0 <= record["uptime"] < ANSWER
    assert json.loads(watcher.retained("crash") or b"") == record
    board.until("'crash.json' not in __import__('os').listdir('/')")


@pytest.mark.parametrize("name", RAN_OUT)
def test_a_reset_by_the_watchdog_is_published_once(name: str, stand: Stand) -> None:
    setup = f"{BY_WATCHDOG};{RAN_OUT[name]}"
    board, watcher = stand.started(name, setup, parts="crashes")
    assert json.loads(watcher.next("crash"))["cause"] == "watchdog"
    if name in PICOS:  # a soft reset leaves the cause, and the numbers that the chip has now
        board.until("mem32[0x400{}801c] == 0".format("d" if "2" in name else "5"))


def test_the_version_is_that_of_the_slot_that_runs(stand: Stand) -> None:
    board, watcher = stand.watched("esp32", parts="crashes")
    (board.folder / "slot").write_text('{"version": "1.7"}')
    board.boot(f"{BY_WATCHDOG};import slots")
    assert json.loads(watcher.next("crash"))["version"] == "1.7"


@pytest.mark.parametrize("name", RAN_OUT)
def test_a_board_that_slept_has_not_crashed(name: str, stand: Stand) -> None:
    board, watcher = stand.started(name, sleep=True, parts="crashes")
    for _ in range(2):
        watcher.status(b"asleep")
        board.await_("deepsleep")
        assert board.next() is None
        board.boot()
    assert watcher.payloads(f"dev/{watcher.device}/crash") == []


@pytest.mark.parametrize("name", ["pico_w", "esp32"])
def test_what_is_printed_is_shown_over_the_broker(name: str, stand: Stand) -> None:
    """With what was printed before; a failing part is printed by the sketch itself."""
    setup = "import flatmq.log; flatmq.log.os = Terminal()"
    board, watcher = stand.started(name, setup, parts="crashes, logs")
    watcher.pack()
    assert watcher.payloads(f"dev/{watcher.device}/log") == []
    out = io.StringIO()
    desk = Desk(Broker(stand.host, stand.port))
    with typed_command.at_work(remote_logs.main, desk, watcher.device, None, out):
        watcher.next("log", lambda piece: b"boot" in piece)
        board.do("broken['led'] = OSError(5)")
        watcher.next("log", lambda piece: b"led failed" in piece)
    assert f"{watcher.device}: boot " in out.getvalue()
    assert out.getvalue().endswith("led failed\n")


def test_logs_are_not_for_a_board_whose_terminal_is_its_link(stand: Stand) -> None:
    board = stand.board("pico", serial=True, parts="logs")
    with switched_on(board):
        assert board.next() is None
    assert "link must not be the terminal" in board.output[-1]


@pytest.mark.parametrize("name", ["pico_w", "esp32"])
def test_the_clock_is_set_by_the_broker(name: str, stand: Stand) -> None:
    desk = Desk(Broker(stand.host, stand.port))
    with typed_command.at_work(timing.main, desk, None, Console(file=io.StringIO())):
        before = datetime.now(timezone.utc)
        board, _ = stand.started(name, parts="time")
        shown = [int(word) for word in board.await_("clock").split()[1:]]
        found = datetime(*shown[:3], *shown[4:7], tzinfo=timezone.utc)
        assert before - timedelta(seconds=1) <= found <= datetime.now(timezone.utc)
        assert shown[3] == found.isoweekday()


def test_a_part_that_is_unknown_is_named(stand: Stand) -> None:
    board = stand.board("pico_w", parts="crashs")
    with switched_on(board):
        assert board.next() is None
    assert board.output[-1].startswith("ValueError: device.parts: crashs is not one of")


@pytest.mark.parametrize("record", [None, "{", "{}"])
def test_a_part_that_cannot_be_loaded_does_not_stop_the_rest(
    record: str | None, stand: Stand
) -> None:
    board, watcher = stand.watched("pico_w", parts="logs,updates,prompt,time")
    (board.folder / "lib" / "flatmq" / "log.mpy").unlink()
    if record:
        (board.folder / "ota.json").write_text(record)
    board.boot()
    watcher.status(b"online, failed: logs 1, prompt 1, updates 1")
    assert watcher.pack(lambda pack: pack["seq"][0] == 2)
    assert watcher.command("led", b"on") == b"done"
    assert "logs: ImportError(\"no module named 'flatmq.log'\",)\n" in board.output
    assert "updates failed\n" in board.output


def test_a_new_version_whose_part_cannot_be_loaded_makes_way(stand: Stand) -> None:
    board = stand.board("pico_w", parts="updates")
    (board.folder / "slot").write_text('{"state": "new"}')
    with switched_on(board, "import slots"):
        assert board.next() is None
    assert board.output[-1] == "OSError: /ota.json is missing or damaged\n"
