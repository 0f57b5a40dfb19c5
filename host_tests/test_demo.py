"""`flatmq demo` as a user runs it: what it shows, and its exit status."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import sizes
import typed_command
from conftest import BROKERS, LIB, ROOT, SharedBrokers, ran
from flatmq_tools import demo, interpreter
from flatmq_tools.broker import Broker

DEADLINE = 120  # seconds


def _demo(readings: int, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flatmq_tools.cli", "demo", "--readings", str(readings)]
    return ran(
        command,
        env={**interpreter.environment(LIB, ROOT / "tools"), "COLUMNS": "200", **variables},
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE,
    )


def test_every_message_is_shown_and_counted() -> None:
    done = _demo(8)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r'"n":(\d+),', done.stdout) == [str(n) for n in range(1, 9)]
    assert "MicroPython with a heap of 64 KB" in done.stdout
    assert re.search(r"lost +0\b", done.stdout)
    assert re.search(r"allocated per publish +0 bytes", done.stdout), done.stdout
    before, after = re.findall(r"heap \w+ +([\d,]+) bytes in use", done.stdout)
    assert before == after


def test_with_a_broker_of_ones_own(near: Broker) -> None:
    done = _demo(3, BROKER=near.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the external broker at {near.address}" in done.stdout


def test_a_broker_that_is_not_there_is_one_line() -> None:
    done = _demo(3, BROKER="127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["Error: no broker answers at 127.0.0.1:1"]


def test_ctrl_c_ends_it_with_its_table() -> None:
    """In a terminal, the sketch gets it too."""
    with subprocess.Popen(
        [sys.executable, "-m", "flatmq_tools.cli", "demo", "--readings", "10000"],
        env={**interpreter.environment(LIB, ROOT / "tools"), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            typed_command.until('"n":4,', process)
            os.killpg(process.pid, signal.SIGINT)
            shown = process.communicate(timeout=DEADLINE)[0]
        finally:
            process.kill()
    assert process.returncode == 0, shown
    assert re.search(r"allocated per publish +0 bytes", shown), shown
    assert shown.endswith("stopped\n")
    assert "KeyboardInterrupt" not in shown


def test_a_message_whose_report_ctrl_c_has_cut_is_not_repeated() -> None:
    run = demo.Run(sent=[1, 2], arrived=Counter({1: 2, 2: 1, 3: 1}))
    assert run.repeated == 1


def test_without_an_interpreter_the_same_sketch_runs_on_cpython(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interpreter, "find", lambda: None)
    assert demo.main(3) == 0
    shown = capsys.readouterr().out
    assert "CPython" in shown
    assert "no MicroPython interpreter" in shown


Changed = Callable[..., tuple[int, str]]


@pytest.fixture
def changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Changed:
    """Run the demo with a copy of the sketch in which texts are replaced."""
    monkeypatch.delenv("BROKER", raising=False)

    def run(*changes: tuple[str, str], readings: int | None = None) -> tuple[int, str]:
        source = (demo.SKETCH / "main.py").read_text()
        for old, new in changes:
            assert source.count(old) == 1
            source = source.replace(old, new)
        (tmp_path / "main.py").write_text(source)
        (tmp_path / "sensor.py").write_text((demo.SKETCH / "sensor.py").read_text())
        monkeypatch.setattr(demo, "SKETCH", tmp_path)
        return demo.main(readings), capsys.readouterr().out

    return run


@pytest.mark.parametrize("kind", sizes.sample(BROKERS, 1))
def test_a_lost_message_fails_the_demo(
    kind: str, shared_brokers: SharedBrokers, monkeypatch: pytest.MonkeyPatch, changed: Changed
) -> None:
    """One message goes where the demo does not receive it: the demo must notice."""
    monkeypatch.setattr(demo, "DRAIN", 0.2)
    monkeypatch.setitem(os.environ, "BROKER", shared_brokers.get(kind, "shared").address)
    elsewhere = 'client.publish(topic if number != 2 else b"elsewhere/a",'
    status, shown = changed(("client.publish(topic,", elsewhere), readings=4)
    assert status == 1
    assert "4 messages at QoS 1" in shown
    assert re.search(r"lost +1 \[2\]", shown), shown


PUBLISH = "return client.publish(topic, payload, qos=1) is not None"
SHORT = ("EVERY_MS = 200", "EVERY_MS = 20")


CHANGES = {
    "readings": ([("READINGS = 25", "READINGS = 7"), SHORT],
        ["sensors/host-1", "7 messages at QoS 1", r"lost +0\b"]),
    "device": ([('b"host-1"', 'b"shed"'), SHORT], ["sensors/shed  ", "25 messages at QoS 1"]),
    "topic": ([('b"sensors/"', 'b"garden/bed/"'), SHORT], ["garden/bed/host-1  "]),
    "field": ([('{"n":   ', '{"count":   '), ("put(number, 13)", "put(number, 17)"), SHORT],
        ['{"count":25,']),
    "text": ([(PUBLISH, 'return client.publish("lamp/1", "lamp: on") is not None'), SHORT],
        ["lamp/1  lamp: on", "25 messages at QoS 0"]),
    "two topics": ([(PUBLISH, 'client.publish(b"second", payload)\n    ' + PUBLISH), SHORT],
        ["second  [{]", "25 messages at QoS 0, 25 messages at QoS 1"]),
    "in pieces": ([(PUBLISH, "return client.publish_from(topic, payload) is not None"), SHORT],
        ["sent +not counted", r"arrived +25\b", "(?m)^messages arrived$"]),
}  # fmt: skip


@pytest.mark.parametrize("name", sizes.sample(CHANGES, 4))
def test_a_changed_sketch_is_shown(name: str, changed: Changed) -> None:
    """The README invites people to change the sketch: what they change is what they see."""
    changes, patterns = CHANGES[name]
    status, shown = changed(*changes)
    assert status == 0, shown
    assert all(re.search(pattern, shown) for pattern in patterns), shown
    assert not re.search(r"lost +[1-9]", shown), shown


def test_what_a_changed_sketch_allocates_is_shown(changed: Changed) -> None:
    status, shown = changed((PUBLISH, PUBLISH.replace("payload", "bytearray(320)")), SHORT)
    assert status == 0
    allocated = re.search(r"allocated per publish +([\d.]+) bytes", shown)
    assert allocated and 320 <= float(allocated[1]) <= 480


FAILING = {
    "a wrong name": ([(PUBLISH, "return clint.publish(topic, payload)")],
        [r"sketch +NameError: name 'clint' isn't defined",
         "messages were lost, or the sketch failed"]),
    "another broker": (
        [("Client(DEVICE, HOST, PORT)", "Client(DEVICE, HOST, 1)"),
         ("client.connect()", "client.connect(100)")],
        [r"hint +the demo replaces HOST and PORT"]),
    # Only its will arrives, and no call is blamed.
    "no memory": ([(PUBLISH, 'return client.publish(topic, "x" * 60000)')],
        [r"sent +nothing", r"hint +the heap of 64 KB is full", r"\A(?s:(?!.*Client\.publish))"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_a_sketch_that_fails_says_why(
    name: str, changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, patterns = FAILING[name]
    monkeypatch.setattr(demo, "DRAIN", 0.2)
    status, shown = changed(*changes)
    assert status == 1
    assert all(re.search(pattern, shown) for pattern in patterns), shown
