"""`flatmq emulate`, as people type it: what it shows, and its exit status.

The emulator is replaced at its edge, the child process. The real one runs in `make proofs`, where
there is a firmware.
"""

import json
import socket
import struct
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from scapy.layers.dns import DNS, DNSQR

import typed_command
from flatmq_tools import boards, emulate, ports
from flatmq_tools.broker import Broker
from flatmq_tools.emulate.network import Network
from images import downloads
from observer import until

WORKS = """\
import json
from flatmq import Client

with open("settings.json") as file:
    broker = json.load(file)["broker"]
client = Client(b"a-board", broker["host"], broker["port"])
client.connect(10000)
client.publish(b"dev/a-board/telemetry", b"21.5", 1)
client.wait(10000)
print("published")
"""
FAILS = WORKS + 'raise ValueError("no sensor")\n'
STAYS = WORKS + "while True:\n    client.poll(100)\n"
HANGS = "while True:\n    pass\n"
T = "dev/+/telemetry"


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "MACHINE", [sys.executable, "-m", "emulate.stand_in"])


def flatmq(program: str, *options: str) -> Result:
    sketch = Path("sketch")
    sketch.mkdir(exist_ok=True)
    (sketch / "main.py").write_text(program)
    command = ("emulate", "pico_w", "sketch", "--firmware", "firmware.uf2", *options)
    return typed_command.flatmq(*command)


@pytest.mark.parametrize(("program", "options", "status", "said"), [
    (WORKS, "", 0, "the program ended"),
    (WORKS, f"--until {T}", 0, f"seen: {T}"),
    (STAYS, f"--until {T}=21.5", 0, f"seen: {T}=21.5"),
    (STAYS, f"--until {T}=22 --for 2s", 1, f"not seen: {T}=22"),
    (STAYS, "--for 2s", 0, "the program did not fail"),
    (WORKS, "--until dev/+/status", 1, "not seen: dev/+/status"),
    (FAILS, "", 1, "the program failed: ValueError: no sensor"),
    (FAILS, "--until dev/+/status", 1, "the program failed: ValueError: no sensor"),
    (HANGS, "--until x --for 1s", 1, "not seen: x"),
], ids=lambda value: "" if "\n" in str(value) else str(value))  # fmt: skip
def test_the_exit_status(program: str, options: str, status: int, said: str) -> None:
    done = flatmq(program, *options.split())
    assert done.exit_code == status, done.output
    assert said in done.output.splitlines()[-1]


def test_it_shows_the_log_and_the_messages() -> None:
    said = flatmq(WORKS, "--until", "dev/#").output
    assert "MicroPython 1.28.0 on an emulated Raspberry Pi Pico W, with the embedded" in said
    assert "s serial | mpremote connect socket://127.0.0.1:1\n" in said
    assert "s broker | dev/a-board/telemetry  21.5\n" in said


def test_with_a_broker_of_ones_own_whatever_its_address_on_the_board(near: Broker) -> None:
    options = ["--broker", near.address, "--set", "broker.host=mqtt.example.com"]
    done = flatmq(WORKS, *options, "--until", "dev/+/telemetry")
    assert done.exit_code == 0, done.output
    assert f"the external broker at {near.address}" in done.output


BANNER = 'MicroPython v1.28.0\nType "help()" for more information.\n>>> '
FAILED = "the program failed: OSError: 5"
TRACEBACK = 'Traceback (most recent call last):\n  File "main.py", line 2\nOSError: 5\n'


