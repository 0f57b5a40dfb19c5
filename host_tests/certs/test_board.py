"""A board connects with what `flatmq image` puts on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sizes
from sketches.board_bench import Board, Watcher, switched_on
from tls.secure_broker import SecureBroker

from .imaged import made, on_board

# The bench's clock was not set.
UNSET = "import clock, ntptime; clock.time = ntptime.Time; clock.RETRY_MS = 20"
# The listener, and the settings of TLS with the names of files.
WAYS = {
    "authority": ("broker", ["ca=ca.pem"]),
    "own certificate": ("mutual", ["ca=ca.pem", "cert=client.pem", "key=client.key.pem"]),
    "RSA": ("mutual", ["ca=ca.pem", "cert=rsa.pem", "key=rsa.key.pem"]),
    "pin": ("broker", ["pin=broker"]),
    "pin of an expired one": ("expired", ["pin=expired"]),
}


@contextmanager
def board_with(
    secure: SecureBroker, folder: Path, listener: str, tls: list[str], setup: str = ""
) -> Iterator[tuple[Board, Watcher]]:
    """A Pico W that runs with the settings and files of an image, and who watches it."""
    device, port = folder.name, secure.ports[listener]
    settings = f"host=127.0.0.1 port={port} name={device} ssid=home interval=1".split()
    for key, _, value in (each.partition("=") for each in tls):
        found = {"pin": secure.pins.get(value), "ntp": value}
        settings.append(f"tls.{key}={found.get(key) or secure.path(value)}")
    made(folder, *settings)
    board = Board("pico_w", folder / "board", {}, port)
    (board.folder / "tls").mkdir()
    for path, data in on_board(folder).items():
        if path.startswith("/tls/") or path == "/settings.json":
            (board.folder / path[1:]).write_bytes(data)
    watcher = Watcher(secure.broker.host, secure.broker.port, device)
    try:
        with switched_on(board, setup):
            yield board, watcher
    finally:
        watcher.close()


@pytest.mark.parametrize("way", sizes.sample(WAYS, 3))
def test_it_connects(way: str, secure: SecureBroker, tmp_path: Path) -> None:
    listener, tls = WAYS[way]
    with board_with(secure, tmp_path, listener, tls) as (_, watcher):
        watcher.status(b"online")
        assert watcher.pack()["chip/temp"]


def test_what_is_wrong_is_printed(secure: SecureBroker, tmp_path: Path) -> None:
    with board_with(secure, tmp_path, "broker", ["ca=other.pem"]) as (board, _):
        board.until("turns > 100")
    assert any("the certificate is from an unknown authority" in line for line in board.output)


def test_the_clock_is_set_before_dates_are_checked(secure: SecureBroker, tmp_path: Path) -> None:
    tls = ["ca=ca.pem", "ntp=ntp.example"]
    with board_with(secure, tmp_path, "broker", tls, setup=UNSET) as (board, watcher):
        board.until("len(asked) > 2")
        board.do("broken['ntp'] = ValueError('buffer too small')")  # an answer that is too short
        board.until("len(asked) > 5")
        board.do("broken.clear()")
        assert board.ask("set(asked)") == "{'ntp.example'}"
        assert "no time from ntp.example: [Errno 110] ETIMEDOUT\n" in board.output
        assert watcher.retained("status") is None  # it has not tried to connect
        board.do("ntp = True")
        watcher.next("status", lambda payload: payload.startswith(b"online, failed: clock "))
        times = board.ask("len(asked)")
        watcher.pack()
        assert board.ask("len(asked)") == times


def test_a_pin_needs_no_clock(secure: SecureBroker, tmp_path: Path) -> None:
    with board_with(secure, tmp_path, "broker", ["pin=broker"], setup=UNSET) as (board, watcher):
        watcher.status(b"online")
        assert board.ask("asked") == "[]"
