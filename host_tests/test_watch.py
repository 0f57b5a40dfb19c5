"""`flatmq watch`: what a person sees of boards that publish to a real broker."""

import json

import pytest
from rich.console import Console

import typed_command
from flatmq_tools import broker
from flatmq_tools.watch import Watch
from observer import retain


def pack(boot: int, seq: int, **readings: float) -> bytes:
    records = [{"bn": "pico/", "n": "boot", "v": boot}, {"n": "seq", "v": seq}]
    units = {"temp": "Cel", "humidity": "%RH"}
    records += [{"n": name, "u": units[name], "v": v} for name, v in readings.items()]
    return json.dumps(records).encode()


def test_losses_are_counted_within_a_boot() -> None:
    watch = Watch()
    for boot, seq in ((1, 5), (1, 6), (1, 9), (1, 8), (2, 1), (2, 3)):
        watch.take("dev/pico/telemetry", pack(boot, seq, temp=1))
    device = watch.devices["pico"]
    assert (device.packs, device.lost, device.boots) == (6, 3, 2)


def test_a_late_reading_is_no_further_loss() -> None:
    watch = Watch()
    for seq in (5, 7, 6, 8):
        watch.take("dev/pico/telemetry", pack(1, seq))
    assert watch.devices["pico"].lost == 1


def test_what_a_board_sends_commands_no_terminal() -> None:
    watch = Watch()
    said = watch.take("dev/pico/status", b"\x1b[2J")
    said += watch.take("dev/pico/telemetry", b'[{"n":"a","vs":"\\u001b[2J"}]')
    with (console := Console(width=60, force_terminal=True, no_color=True)).capture() as shown:
        console.print(watch.table())
    assert "\x1b[2J" not in said + shown.get()


def test_trouble_is_kept_for_the_last_boards() -> None:
    watch = Watch()
    for _ in range(2000):
        watch.take("dev/pico/telemetry", b"21.5")
    assert len(watch.trouble) == 1000


def test_a_name_is_whole_in_a_narrow_terminal() -> None:
    watch = Watch()
    watch.take("dev/pico-e6614103e7452d2f/telemetry", pack(1, 1, temp=21.5, humidity=40))
    console = Console(width=60)
    with console.capture() as shown:
        console.print(watch.table())
    assert "pico-e6614103e7452d2f" in shown.get()


def test_what_is_no_pack_is_told_with_the_board() -> None:
    watch = Watch()
    assert watch.take("dev/pico/telemetry", b"21.5") == "pico: not an array of records"
    assert [*watch.trouble] == ["pico: not an array of records"]


@pytest.mark.parametrize(
    "words",
    [("watch", "--user", "\udcff"), ("crashes", ""), ("logs", "", "--broker"),
     ("logs", "a" * 70_000, "--broker"), ("crashes", "a/b"), ("ota", "cancel", "\udcff")],
    ids=str,
)  # fmt: skip
def test_a_name_that_cannot_be_is_a_sentence(
    words: tuple[str, ...], running: broker.Broker
) -> None:
    at = words.index("ota") + 2 if "ota" in words else len(words) if "--broker" in words else 1
    done = typed_command.flatmq(*words[:at], running.address, *words[at:])
    assert done.exit_code
    assert done.output.splitlines()[-1].startswith("Error: ")


def test_it_shows_what_boards_send(running: broker.Broker) -> None:
    sent = pack(7, 1, temp=21.5, humidity=40)
    retain(running.host, running.port, "dev/pico/status", "online")
    retain(running.host, running.port, "dev/pico/telemetry", sent)
    shown = typed_command.said("watch", running.address, "--packs", 1)
    assert "pico is online" in shown
    assert "pico  temp 21.5 °C  humidity 40 %" in shown


def test_packs_that_did_not_come_are_counted(running: broker.Broker) -> None:
    done = typed_command.flatmq("watch", running.address, "--packs", 2, "--seconds", "0.1")
    assert (done.exit_code, done.output) == (1, "0 of 2 packs came\n")


@pytest.mark.parametrize(("address", "text"), [
    ("127.0.0.1:1", "no broker answers at 127.0.0.1:1"),
    ("[::1]:1", "no broker answers at [::1]:1"),
    ("a..b", "a..b: no such host"),  # which no name server is asked for
])  # fmt: skip
def test_a_broker_that_is_not_there_is_one_line(address: str, text: str) -> None:
    done = typed_command.flatmq("watch", address)
    assert (done.exit_code, done.output) == (1, f"Error: {text}\n")
