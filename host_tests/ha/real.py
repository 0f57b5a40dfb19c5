"""`python -m ha.real`: Home Assistant itself, with boards on MicroPython and a mosquitto.

Home Assistant is installed into build/home-assistant, with the Python 3.13 that is on the PATH.
With FLATMQ_FIRMWARE, it also updates an emulated Pico W.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from conftest import ROOT, interpreter_command, library
from emulate import updates
from flatmq_rigs import emulated
from flatmq_tools import broker, interpreter, ports
from flatmq_tools.ota import package
from observer import Observer
from pipeline.look import browser
from sketches.board_bench import ATTACHED, Board, settings

VERSION = "2025.4.4"
VENV = ROOT / "build" / "home-assistant"
TANK = Path(__file__).parent / "tank.py"
CONFIG = "homeassistant/device/tank-1/config"
HEAP = "192k"
PATIENCE = 180.0  # s
# Without the tests' own modules, of which one is called "wheel".
OUTSIDE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
OF_TANK = {
    "sensor.tank_level": "1.234",
    "sensor.tank_water": "clear",
    "binary_sensor.tank_leak": "off",
    "switch.tank_pump": "off",
    "switch.tank_valve": "on",
    "light.tank_lamp": "off",
    "number.tank_target": "21.5",
    "button.tank_restart": "unknown",
    "select.tank_mode": "eco",
    "update.tank_firmware": "on",
}
OF_STATION = {
    "sensor.station_chip_temperature": "27.6",
    "sensor.station_ds18b20_28ff641e8216c3a1_temperature": "-10.125",
    "sensor.station_dht22_temperature": "-4.1",
    "sensor.station_dht22_humidity": "65.2",
    "sensor.station_bme280_temperature": "25.08",
    "sensor.station_bme280_humidity": "49.87",
    "sensor.station_bme280_pressure": "100656",
    "switch.station_led": "off",
    "button.station_identify": "unknown",
    "number.station_interval": "1",
}


PROGRAM = "update.pico_1_program"  # of the emulated board


class NotHereError(Exception):
    """Home Assistant cannot be installed; the text says why."""


def python() -> str:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for found in (shutil.which("python3.13"), *versions.glob("3.13.*/bin/python3.13")):
        test = [str(found), "-c", "import venv"]
        if found and subprocess.run(test, check=False, capture_output=True).returncode == 0:
            return str(found)
    raise NotHereError("needs Python 3.13 as python3.13 on the PATH")


def installed() -> Path:
    """Return the command hass, which is installed if it is not there."""
    if not (VENV / VERSION).exists():
        subprocess.run([python(), "-m", "venv", "--clear", VENV], check=True)
        packages = [f"homeassistant=={VERSION}"]  # it installs what it needs besides
        subprocess.run([VENV / "bin" / "pip", "install", "-q", *packages], check=True, env=OUTSIDE)
        (VENV / VERSION).touch()
    return VENV / "bin" / "hass"


class HomeAssistant:
    """Home Assistant at a port of its own, whose files are in `folder`."""

    def __init__(self, folder: Path, to: broker.Broker) -> None:
        self._folder = folder
        self._port = ports.HeldPort()
        self._url = f"http://{broker.LOOPBACK}:{self._port.number}"
        self._token = ""
        self._process: subprocess.Popen[bytes] | None = None
        (folder / ".storage").mkdir(parents=True)
        (folder / "www").mkdir()  # served as /local
        (folder / "configuration.yaml").write_text(
            f"http:\n  server_host: {broker.LOOPBACK}\n  server_port: {self._port.number}\n"
            "logger:\n  default: warning\n"
        )
        entry = {
            "created_at": "2025-01-01T00:00:00+00:00", "modified_at": "2025-01-01T00:00:00+00:00",
            "data": {"broker": to.host, "port": to.port}, "disabled_by": None,
            "discovery_keys": {}, "domain": "mqtt", "entry_id": "01JBROKER00000000000000000",
            "minor_version": 2, "options": {"discovery": True}, "pref_disable_new_entities": False,
            "pref_disable_polling": False, "source": "user", "subentries": [], "title": "broker",
            "unique_id": None, "version": 1,
        }  # fmt: skip
        (folder / ".storage" / "core.config_entries").write_text(
            json.dumps(
                {
                    "version": 1,
                    "minor_version": 5,
                    "key": "core.config_entries",
                    "data": {"entries": [entry]},
                }
            )
        )

    def start(self) -> None:
        """Start it, and wait until it has a connection to the broker."""
        command = [installed(), "-c", self._folder]
        with (self._folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                command, env=OUTSIDE, stdout=output, stderr=subprocess.STDOUT
            )
        if not self._token:
            self._onboard()
        until(lambda: self.template("{{ states('sun.sun') }}") is not None, "Home Assistant")

    def _onboard(self) -> None:
        """Make a user, as its first page does, and a token."""
        client = self._url + "/"
        user = {"name": "Ada", "username": "ada", "password": "ada", "language": "en"}

        def made() -> dict[str, Any] | None:
            return self._ask("/api/onboarding/users", {"client_id": client, **user})

        until(lambda: self._ask("/api/onboarding") is not None, "onboarding")
        code = (made() or {})["auth_code"]
        form = {"client_id": client, "grant_type": "authorization_code", "code": code}
        data = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(self._url + "/auth/token", data, 30) as answer:
            self._token = json.load(answer)["access_token"]

    def _ask(self, path: str, data: Any = None) -> Any:
        """Return the answer to a request; None if there is none, or an error."""
        request = urllib.request.Request(self._url + path)
        if data is not None:
            request.data = json.dumps(data).encode()
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        try:
            return json.loads(text)
        except ValueError:
            return text

    def show(self, picture: Path) -> None:
        """Make a picture of its first page, for somebody who has logged in."""
        program = browser()
        assert program, "a picture needs a Chromium: install it, or name the program in CHROMIUM"
        for step in ("core_config", "analytics"):
            self._ask(f"/api/onboarding/{step}", {})
        where = {"client_id": self._url + "/", "redirect_uri": self._url + "/"}
        self._ask("/api/onboarding/integration", where)
        tokens = {
            "access_token": self._token, "refresh_token": "", "token_type": "Bearer",
            "expires_in": 1800, "expires": int((time.time() + 1800) * 1000),
            "hassUrl": self._url, "clientId": self._url + "/",
        }  # fmt: skip
        script = f"localStorage.setItem('hassTokens', {json.dumps(json.dumps(tokens))})"
        page = self._folder / "www" / "login.html"
        page.write_text(f"<script>{script}; location.replace('/lovelace/0')</script>")
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 f"--user-data-dir={profile}", "--window-size=860,640",
                 "--virtual-time-budget=30000", f"--screenshot={picture.absolute()}",
                 f"{self._url}/local/login.html"],
                check=True, capture_output=True, timeout=PATIENCE,
            )  # fmt: skip

    def states(self) -> dict[str, str]:
        found = self._ask("/api/states") or []
        return {each["entity_id"]: each["state"] for each in found}

    def has(self, wanted: dict[str, str]) -> bool:
        """Return whether entities have these states."""
        return wanted.items() <= self.states().items()

    def call(self, entity: str, service: str, **data: Any) -> None:
        path = f"/api/services/{entity.partition('.')[0]}/{service}"
        assert self._ask(path, {"entity_id": entity, **data}) is not None, (entity, service)

    def template(self, text: str) -> str | None:
        found = self._ask("/api/template", {"template": text})
        return None if found is None else str(found)

    def complaints(self) -> list[str]:
        text = (self._folder / "output.txt").read_text("utf-8")
        return [line for line in text.splitlines() if "mqtt" in line]

    def stop(self) -> None:
        """End it as its service does."""
        if self._process:
            self._process.terminate()
            self._process.wait(60)
            self._process = None


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


class Tank:
    """The program of the tank, which runs or not."""

    def __init__(self, to: broker.Broker, output: Path) -> None:
        self._to = to
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, name: str = "Tank", *more: str) -> None:
        command = [*interpreter_command("micropython", HEAP), str(TANK)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, self._to.host, str(self._to.port), name, *more],
                env=interpreter.environment(library("micropython")),
                stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def printed(self, line: str) -> bool:
        return line in self._output.read_text().splitlines()

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def bench() -> Iterator[tuple[HomeAssistant, Tank, Board, Observer]]:
    """Everything, of which Home Assistant runs."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        to = stack.enter_context(broker.mosquitto())
        home = HomeAssistant(folder / "home", to)
        stack.callback(home.stop)
        tank = Tank(to, folder / "tank.txt")
        stack.callback(tank.kill)
        given = settings("station", to.host, to.port, parts="ha")
        station = Board("pico_w", folder / "station", given, to.port)
        stack.callback(station.kill)
        seen = stack.enter_context(Observer(to.host, to.port, CONFIG, "dev/#"))
        seen.publish("dev/tank-1/latest", "1.1", retain=True)
        home.start()
        yield home, tank, station, seen


