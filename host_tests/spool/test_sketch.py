"""The sketch of docs/spool.md, killed in the middle of its work and started again."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import LIB, ROOT, interpreter_command
from flatmq_tools import broker, interpreter
from observer import Observer

READINGS = 60  # of each life
LIVES = 6


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
    watcher = Observer(peer.host, peer.port, "dev/#", qos=2)
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
    with watcher:
        watcher.publish("dev/end", b"", 2)
        watcher.until(lambda: watcher.payloads("dev/end"))
        got = [int(payload) for payload in watcher.payloads("dev/pico-1/temp")]
    assert len(got) == len(set(got)), "twice at QoS 2"
    assert set(accepted) <= set(got), "lost"
    assert got == sorted(got), "order"
