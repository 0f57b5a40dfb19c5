"""The settings of docs/clouds.md get a board connected."""

import base64
import json
import re
import shlex
from pathlib import Path

import pytest

import typed_command
from flatmq_tools import boards
from flatmq_tools.broker import LOOPBACK
from flatmq_tools.cli import main as cli
from images import making
from observer import Observer
from sketches.board_bench import Board, switched_on

from . import page
from .services import HOSTS, KEY, NAME, USERS, Services

WIFI = ("--set", "wifi.ssid=home", "--set", "device.interval=1")
BENCH = "esp32"  # the image of which MicroPython reads as it is
COMMANDS = [(section, command) for section in page.SECTIONS for command in page.commands(section)]
# What the files of the page are here.
FILES = {
    "AmazonRootCA1.pem": "ca.pem",
    "DigiCertGlobalRootG2.pem": "ca.pem",
    "emqxsl-ca.crt": "ca.pem",
    "ca.pem": "ca.pem",
    "pico-1-certificate.pem.crt": "client.pem",
    "client.pem": "client.pem",
    "pico-1-private.pem.key": "client.key.pem",
    "client.key": "client.key.pem",
}


def files_of(command: str, services: Services, folder: Path) -> dict[str, bytes]:
    """Return what a command puts on a board, as `flatmq image` does with its options."""
    program, deploy, board, *options = shlex.split(command)
    assert (program, deploy) == ("flatmq", "deploy")
    given = {each for each in options if each.startswith("--")}
    for name in ("deploy", "image"):
        assert given <= {each for one in cli.commands[name].params for each in one.opts}
    for name, source in FILES.items():
        (folder / name).write_bytes((services.folder / source).read_bytes())
    mine = folder / "mine"
    mine.mkdir()
    (mine / "main.py").write_text("from settings import load\n\nload()\n")
    assert boards.load(board)  # there is one of that name
    typed_command.said("image", BENCH, "--out", "image", *WIFI, *options)
    lines = making.on_board("files", folder / "image", boards.load(BENCH).flash.program)
    return making.listed(lines)


@pytest.mark.parametrize(("section", "command"), COMMANDS)
def test_a_board_with_the_settings(
    section: str, command: str, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = files_of(command, services, tmp_path)
    told = json.loads(files["/settings.json"])
    table = told["broker"]["tls"]
    for key, name in (("ca", "ca"), ("cert", "client"), ("key", "client.key")):
        path = f"/tls/{key}.der"
        assert table[key] == (path if path in files else "")
        if key != "key" and path in files:  # the key is written in another form
            assert files[path] == (services.folder / f"{name}.der").read_bytes()
    if table["ca"]:  # then the program finds its files on the board
        named = re.findall(r'"(tls/\w+\.der)"', page.program(section))
        assert {f"/{path}" for path in named} == {path for path in files if path[:5] == "/tls/"}
    if "--sketch" in command:
        assert told["broker"]["host"] == HOSTS[section]
        return
    secure = bool(table["ca"])
    port = services.behind[section] if secure else services.closed.port
    host = told["broker"]["host"]
    assert host == HOSTS[section] or (section == page.PASSWORDS and host.endswith("emqxsl.com"))
    told["broker"].update(host=LOOPBACK, port=port)  # the bench knows no such name
    board = Board("pico_w", tmp_path / "board", told, port)
    (board.folder / "tls").mkdir()
    for path, data in files.items():
        if path.startswith("/tls/"):
            (board.folder / path[1:]).write_bytes(data)
    user = ("pico", USERS["pico"]) if told["broker"]["user"] else None
    at = services.closed if user else services.open
    with Observer(at.host, at.port, user=user) as other, switched_on(board):
        other.until(lambda: len(other.payloads(f"dev/{NAME}/telemetry")) > 0)
        other.until(lambda: b"online" in other.payloads(f"dev/{NAME}/status"))
        other.publish(f"dev/{NAME}/cmd/interval", "2")
        other.until(lambda: b"interval: done" in other.payloads(f"dev/{NAME}/answer"))


def test_the_page_has_the_hosts_and_the_key_of_the_tests() -> None:
    assert set(HOSTS) == set(page.SECTIONS)
    for section, host in HOSTS.items():
        assert f'"{host}"' in page.program(section)
    assert base64.b64encode(KEY).decode() in page.program(page.AZURE)
