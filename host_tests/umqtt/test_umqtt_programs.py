"""Programs for umqtt, run with umqtt and, one line changed, with flatmq.

They print the same, and a subscriber sees the same messages.
"""

from __future__ import annotations

import functools
from pathlib import Path

from observer import Heard
from sizes import spread
from umqtt import umqtt_stage
from umqtt.umqtt_stage import PROGRAMS, PYTHONS, Seen

NAMES = sorted(path.stem for path in PROGRAMS.glob("*_*.py"))
# What is seen with the umqtt of micropython-lib. That of the package index cannot do it yet: a
# check_msg() that reconnects, and a reconnect that calls the connect() of a subclass.
_LWT = "tele/test/LWT"
KNOWN = {
    "robust_lwt": Seen(
        ["mqtt", "mqtt", "enough"],
        [Heard(_LWT, b"Online"), Heard(_LWT, b"Offline")] * 2 + [Heard(_LWT, b"Online")],
    ),
    "robust_resubscribe": Seen(
        [
            "subscribes to b'test/topic/a'",
            "[b'message 1']",
            "mqtt",
            "subscribes to b'test/topic/a'",
            "b'message 1' b'message 3'",
        ],
        [Heard("test/topic/a", b"message %d" % i) for i in (1, 2, 3)],
    ),
}


@functools.cache
def _with_umqtt(name: str) -> Seen:
    """Return what a program does with umqtt."""
    program = PROGRAMS / f"{name}.py"
    return KNOWN.get(name) or umqtt_stage.run(program, "umqtt", "micropython")


@spread("name", NAMES, python=PYTHONS)
def test_a_program_does_the_same(name: str, python: str, tmp_path: Path) -> None:
    program = umqtt_stage.moved(PROGRAMS / f"{name}.py", tmp_path)
    assert umqtt_stage.run(program, "flatmq", python) == _with_umqtt(name)


@spread("name", ("simple_reconnect", "robust_sub"), python=PYTHONS)
def test_a_file_of_one_line_moves_every_program(name: str, python: str, tmp_path: Path) -> None:
    (tmp_path / "umqtt").mkdir()
    (tmp_path / "umqtt" / "simple.py").write_text("from flatmq.umqtt import MQTTClient\n")
    (tmp_path / "umqtt" / "robust.py").write_text("from flatmq.umqtt_robust import MQTTClient\n")
    seen = umqtt_stage.run(PROGRAMS / f"{name}.py", str(tmp_path), python)
    assert seen == _with_umqtt(name)


def test_a_program_runs_in_a_small_heap(tmp_path: Path) -> None:
    program = umqtt_stage.moved(PROGRAMS / "simple_reconnect.py", tmp_path)
    seen = umqtt_stage.run(program, "flatmq", "micropython", heap="64k")
    assert seen == _with_umqtt(program.stem)