@pytest.mark.parametrize(("events", "status", "said"), [
    ([{"log": TRACEBACK}, {"log": "going on\n"}], 0, "the program did not fail"),
    ([{"log": TRACEBACK + BANNER}], 1, FAILED),
    # The start of what was printed before there was USB is lost.
    ([{"log": TRACEBACK[20:] + BANNER}], 1, FAILED),
    ([{"log": TRACEBACK + BANNER[:30]}, {"log": BANNER[30:]}], 1, FAILED),
    ([{"typed": True}, {"log": TRACEBACK + BANNER}], 0, "the program did not fail"),
    ([{"reset": "machine.reset()"}, {"log": "up\r\n"}], 0, "the program did not fail"),
    ([{"log": TRACEBACK}, {"reset": "button"}, {"log": BANNER}], 0, "the program ended"),
    ([{"reset": "watchdog"}], 1, "the program failed: its watchdog ran out"),
    ([{"wifi": False}, {"wifi": True}], 0, "the program did not fail"),
])  # fmt: skip
def test_what_counts_as_a_failure(
    events: list[dict[str, object]], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(json.dumps(event) for event in [*events, {"ms": 5000}])
    code = f"import sys; print({lines!r}, flush=True); sys.stdin.read()"
    monkeypatch.setattr(emulate, "MACHINE", [sys.executable, "-c", code])
    done = flatmq(WORKS, "--for", "5s")
    assert (done.exit_code, done.output.splitlines()[-1].split(" (")[0]) == (status, said)


@pytest.mark.parametrize(("code", "said"), [
    ("raise OSError('no room')", "the emulator ended with status 1: OSError: no room"),
    ("raise SystemExit(3)", "the emulator ended with status 3"),
    ("raise ModuleNotFoundError(\"No module named 'rp2040py'\")",
     "the module rp2040py is missing: pip install 'flatmq[emulate]'"),
])  # fmt: skip
def test_an_emulator_that_dies_is_one_line(
    code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulate, "MACHINE", [sys.executable, "-c", code])
    done = flatmq(WORKS)
    assert (done.exit_code, done.output.splitlines()[-1]) == (1, f"Error: {said}")


CHILD = """
import json, subprocess, time
child = subprocess.Popen(["sleep", "1000"])
print(json.dumps({"ms": 5000, "log": f"child {child.pid}\\n"}), flush=True)
time.sleep(1000)
"""


def test_an_emulator_that_does_not_end_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(emulate, "MACHINE", [sys.executable, "-c", CHILD])
    said = flatmq(WORKS, "--for", "5s").output
    status = Path("/proc", said.partition("child ")[2].split()[0], "stat")
    until(
        "its end", lambda: not status.exists() or status.read_text().rpartition(") ")[2][0] == "Z"
    )


@pytest.mark.parametrize(("words", "said"), [
    ("pico_w", "no firmware for pico_w: download RPI_PICO_W-[0-9]*.uf2 from micropython.org/"),
    ("pico_2 --firmware firmware.uf2", "cannot be emulated, only esp32, esp32_c3, pico, pico_w"),
    ("pico_w --firmware old.uf2", "old.uf2: it is MicroPython 1.22.0; flatmq needs 1.26 or"),
    ("pico_w --firmware firmware.uf2 --until a/#/b", "--until a/#/b: must be TOPIC"),
    ("pico_w --firmware firmware.uf2 --wifi-loss 5s", "must be START:LENGTH, such as 20s:5s"),
    ("pico_w nowhere --firmware firmware.uf2", "nowhere: no sketch"),
    ("pico_w --firmware firmware.uf2 --user me", "--user and the options of TLS need --broker"),
    ("pico_w --firmware firmware.uf2 --port {used}", "--port {used}: Address already in use"),
    ("pico_w --firmware firmware.uf2 --broker 127.0.0.1:1", "no broker answers at 127.0.0.1"),
])  # fmt: skip
def test_what_it_refuses(words: str, said: str) -> None:
    board = boards.load("pico_w")
    old = downloads.program(board, 0x54321, "1.22.0")
    Path("old.uf2").write_bytes(downloads.uf2(board, old))
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        used = server.getsockname()[1]
        done = typed_command.flatmq("emulate", *words.format(used=used).split())
    assert done.exit_code in (1, 2)
    assert said.format(used=used) in done.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "waits"),
    [
        ("import x\ny()", "WAIT; import x\ny()"),
        ("'''What it\ndoes.'''\nimport x", "WAIT; '''What it\ndoes.'''\nimport x"),
        ("def f():\n    x()\nf()", "def f():\n    x()\nWAIT; f()"),
        ("# comment\nwhile True:\n    x()", "WAIT\nwhile True:\n    x()"),
        ("def f():\n    x()\n\nwith f():\n    x", "def f():\n    x()\nWAIT\nwith f():\n    x"),
        ("while True:\n    x()", "WAIT\nwhile True:\n    x()"),
        ("def f():\n    x()", "def f():\n    x()"),
    ],
)  # fmt: skip
def test_a_program_waits_until_what_it_prints_is_kept(program: str, waits: str) -> None:
    made = emulate.held(program.encode()).decode()
    assert made == waits.replace("WAIT", '__import__("time").sleep_ms(150)')


# The network of the board


def test_a_board_reaches_the_broker_and_nothing_else() -> None:
    network = Network(("127.0.0.1", 4321), [1900])
    for host, port in (("10.0.0.1", 1883), ("93.184.216.34", 8883), ("127.0.0.1", 4321)):
        assert network.target(host, port) == ("127.0.0.1", 4321)
    assert network.target("192.168.1.10", 1900) == ("127.0.0.1", 4321)
    for port in (80, 22, 1884):
        with pytest.raises(ConnectionRefusedError, match=f"10.0.0.1:{port}: an emulated board"):
            network.target("10.0.0.1", port)


def test_every_name_is_the_gateway() -> None:
    network = Network(("127.0.0.1", 4321))
    query = DNS(id=77, rd=1, qd=DNSQR(qname="mqtt.example.com"))
    answer = DNS(network.datagram(53, bytes(query)))
    assert (answer.id, answer.qr, answer.rcode, answer.ancount) == (77, 1, 0, 1)
    assert (answer.an[0].rrname, answer.an[0].rdata) == (b"mqtt.example.com.", "10.0.0.1")
    query = DNS(qd=DNSQR(qname="mqtt.example.com", qtype="AAAA"))
    assert DNS(network.datagram(53, bytes(query))).ancount == 0
    for junk in (b"", bytes(12), bytes(query)[:20], bytes(query)[:-1], bytes(answer)):
        assert network.datagram(53, junk) is None
    assert network.datagram(5353, bytes(query)) is None


def test_the_time_is_that_of_this_machine() -> None:
    answer = Network(("127.0.0.1", 4321)).datagram(123, b"\x1b" + bytes(47))
    assert answer is not None and len(answer) == 48
    seconds = struct.unpack(">I", answer[40:44])[0] - 2_208_988_800  # as ntptime reads it
    assert abs(seconds - time.time()) < 5
