"""An update of 1 MB goes through 512 bytes of buffer and 64 KB of heap to the flash, and back."""

import random
import subprocess
from pathlib import Path

from conftest import SharedBrokers, interpreter_command
from device import on_device
from flatmq import Client
from flatmq_tools import interpreter

SIZE = 1 << 20
HEAP = "64k"


def test_an_update_over_the_air(tmp_path: Path, shared_brokers: SharedBrokers) -> None:
    broker = shared_brokers.get("mosquitto", "shared")
    image = tmp_path / "flash.bin"
    image.write_bytes(b"\xff" * 400 * 4096)
    update = tmp_path / "update.bin"
    update.write_bytes(random.Random(1).randbytes(SIZE))
    back = tmp_path / "back.bin"
    seen = []

    with back.open("wb") as file:

        def take(message) -> None:
            if message.offset == 0:
                file.seek(0)
            message.write_to(file)
            if message.last:
                seen.append(message.total)

        client = Client(b"desk", broker.host, broker.port, rx_size=8192)
        client.subscribe(b"back", take, qos=1, chunks=True)
        client.connect()
        board = subprocess.Popen(
            [
                *interpreter_command("micropython", HEAP),
                str(on_device.HERE / "update.py"),
                broker.host, str(broker.port), str(image),
            ],
            env=interpreter.environment(on_device.made()),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        try:
            assert board.stdout is not None
            assert board.stdout.readline() == "@ready\n"
            with update.open("rb") as source:
                assert client.publish_from(b"update", source, 1)
                assert client.wait(on_device.DEADLINE * 1000), client.error
            while not seen and board.poll() is None:
                client.poll(20)
            told, _ = board.communicate(timeout=on_device.DEADLINE)
            while not seen and client.poll(1000):
                pass
        finally:
            board.kill()
            board.wait()
            client.disconnect()
    assert board.returncode == 0, told
    assert told.split()[:2] == ["SEEN", "1"]
    assert seen == [SIZE]
    assert back.read_bytes() == update.read_bytes()
