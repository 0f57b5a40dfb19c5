"""The programs in examples/ do at real brokers what they say.

Those for a board run on MicroPython with a fake radio and fake pins; the others on both
interpreters. Addresses, and what else is particular to a home, are replaced.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from aio.test_asyncio_page import running
from conftest import PYTHONS, ROOT
from flatmq_rigs.proxy import Proxy
from flatmq_tools import broker
from flatmq_tools.ota import keys
from ha import documented
from observer import Observer
from ota.desk import Desk
from sketches.board_bench import HERE as SKETCHES
from sketches.board_bench import Board
from tls.secure_broker import SecureBroker

EXAMPLES = ROOT / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
BROKER = '"192.168.1.10"'
OTHER = '"192.168.1.11"'
# In a loop without a watchdog: has the bench read its lines.
_TURN = "__import__('bench').turn()"
# Of a board whose modules are in a slot.
_FAKES = f"import sys\nsys.path.append({str(SKETCHES / 'fakes')!r})\n"


def _example(name: str, **changes: str) -> str:
    """Return a program with some texts, each of which it must have once, replaced."""
    text = (EXAMPLES / f"{name}.py").read_text("utf-8")
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _code(name: str) -> str:
    """Return a program without the docstring."""
    return _example(name).split('"""', 2)[2].strip()


def _at(near: broker.Broker | Proxy) -> str:
    return f'"{near.host}", {near.port}'


@contextmanager
def _running(python: str, code: str, folder: Path) -> Iterator[Path]:
    """Run a program during the block; yield the file with what it prints."""
    program, output = folder / "program.py", folder / "output.txt"
    program.write_text(code)
    with running(python, program, output):
        yield output


@contextmanager
def _on_board(code: str, folder: Path, setup: str = "") -> Iterator[Board]:
    """Run a program as the main.py of a Pico W during the block."""
    board = Board("pico_w", folder / "board", {}, 0)
    (board.folder / "main.py").write_text(code)
    board.first = ""
    board.boot(setup)
    try:
        yield board
    finally:
        board.kill()
        print(*board.output)


def test_each_example_is_short_and_has_its_test_and_its_place_in_the_page() -> None:
    page = (ROOT / "docs" / "examples.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(\w+)\.py`", page, re.M)) == NAMES
    for name in NAMES:
        assert f"test_{name}" in globals()
        assert len(_example(name).splitlines()) <= 50


