"""The parts that sketches share, one by one: settings, boot id, the chips' and sensors' sums."""

import bisect
import importlib
import json
import runpy
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketches import bme280_registers as reference
from sketches.board_bench import BOARDS, HERE, ROM, SHARED

SMALL = 1 << 30  # an int at or past it is on the heap of a 32-bit board


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a shared module, with the fakes instead of a board's."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(HERE / "fakes"))
    monkeypatch.syspath_prepend(str(SHARED))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith((str(SHARED), str(HERE / "fakes"))):
            del sys.modules[name]


@pytest.mark.parametrize("days", [0, 7, 12])
def test_the_time_is_asked_for_after_days_without_a_network(
    days: int, shared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ticks wrap in 12 days: what was due half of that ago looks like the future."""
    module = shared("clock")
    asked = []
    year = SimpleNamespace(gmtime=lambda: (2000,))
    monkeypatch.setattr(module, "time", year)
    monkeypatch.setitem(
        sys.modules, "ntptime", SimpleNamespace(settime=lambda: asked.append(1), host="")
    )
    now = 1000
    monkeypatch.setattr(module, "ticks_ms", lambda: now & 0x3FFFFFFF)
    clock = module.Clock("pool")
    now += days * 86_400_000
    assert (clock.poll(), len(asked)) == (False, 1)
    now += 14_999
    assert (clock.poll(), len(asked)) == (False, 1)
    now += 1
    assert (clock.poll(), len(asked)) == (False, 2)


def _load(name: str) -> SimpleNamespace:
    """Load a module that imports nothing of a board."""
    return SimpleNamespace(**runpy.run_path(str(SHARED / f"{name}.py")))


# Settings

settings = _load("settings")


def _read(tmp_path: Path, text: str, *needed: str) -> dict[str, Any]:
    (tmp_path / "settings.json").write_text(text)
    found: dict[str, Any] = settings.load(*needed, path=str(tmp_path / "settings.json"))
    return found


def test_the_example_has_every_key_and_its_default(tmp_path: Path) -> None:
    text = (BOARDS / "settings.example.json").read_text()
    assert json.loads(text) == _read(tmp_path, "{}")
    assert _read(tmp_path, text) == _read(tmp_path, "{}")


def test_what_the_file_says_is_what_is_read(tmp_path: Path) -> None:
    told = {"device": {"interval": 5, "sleep": True}, "wifi": {"ssid": "home", "password": "pw"}}
    found = _read(tmp_path, json.dumps(told), "wifi.ssid")
    assert (found["device"]["interval"], found["device"]["sleep"]) == (5, True)
    assert found["wifi"] == {"ssid": "home", "password": "pw", "country": ""}
    assert found["broker"]["port"] == 1883


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({}, "wifi.ssid is missing"),
        ({"wifi": {"password": "s3cret"}}, "wifi.ssid is missing"),
        ({"wifi": {"ssid": "", "password": "s3cret"}}, "wifi.ssid is empty"),
        ({"wifi": {"sid": "x"}}, "wifi.sid is unknown, the keys are country, password, ssid"),
        ({"wlan": {}}, "wlan is unknown, the keys are broker, device, wifi"),
        ({"wifi": "s3cret"}, "wifi must be an object"),
        ({"wifi": {"ssid": "x", "password": 12345678}}, "wifi.password must be text in quotes"),
        ({"broker": {"port": 0}}, "broker.port must be a whole number from 1 to 65535"),
        ({"broker": {"port": True}}, "broker.port must be a whole number"),
        ({"device": {"interval": "60"}}, "device.interval must be a whole number from 1 to"),
        ({"device": {"sleep": 1}}, "device.sleep must be true or false"),
        ({"device": {"name": "a/b"}}, "device.name must be letters"),
        ({"device": {"name": "-a"}}, "device.name must be letters"),
        ({"device": {"name": "ä"}}, "device.name must be letters"),
        ({"wifi": {"country": "DEU"}}, "wifi.country must be two letters"),
        ({"wifi": {"country": "d"}}, "wifi.country must be two letters"),
        ({"wifi": {"country": "äö"}}, "wifi.country must be two letters"),
    ],
)
def test_an_error_names_the_key_and_no_value(told: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(settings.SettingsError) as error:
        _read(tmp_path, json.dumps(told), *(["wifi.ssid"] if "wifi.ssid" in named else []))
    assert named in str(error.value)
    assert "s3cret" not in str(error.value)
    assert "12345678" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", '{"wifi": {"password": "s3cret}}', "[]", "1"])
def test_a_file_that_is_not_json_is_not_shown(text: str, tmp_path: Path) -> None:
    with pytest.raises(settings.SettingsError) as error:
        _read(tmp_path, text)
    assert "settings.json" in str(error.value)
    assert "s3cret" not in "".join(traceback.format_exception(error.value))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(settings.SettingsError, match=r"is missing: copy settings\.example\.json"):
        settings.load(path=str(tmp_path / "settings.json"))


def test_a_repository_does_not_take_the_file() -> None:
    assert "boards/settings.json" in (BOARDS.parent / ".gitignore").read_text().split()


# The boot id

boot_id = _load("boot_id")


def test_boots_are_counted(tmp_path: Path) -> None:
    path = str(tmp_path / "boot_id")
    first = boot_id.next_boot(path)
    assert [boot_id.next_boot(path) for _ in range(3)] == [first + 1, first + 2, first + 3]


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1073741824", "1" * 5000])
def test_a_spoiled_file_begins_anywhere(text: str, tmp_path: Path) -> None:
    path = tmp_path / "boot_id"
    path.write_text(text)
    boot = boot_id.next_boot(str(path))
    assert 0 < boot < SMALL
    assert boot_id.next_boot(str(path)) == boot + 1


def test_the_last_boot_is_followed_by_the_first(tmp_path: Path) -> None:
    path = tmp_path / "boot_id"
    path.write_text(str(SMALL - 1))
    assert boot_id.next_boot(str(path)) == 1


@pytest.mark.parametrize("path", ["no-folder/boot_id", "{}"])
def test_without_a_file_boots_begin_anywhere(path: str, tmp_path: Path) -> None:
    """Also where none can be written."""
    assert len({boot_id.next_boot(str(tmp_path / path.format(n))) for n in range(8)}) > 6


# The chips


class _Pack:
    """Takes numbers as a Pack does."""

    def __init__(self) -> None:
        self.numbers: list[float] = []

    def number(self, label: bytes, value: int, decimals: int = 0) -> bool:
        assert type(value) is int
        self.numbers.append(value / 10**decimals)
        return True


def test_the_temperature_of_a_pico(shared: Any) -> None:
    bench = shared("bench")
    chip = shared("chip_rp2").Chip()
    for raw in range(10000, 18000):
        bench.adc[4] = raw
        pack = _Pack()
        assert chip.read(pack)
        assert abs(pack.numbers[0] - (27 - (raw * 3.3 / 65535 - 0.706) / 0.001721)) < 0.02


@pytest.mark.parametrize("fahrenheit", range(-40, 260, 7))
def test_the_temperature_of_an_esp32(fahrenheit: int, shared: Any) -> None:
    shared("bench").raw_temperature = fahrenheit
    pack = _Pack()
    assert shared("chip_esp32").Chip().read(pack)
    assert abs(pack.numbers[0] - (fahrenheit - 32) / 1.8) <= 0.1


@pytest.mark.parametrize(
    ("part", "timeout", "control"),
    [("RP2040", 8300, 0x40058000), ("RP2350", 16700, 0x400D8000)],
)
def test_a_pico_finds_out_which_chip_it_is(
    part: str, timeout: int, control: int, shared: Any
) -> None:
    bench = shared("bench")
    for revision in (0, 8, 15):
        bench.mem32[0x40000000] = getattr(bench, part) & 0xFFFFFFF | revision << 28
        chip = shared("chip_rp2").Chip()
        chip.watch()
        assert bench.timeout == timeout
        chip.release()
        assert bench.mem32[control + 0x3000] == 1 << 30


def test_a_pico_sleeps_in_slices_and_feeds_the_watchdog_between_them(
    shared: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A day; time passes in `lightsleep` alone."""
    bench, machine, chip_rp2 = (shared(name) for name in ("bench", "machine", "chip_rp2"))
    now = [0]

    def sleep(ms: int) -> None:
        now[0] += ms
        assert now[0] - fed[0] <= bench.timeout

    def feed() -> None:
        fed[0] = now[0]

    fed = [0]
    monkeypatch.setattr(machine, "lightsleep", sleep)
    monkeypatch.setattr(bench, "turn", feed)
    monkeypatch.setattr(chip_rp2, "ticks_ms", lambda: now[0])
    chip = chip_rp2.Chip()
    chip.watch()
    with pytest.raises(SystemExit):
        chip.sleep(86_400_000)
    slept = capsys.readouterr().out.split()
    assert slept[-2] == "@deepsleep"
    assert now[0] + int(slept[-1]) == 86_400_000
    assert int(slept[-1]) < bench.timeout


# The BME280

bme280_source = (SHARED / "bme280.py").read_text().split("def fine_temperature")[1]
_sums: dict[str, Any] = {}
exec("def fine_temperature" + bme280_source.split("def probe")[0], _sums)


class Watched(int):
    """An int that notes how large it and what is made of it gets."""

    largest = 0


def _watched(name: str) -> Any:
    plain = getattr(int, name)

    def operation(self: int, other: int) -> Any:
        result = plain(self, other)
        if result is NotImplemented:  # with a float
            return result
        Watched.largest = max(Watched.largest, abs(result))
        return Watched(result)

    return operation


for _name in ("add", "sub", "mul", "rshift", "lshift", "or", "and", "floordiv"):
    setattr(Watched, f"__{_name}__", _watched(f"__{_name}__"))
    setattr(Watched, f"__r{_name}__", _watched(f"__r{_name}__"))


def _raw_temperature(degrees: float) -> int:
    return bisect.bisect(range(1 << 20), degrees * 5120, key=reference.fine)


@pytest.mark.parametrize("bus", ["I2C", "1-Wire"])
def test_a_bus_that_fails_once_does_not_lose_its_sensor(
    bus: str, shared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, machine, ds18x20 = (shared(name) for name in ("bench", "machine", "ds18x20"))
    bench.i2c[0x76] = bytearray(reference.registers(415148, 519888, 30000))
    bench.one_wire[ROM] = bytes(9)
    i2c = machine.I2C(0, sda=4, scl=5)
    of, name = (i2c, "readfrom_mem") if bus == "I2C" else (ds18x20.DS18X20, "scan")
    right, errors = getattr(of, name), [OSError(5)]

    def read(*given: Any) -> Any:
        if errors:
            raise errors.pop()
        return right(*given)

    monkeypatch.setattr(of, name, read)
    if bus == "I2C":
        assert shared("bme280").probe(i2c)
    else:
        assert shared("ds18b20").probe(machine.Pin(22))


def test_the_example_of_the_datasheet() -> None:
    """519888 and 415148 are 25.08 degrees and 100653 Pa, in the 32-bit formula 100656."""
    fine = _sums["fine_temperature"](reference.T, 519888)
    assert fine * 5 + 128 >> 8 == 2508
    assert abs(_sums["pressure"](reference.P, fine, 415148) - 100653) <= 3


@given(st.floats(-40, 85), st.integers(200000, 800000), st.integers(0, 65535))
def test_as_in_floating_point_and_in_small_ints(degrees: float, p: int, h: int) -> None:
    """Within what the sensor can measure, which the datasheet says is 300 to 1100 hPa."""
    raw = _raw_temperature(degrees)
    fine = reference.fine(raw)
    wanted = reference.pressure(fine, p)
    Watched.largest = 0
    t = tuple(map(Watched, reference.T))
    fixed = _sums["fine_temperature"](t, Watched(raw))
    assert abs(fixed - fine) <= 26  # 0.005 degrees
    if 30000 <= wanted <= 110000:
        found = _sums["pressure"](tuple(map(Watched, reference.P)), fixed, Watched(p))
        assert abs(found - wanted) <= 12
        assert Watched.largest < SMALL
    Watched.largest = 0
    humidity = _sums["humidity"](tuple(map(Watched, reference.H)), fixed, Watched(h))
    assert abs(humidity / 1024 - reference.humidity(fine, h)) < 0.1
    assert Watched.largest < SMALL or humidity == 100 * 1024