def entities_appear(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    tank.start()
    station.boot(ATTACHED)
    for wanted in (OF_TANK, OF_STATION):
        until(lambda wanted=wanted: set(wanted) <= set(home.states()), str(set(wanted)))


def values(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    for wanted in (OF_TANK, OF_STATION):
        until(lambda wanted=wanted: home.has(wanted), f"{wanted}, but {home.states()}")
    unit = "{{ state_attr('sensor.station_chip_temperature', 'unit_of_measurement') }}"
    assert home.template(unit) == "°C"


def a_sensor_does_not_answer(
    home: HomeAssistant, tank: Tank, station: Board, seen: Observer
) -> None:
    station.do("dht = bytes(4) + b'x'")
    until(lambda: home.has({"sensor.station_dht22_temperature": "unknown"}), "unknown")


def commands(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    for entity, service, data, printed, state in (
        ("switch.tank_pump", "turn_on", {}, "pump True", "on"),
        ("light.tank_lamp", "turn_on", {"brightness": 120}, "lamp 120", "on"),
        ("light.tank_lamp", "turn_off", {}, "lamp 0", "off"),
        ("light.tank_lamp", "turn_on", {}, "lamp 120", "on"),
        ("number.tank_target", "set_value", {"value": 22.5}, "target 225", "22.5"),
        ("select.tank_mode", "select_option", {"option": "fast"}, "mode b'fast'", "fast"),
        ("update.tank_firmware", "install", {}, "install", "off"),
        ("button.tank_restart", "press", {}, "restart", None),
        ("switch.station_led", "turn_on", {}, None, "on"),
        ("number.station_interval", "set_value", {"value": 2}, None, "2"),
        ("button.station_identify", "press", {}, None, None),
    ):
        home.call(entity, service, **data)
        if printed:
            until(lambda line=printed: tank.printed(line), printed)
        if state:
            until(lambda at=entity, state=state: home.has({at: state}), f"{entity} {state}")
    seen.until(lambda: b"identify: done" in seen.payloads("dev/station/answer"))
    brightness = "{{ state_attr('light.tank_lamp', 'brightness') }}"
    assert home.template(brightness) == "120"


AFTER = {
    **{name: OF_TANK[name] for name in ("sensor.tank_level", "sensor.tank_water")},
    "switch.tank_pump": "on", "light.tank_lamp": "on", "number.tank_target": "22.5",
    "switch.station_led": "on", "sensor.station_bme280_temperature": "25.08",
}  # fmt: skip


def home_assistant_restarts(
    home: HomeAssistant, tank: Tank, station: Board, seen: Observer
) -> None:
    sent = len(seen.payloads(CONFIG))
    home.stop()
    home.start()
    until(lambda: home.has(AFTER), f"{AFTER}, but {home.states()}")
    until(lambda: len(seen.payloads(CONFIG)) == sent + 1, "the message again")


def a_board_resets(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    tank.kill()
    until(lambda: home.has(dict.fromkeys(OF_TANK, "unavailable")), "unavailable")
    tank.start()
    until(lambda: home.has({"switch.tank_pump": "off", "sensor.tank_level": "1.234"}), "back")


def a_board_is_renamed(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    count = len(home.states())
    tank.kill()
    tank.start("Cistern")
    name = "{{ device_attr(device_id('sensor.tank_level'), 'name') }}"
    until(lambda: home.template(name) == "Cistern", "Cistern")
    until(lambda: home.has({"sensor.tank_level": "1.234"}), "back")
    assert len(home.states()) == count


def a_component_is_gone(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    tank.kill()
    tank.start("Cistern", "removed")
    until(lambda: "switch.tank_valve" not in home.states(), "without a valve")
    until(lambda: home.has({"sensor.tank_level": "1.234"}), "the others")
    assert {*OF_TANK} - {*home.states()} == {"switch.tank_valve"}


def a_board_dies(home: HomeAssistant, tank: Tank, station: Board, seen: Observer) -> None:
    station.kill()
    until(lambda: home.has(dict.fromkeys(OF_STATION, "unavailable")), "unavailable")
    assert home.has({"sensor.tank_level": "1.234"})


def nothing_to_complain_about(
    home: HomeAssistant, tank: Tank, station: Board, seen: Observer
) -> None:
    assert home.complaints() == []


ROWS = (
    entities_appear,
    values,
    a_sensor_does_not_answer,
    commands,
    home_assistant_restarts,
    a_board_resets,
    a_board_is_renamed,
    a_component_is_gone,
    a_board_dies,
    nothing_to_complain_about,
)


def an_emulated_board_is_updated() -> None:
    """Its update waits until somebody installs it."""
    firmware = emulated.firmware("pico_w")
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(1) as desk:
        folder = Path(name)
        board = updates.Board(firmware, folder, [], sketch=("--set", "device.parts=ha"))
        home = HomeAssistant(folder / "home", board.near)
        try:
            home.start()
            until(lambda: home.has({PROGRAM: "off"}), "version 1")
            pushed = desk.submit(board.update, package.make("pico_w", None, "2"), folder)
            until(lambda: home.has({PROGRAM: "on"}), "version 2 is offered")
            assert not pushed.done()
            home.call(PROGRAM, "install")
            assert pushed.result() == (0, f"{updates.NAME} runs 2")
            until(lambda: home.has({PROGRAM: "off"}), "version 2 is installed")
            assert home.complaints() == []
        finally:
            home.stop()
            board.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run every row, and show them; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="home-assistant", description=__doc__)
    parser.add_argument("--picture", type=Path, help="File for a picture of its first page.")
    picture = parser.parse_args(arguments).picture
    try:
        installed()
    except NotHereError as error:
        print(error, file=sys.stderr)
        return os.EX_UNAVAILABLE
    table = Table(f"Home Assistant {VERSION}", "s", "")
    bad = 0

    def run(row: Callable[..., None], *things: object) -> None:
        nonlocal bad
        began = time.monotonic()
        result = "ok"
        try:
            row(*things)
        except emulated.NotHereError as error:
            result = f"not run: {error}"
        except AssertionError as error:
            print(f"{row.__name__}: {error}")
            result = "FAILED"
            bad = 1
        table.add_row(row.__name__.replace("_", " "), f"{time.monotonic() - began:.0f}", result)

    with bench() as things:
        for row in ROWS:
            if picture and row is a_sensor_does_not_answer:
                things[0].show(picture)
            run(row, *things)
            if bad:  # the next rows go on from here
                break
    run(an_emulated_board_is_updated)
    Console(width=100).print(table)
    return bad


if __name__ == "__main__":
    sys.exit(main())
