"""A board connects with what `flatmq image` puts on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sketches.board_bench import Board, Watcher, switched_on

from .conftest import Guarded
from .imaged import image, on_board

ALONE = "adc[4] = 14000; import station; station.READY_MS = 30"
# The bench's clock was not set.
UNSET = "import clock, ntptime; clock.time = ntptime.Time; clock.RETRY_MS = 20"


@contextmanager
def board_with(
    guarded: Guarded, folder: Path, device: str, port: int, *told: str, setup: str = ""
) -> Iterator[tuple[Board, Watcher]]:
    """A Pico W that runs with the settings and files of an image, and who watches it."""
    said = image(
        folder,
        *told,
        "host=127.0.0.1",
        f"port={port}",
        f"name={device}",
        "ssid=home",
        "interval=1",
    )
    assert said.exit_code == 0, said.output
    files = on_board(folder)
    board = Board("pico_w", folder / "board", {}, port)
    (board.folder / "tls").mkdir()
    for path, data in files.items():
        if path.startswith("/tls/") or path == "/settings.json":
            (board.folder / path[1:]).write_bytes(data)
    watcher = Watcher(guarded.running.host, guarded.running.port, device)
    try:
        with switched_on(board, f"{ALONE}; {setup}"):
            yield board, watcher
    finally:
        watcher.close()


@pytest.mark.parametrize(
    "way", ["authority", "own certificate", "RSA", "pin", "pin of an expired one"]
)
def test_it_connects(way: str, guarded: Guarded, tmp_path: Path) -> None:
    ca = f"tls.ca={guarded.ca}"
    port, told = {
        "authority": (guarded.tls, [ca]),
        "own certificate": (
            guarded.strict,
            [ca, f"tls.cert={guarded.cert}", f"tls.key={guarded.key}"],
        ),
        "RSA": (
            guarded.strict,
            [ca, f"tls.cert={guarded.rsa[0]}", f"tls.key={guarded.rsa[1]}"],
        ),
        "pin": (guarded.tls, [f"tls.pin={guarded.pin}"]),
        "pin of an expired one": (guarded.late, [f"tls.pin={guarded.late_pin}"]),
    }[way]
    device = "tls-" + way.replace(" ", "-")
    with board_with(guarded, tmp_path, device, port, *told) as (_, watcher):
        watcher.until("status", b"online")
        assert watcher.pack()["chip/temp"]


def test_what_is_wrong_is_printed(guarded: Guarded, tmp_path: Path) -> None:
    told = [f"tls.ca={guarded.other}"]
    with board_with(guarded, tmp_path, "tls-wrong", guarded.tls, *told) as (board, _):
        board.until("turns > 100")
    assert any("the certificate is from an unknown authority" in line for line in board.output)


def test_the_clock_is_set_before_dates_are_checked(guarded: Guarded, tmp_path: Path) -> None:
    told = [f"tls.ca={guarded.ca}", "tls.ntp=ntp.example"]
    with board_with(guarded, tmp_path, "tls-clock", guarded.tls, *told, setup=UNSET) as (
        board,
        watcher,
    ):
        board.until("len(asked) > 2")
        assert board.ask("set(asked)") == "{'ntp.example'}"
        assert "no time from ntp.example: [Errno 110] ETIMEDOUT\n" in board.output
        assert watcher.retained("status") is None  # it has not tried to connect
        board.do("ntp = True")
        watcher.until("status", b"online")
        times = board.ask("len(asked)")
        watcher.pack()
        assert board.ask("len(asked)") == times


def test_a_pin_needs_no_clock(guarded: Guarded, tmp_path: Path) -> None:
    told = [f"tls.pin={guarded.pin}"]
    with board_with(guarded, tmp_path, "tls-pinned", guarded.tls, *told, setup=UNSET) as (
        board,
        watcher,
    ):
        watcher.until("status", b"online")
        assert board.ask("asked") == "[]"
