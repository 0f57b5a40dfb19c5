"""`flatmq emulate` for an ESP32, with a stand-in for QEMU that has a MicroPython, and no radio."""

import sys
from pathlib import Path

import pytest
from click.testing import Result

import typed_command
from flatmq_tools import contents, emulate

WORKS = """\
from flatmq import Client, stream_uart

client = Client(b"a-board", link=stream_uart.usb())
client.connect(10000)
client.publish(b"dev/a-board/telemetry", b"21.5", 1)
client.wait(10000)
print("published")
"""
FAILS = WORKS + 'raise ValueError("no sensor")\n'
STAYS = WORKS + "while True:\n    client.poll(100)\n"
HANGS = "while True:\n    pass\n"
AGAIN = """\
import os, sys
if "state" in os.listdir():
    raise ValueError("it was reset")
open("state", "w").close()
sys.exit(42)
"""
CRASHES = """\
import sys, time
print("Guru Meditation Error: Core  1 panic'ed (LoadProhibited). Exception was unhandled.")
sys.exit(42)
"""
T = "dev/+/telemetry"
BOTH = "esp32,esp32-picsimlab"


def program(name: str, text: str) -> str:
    """Write a program of the shell that takes QEMU's place; return its path."""
    file = Path(name).absolute()
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def stand_in(machines: str) -> str:
    return program("qemu", f'exec "{sys.executable}" -m emulate.qemu_stand_in {machines} "$@"')


def flatmq(sketch: str, *options: str, board: str = "esp32", qemu: str = "") -> Result:
    Path("sketch").mkdir(exist_ok=True)
    Path("sketch", "main.py").write_text(sketch)
    qemu = qemu or stand_in({"esp32": "esp32", "esp32_c3": "esp32c3"}[board])
    command = ("emulate", board, "sketch", "--firmware", f"{board}.bin", "--qemu", qemu, *options)
    return typed_command.flatmq(*command)


BOOTED = "s  board | rst:0x1 (POWERON_RESET),boot:0x13"
SENT = "s broker | dev/a-board/telemetry  21.5\n"


@pytest.mark.parametrize(("sketch", "options", "status", "said", "shown"), [
    (WORKS, "", 0, "the program ended", BOOTED),
    (STAYS, f"--until {T}=21.5", 0, f"seen: {T}=21.5", SENT),
    (STAYS, f"--until {T}=22 --for 3s", 1, f"not seen: {T}=22", SENT),
    (FAILS, "", 1, "the program failed: ValueError: no sensor", SENT),
    (AGAIN, "", 1, "the program failed: ValueError: it was reset", "reset by machine.reset()"),
    (CRASHES, "", 1, "the program failed: MicroPython crashed", BOOTED),
    (HANGS, "--reset-at 1s --for 2s", 0, "the program did not fail", "reset by button\n"),
], ids=["ends", "seen", "not-seen", "fails", "resets", "crashes", "reset"])  # fmt: skip
def test_a_qemu_without_a_radio(
    sketch: str, options: str, status: int, said: str, shown: str
) -> None:
    board = "esp32_c3" if said.startswith("seen") else "esp32"
    done = flatmq(sketch, *options.split(), board=board)
    assert (done.exit_code, done.output.splitlines()[-1].split(" (")[0]) == (status, said)
    assert "qemu has no Wi-Fi, so the sketch talks over the serial line" in done.output
    assert shown in done.output


@pytest.mark.parametrize("name", ["esp32", "esp32_c3", "esp32_s3"])
def test_a_sketch_for_a_radio_is_changed_to_the_serial_line(name: str) -> None:
    source = (contents.SKETCHES / name / "main.py").read_bytes()
    made = emulate.on_serial_line(source).decode()
    assert '    link=__import__("flatmq.stream_uart").stream_uart.usb(),\n).run()' in made
    compile(made, name, "exec")
    assert emulate.on_serial_line(WORKS.encode()) == WORKS.encode()
    over_lines = emulate.on_serial_line(b"Station(1, wifi=Wifi(\n    ssid,\n), led=2)\n")
    assert over_lines.startswith(b"Station(1, link=")
    assert over_lines.endswith(b".usb(), led=2)\n\n\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'Supported machines are:'; echo 'sim  a sim'", "this QEMU has no esp32: build"),
        ("exit 3", "it does not list its machines: "),
    ],
)  # fmt: skip
def test_a_program_that_is_not_such_a_qemu(text: str, said: str) -> None:
    done = flatmq(WORKS, qemu=program("other", text))
    assert (done.exit_code, said in done.output) == (1, True)


def test_without_a_qemu_it_says_what_to_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    said = typed_command.flatmq("emulate", "esp32", "--firmware", "esp32.bin").output
    assert "no qemu-system-xtensa on the PATH, which emulates esp32: build github.com/" in said
    done = flatmq(WORKS, qemu="absent")
    assert (done.exit_code, "--qemu absent: there is no such program" in done.output) == (1, True)


def test_a_loss_of_wifi_needs_a_radio() -> None:
    done = flatmq(WORKS, "--wifi-loss", "1s:1s")
    assert "--wifi-loss: " in done.output and "qemu has no Wi-Fi" in done.output


def test_a_qemu_that_dies_is_one_line() -> None:
    dies = f'case "$*" in *help) echo {BOTH};; *) echo "no such -nic" >&2; exit 3;; esac'
    done = flatmq(WORKS, qemu=program("dying", dies.replace(",", "; echo ")))
    last = done.output.splitlines()[-1]
    assert (done.exit_code, last) == (
        1,
        "Error: the emulator ended with status 1: QEMU ended with status 3: no such -nic",
    )