def test_the_front_pages_show_the_first_one() -> None:
    for page in ("README.md", "docs/index.md"):
        (block,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
        assert block.strip() == _code("first")
    assert len([line for line in _code("first").splitlines() if line]) == 10


@pytest.mark.parametrize("python", PYTHONS)
def test_first(python: str, near: broker.Broker, tmp_path: Path) -> None:
    with (
        Observer(near.host, near.port, "dev/pico-1/#") as desk,
        _running(python, _example("first", **{BROKER: _at(near)}), tmp_path) as output,
    ):
        desk.until(lambda: b"21.5" in desk.payloads("dev/pico-1/temp"))
        desk.until(
            lambda: "hello" in output.read_text(), lambda: desk.send("dev/pico-1/cmd", "hello")
        )


@pytest.mark.parametrize("python", PYTHONS)
def test_two_subscriptions(python: str, near: broker.Broker, tmp_path: Path) -> None:
    code = _example("two_subscriptions", **{BROKER: _at(near)})
    with Observer(near.host, near.port, "attic/#") as desk, _running(python, code, tmp_path):
        for topic, order, state in (
            ("valve", "21", b"open"), ("lamp", "on", b"on"), ("valve", "20", b"closed"),
            ("lamp", "off", b"off"),
        ):  # fmt: skip
            asked = "attic/target" if topic == "valve" else "attic/lamp/set"
            desk.until(
                lambda topic=topic, state=state: state in desk.payloads(f"attic/{topic}"),
                lambda asked=asked, order=order: desk.send(asked, order),
            )


@pytest.mark.parametrize("python", PYTHONS)
def test_answer(python: str, near: broker.Broker, tmp_path: Path) -> None:
    def ask(**command: object) -> None:
        desk.send("dev/pico-1/cmd", json.dumps(command))

    code = _example("answer", **{BROKER: _at(near)})
    with (
        Observer(near.host, near.port, "dev/pico-1/status", "desk/+") as desk,
        _running(python, code, tmp_path),
    ):
        desk.until(lambda: desk.payloads("dev/pico-1/status"))
        desk.until(
            lambda: b"done" in desk.payloads("desk/7"),
            lambda: ask(do="interval", to=1, answer="desk/7"),
        )
        for bad in ({"do": "interval", "to": 0}, {"do": "dance"}):
            ask(**bad, answer="desk/8")
        ask(do="interval", to="x", answer="desk/8")
        desk.send("dev/pico-1/cmd", "no JSON")
        ask(do="interval", to=2, answer="desk/9")
        desk.until(lambda: b"done" in desk.payloads("desk/9"))
        refused = b"refused: interval, 1 to 3600"
        assert desk.payloads("desk/8") == [refused, refused]


@pytest.mark.parametrize("python", PYTHONS)
def test_bridge(python: str, near: broker.Broker, tmp_path: Path) -> None:
    """The connection to the second broker is cut and refused in the middle."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(broker.mosquitto()) for _ in range(2))
        proxy = stack.enter_context(Proxy(second.host, second.port))
        desk = stack.enter_context(Observer(second.host, second.port, "sensors/#", qos=2))
        sender = stack.enter_context(Observer(first.host, first.port, "none"))
        code = _example("bridge", **{BROKER: _at(first), OTHER: _at(proxy)})
        stack.enter_context(_running(python, code, tmp_path))
        desk.until(
            lambda: desk.payloads("sensors/begin"), lambda: sender.send("sensors/begin", "")
        )
        for number in range(60):
            sender.publish(f"sensors/{number % 3}", str(number), qos=2)
            if number == 20:
                proxy.refuse()
                proxy.strike("cut")
            if number == 40:
                proxy.refuse(False)
        desk.until(lambda: desk.payloads("sensors/2")[-1:] == [b"59"])
        passed = [message.payload for message in desk.messages if message.payload]
        assert passed == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("python", PYTHONS)
def test_two_clients(python: str, near: broker.Broker, tmp_path: Path) -> None:
    """The second broker is away at first: the alarm reaches it later."""
    with (
        Proxy(near.host, near.port) as proxy,
        Observer(near.host, near.port, "boiler-7/alarm") as owner,
    ):
        proxy.refuse()
        code = _example("two_clients", **{BROKER: _at(near), OTHER: _at(proxy)})
        with _running(python, code, tmp_path) as output:
            # The one at home works; the other one says that it does not.
            owner.until(
                lambda: "trying again" in output.read_text(),
                lambda: owner.send("boiler/temp", "61"),
            )
            proxy.refuse(False)
            owner.until(
                lambda: owner.payloads("boiler-7/alarm"), lambda: owner.send("boiler/temp", "61")
            )
            owner.until(
                lambda: owner.payloads("boiler-7/alarm")[-1] == b"fine",
                lambda: owner.send("boiler/temp", "60"),
            )
            assert owner.payloads("boiler-7/alarm") == [b"too hot", b"fine"]


@pytest.mark.parametrize("esp32", [False, True])
def test_wifi_tls(esp32: bool, secure: SecureBroker, tmp_path: Path) -> None:
    """Wi-Fi is out of range at first; at the end the power is cut."""
    (pin,) = re.findall(r'PIN = "(.*)"', _example("wifi_tls"))
    changes = {
        pin: secure.pins["broker"],
        '"broker.example"': f'"127.0.0.1", {secure.ports["broker"]}',
        "Every(60000)": "Every(100)",
        "Every(20000)": "Every(50)",
        "    if client.connected and": f"    {_TURN}\n    if client.connected and",
    }
    code = _example("wifi_tls", **changes)
    near = secure.broker
    with Observer(near.host, near.port, "dev/pico-1/#") as desk:
        setup = f"esp32 = {esp32}; in_range = False; adc[4] = 14000"
        with _on_board(code, tmp_path, setup) as board:
            board.until("wifi.count('connect') > 1")
            assert not desk.messages
            board.do("in_range = True")
            desk.until(lambda: desk.payloads("dev/pico-1/temp"))
            assert desk.payloads("dev/pico-1/status") == [b"online"]
            assert 26 < float(desk.payloads("dev/pico-1/temp")[0]) < 30
        desk.until(lambda: desk.payloads("dev/pico-1/status") == [b"online", b"offline"])
        desk.publish("dev/pico-1/status", b"", retain=True)


def test_deep_sleep(near: broker.Broker, tmp_path: Path) -> None:
    """Each wake is a boot; without a broker the board sleeps as well."""
    code = _example("deep_sleep", **{BROKER: _at(near)})
    with (
        Observer(near.host, near.port, "dev/garden-1/#") as desk,
        _on_board(code, tmp_path, "adc[26] = 41000") as board,
    ):
        assert board.await_("deepsleep") == "deepsleep 600000"
        desk.until(lambda: desk.payloads("dev/garden-1/battery") == [b"41000"])
        board.boot("adc[26] = 40900")
        assert board.await_("deepsleep") == "deepsleep 600000"
        desk.until(lambda: desk.payloads("dev/garden-1/battery") == [b"41000", b"40900"])
    (tmp_path / "away").mkdir()
    code = _example("deep_sleep", **{BROKER: '"127.0.0.1", 1', "connect(10000)": "connect(100)"})
    with _on_board(code, tmp_path / "away", "adc[26] = 41000") as board:
        assert board.await_("deepsleep") == "deepsleep 600000"


def test_home_assistant(near: broker.Broker, tmp_path: Path) -> None:
    topic = "homeassistant/device/pump-1/config"
    changes = {BROKER: _at(near), "    device.poll()": f"    device.poll()\n    {_TURN}"}
    code = _example("home_assistant", **changes)
    with (
        Observer(near.host, near.port, "dev/pump-1/#", topic) as hub,
        _on_board(code, tmp_path) as board,
    ):
        hub.until(lambda: hub.payloads("dev/pump-1/count") == [b"0"])
        found = documented.read(topic.encode(), hub.payloads(topic)[-1])["components"]
        hub.publish(found["pump"]["command_topic"], "ON")
        hub.until(lambda: hub.payloads("dev/pump-1/pump") == [b"OFF", b"ON"])
        hub.until(lambda: hub.payloads("dev/pump-1/count")[-1] == b"1")
        assert board.ask("pins[16]") == "True"


class _Updated(Desk):
    """A desk whose board has the example."""

    def text(self, name: str, fault: str, minutes: float) -> str:
        """Return the example with that version."""
        changes = {
            BROKER: _at(self.near),
            'VERSION = "1"': f'VERSION = "{name}"',
            '"/ota.json"': f'"{self.board}/ota.json"',
            "    healthy=": f"    folder={str(self.board)!r},\n    healthy=",
        }
        return f"{_FAKES}{_example('update', **changes)}"


def test_update_joins_again(tmp_path: Path) -> None:
    """The radio of a Pico W does not do that by itself."""
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "ota.json").write_text('{"board": "pico_w", "key": "1"}')
    changes = {
        "    healthy=": "    reset=print,\n    healthy=",
        "Every(20000)": "Every(50)",
        "    updates.poll()": f"    updates.poll()\n    {_TURN}",
    }
    with _on_board(_example("update", **changes), tmp_path) as board:
        board.until("wifi.count('connect') == 1")
        board.do("in_range = False")
        board.until("wifi.count('connect') > 2")


def test_update(near: broker.Broker, tmp_path: Path) -> None:
    keys.generate(tmp_path / "fleet.key")
    desk = _Updated(tmp_path, near, tmp_path / "fleet.key")
    desk.install()
    with Observer(near.host, near.port, "dev/pico-1/version") as hub:
        pushed = desk.push(desk.package())
        assert "@reset" in desk.life()
        assert set(hub.payloads("dev/pico-1/version")) == {b"1"}
        with subprocess.Popen(desk.command(), cwd=desk.board, stdout=subprocess.DEVNULL) as board:
            try:
                assert pushed.ended() == (0, pushed.text.getvalue())
                hub.until(lambda: b"2" in hub.payloads("dev/pico-1/version"))
            finally:
                board.kill()
    assert "pico-1 runs 2" in pushed.text.getvalue()
