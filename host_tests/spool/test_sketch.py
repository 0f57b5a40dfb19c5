"""The sketch of docs/spool.md, killed in the middle of its work and started again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt import client as paho

from conftest import LIB, ROOT, interpreter_command
from flatmq_tools import broker, interpreter

READINGS = 60  # of each life
LIVES = 6
ANSWER = 30.0  # seconds that anything may take


@pytest.fixture
def peer() -> Iterator[broker.Broker]:
    with broker.mosquitto(persistence=True) as running:
        yield running


def _sketch(port: int, life: int) -> str:
    """Return the sketch, with numbered readings published as fast as they can be.

    It prints which were accepted.
    """
    text, _ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/spool.md").read_text(), re.DOTALL)
    for old, new in (
        ('"192.168.1.10"', f'"127.0.0.1", {port}'),
        ("due = ticks_ms()", f"due = ticks_ms()\nn = {life * READINGS}\nend = n + {READINGS}"),
        ("spool.poll(20)", "spool.poll(1)"),
        ("ticks_diff(ticks_ms(), due) >= 0", "n < end"),
        (
            'spool.publish(b"dev/pico-1/temp", b"21.5", qos=2)',
            'spool.publish(b"dev/pico-1/temp", b"%d" % n, qos=2)\n        print(n)\n'
            "        n += 1\n"
            "    if n == end and not spool.pending:\n        print('empty')\n        n += 1",
        ),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("python", ["cpython", "micropython"])
def test_killed_at_any_time_each_reading_arrives_once(
    python: str, peer: broker.Broker, tmp_path: Path
) -> None:
    got: list[int] = []
    watcher = paho.Client(paho.CallbackAPIVersion.VERSION2)
    watcher.on_message = lambda _c, _d, m: got.append(int(m.payload))
    watcher.connect(peer.host, peer.port)
    watcher.subscribe("dev/#", 2)
    watcher.loop_start()
    accepted: list[int] = []
    for life in range(LIVES):
        script = tmp_path / "sketch.py"
        script.write_text(_sketch(peer.port, life))
        process = subprocess.Popen(
            [*interpreter_command(python, "256k"), *(["-u"] if python == "cpython" else []),
             str(script)],
            env=interpreter.environment(LIB), cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line == "empty\n":
                break
            accepted.append(int(line))
            if life < LIVES - 1 and len(accepted) % READINGS == 7 * life + 9:
                break
        process.kill()
        process.wait()
        process.stdout.close()
    done = watcher.publish("dev/end", b"-1", 2)
    done.wait_for_publish(ANSWER)
    for _ in range(int(ANSWER * 100)):
        if got and got[-1] == -1:
            break
        watcher._thread.join(0.01)  # type: ignore[union-attr]
    watcher.disconnect()
    watcher.loop_stop()
    assert len(got) == len(set(got)), "twice at QoS 2"
    assert set(accepted) <= set(got), "lost"
    assert got[:-1] == sorted(got[:-1]), "order"
