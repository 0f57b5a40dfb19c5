"""Programs for umqtt print the same with flatmq, one line changed, and publish the same."""

from pathlib import Path

from conftest import PYTHONS
from observer import Heard
from sizes import spread
from umqtt import umqtt_stage
from umqtt.umqtt_stage import PROGRAMS, Seen

_LWT = "tele/test/LWT"
# What each does with umqtt.
KNOWN = {
    "robust_lwt": Seen(
        ["mqtt", "mqtt", "enough"],
        [Heard(_LWT, b"Online"), Heard(_LWT, b"Offline")] * 2 + [Heard(_LWT, b"Online")],
    ),
    "robust_resubscribe": Seen(
        ["subscribes to b'test/topic/a'", "[b'message 1']", "mqtt",
         "subscribes to b'test/topic/a'", "b'message 1' b'message 3'"],
        [Heard("test/topic/a", b"message %d" % i) for i in (1, 2, 3)],
    ),
    "robust_sub": Seen(
        ["a new session", "(b'foo_topic', b'first')", "mqtt", "(b'foo_topic', b'second')",
         "the same session", "(b'foo_topic', b'third')"],
        [Heard("foo_topic", payload) for payload in (b"first", b"second", b"third")],
    ),
    "simple_reconnect": Seen(
        ["lost", "[b'c0', b'c1', b'c2', b'c3']"],
        [Heard(f"board/{topic}", payload) for topic, payload in (
            ("status", b"online"), ("command", b"c0"), ("command", b"c1"),
            ("answer", b"done-c0"), ("answer", b"done-c1"), ("status", b"offline"),
            ("status", b"online"), ("command", b"c2"), ("command", b"c3"),
            ("answer", b"done-c2"), ("answer", b"done-c3"),
        )],
    ),
}  # fmt: skip


def test_each_program_is_in_the_table() -> None:
    assert sorted(path.stem for path in PROGRAMS.glob("*_*.py")) == sorted(KNOWN)


@spread("name", KNOWN, python=PYTHONS)
def test_a_program_does_the_same(name: str, python: str, tmp_path: Path) -> None:
    program = umqtt_stage.moved(PROGRAMS / f"{name}.py", tmp_path)
    assert umqtt_stage.run(program, python) == KNOWN[name]


@spread("name", ("simple_reconnect", "robust_sub"), python=PYTHONS)
def test_a_file_of_one_line_moves_every_program(name: str, python: str, tmp_path: Path) -> None:
    (tmp_path / "umqtt").mkdir()
    (tmp_path / "umqtt" / "simple.py").write_text("from flatmq.umqtt import MQTTClient\n")
    (tmp_path / "umqtt" / "robust.py").write_text("from flatmq.umqtt_robust import MQTTClient\n")
    seen = umqtt_stage.run(PROGRAMS / f"{name}.py", python, before=[tmp_path])
    assert seen == KNOWN[name]


def test_a_program_runs_in_a_small_heap(tmp_path: Path) -> None:
    program = umqtt_stage.moved(PROGRAMS / "simple_reconnect.py", tmp_path)
    assert umqtt_stage.run(program, "micropython", "64k") == KNOWN[program.stem]
