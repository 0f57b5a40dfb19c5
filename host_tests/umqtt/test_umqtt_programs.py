"""Programs for umqtt, one for each of its examples, run with umqtt and, one line changed, with
flatmq: they print the same, and a subscriber sees the same messages."""

from __future__ import annotations

from pathlib import Path

import pytest
import umqtt_stage
from umqtt_stage import PROGRAMS, Seen

NAMES = sorted(path.stem for path in PROGRAMS.glob("*_*.py"))
TLS = {"simple_pub_tls", "simple_pub_tls_context"}
# What the umqtt of the package index cannot do yet: an SSLContext, check_msg() that reconnects,
# and a reconnect that calls the connect() of a subclass.
CURRENT = {"simple_pub_tls_context", "robust_check_msg", "robust_lwt", "robust_resubscribe"}

# What is seen with the umqtt of micropython-lib, where the one that is here cannot show it.
_LWT = "tele/test/LWT"
KNOWN = {
    "simple_pub_tls_context": Seen(
        ["0", "b'foo_topic' 5 b'hello'", "b'foo_topic' 20000 b'xxxxx'"],
        [("foo_topic", b"hello", False), ("foo_topic", b"x" * 20000, False)],
    ),
    "robust_check_msg": Seen(["mqtt", "None"], [("alive", b"yes", False)]),
    "robust_lwt": Seen(
        ["mqtt", "mqtt", "enough"],
        [(_LWT, b"Online", False), (_LWT, b"Offline", False)] * 2 + [(_LWT, b"Online", False)],
    ),
    "robust_resubscribe": Seen(
        [
            "subscribes to b'test/topic/a'",
            "[b'message 1']",
            "mqtt",
            "subscribes to b'test/topic/a'",
            "b'message 1' b'message 3'",
        ],
        [("test/topic/a", b"message %d" % i, False) for i in (1, 2, 3)],
    ),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What each program does with the real umqtt."""
    seen = {}
    for name in NAMES:
        if name in CURRENT and not umqtt_stage.is_current():
            seen[name] = KNOWN[name]
            continue
        extra = umqtt_stage.certificate(tmp_path_factory.mktemp("tls")) if name in TLS else ""
        program = PROGRAMS / f"{name}.py"
        seen[name] = umqtt_stage.run(program, "umqtt", "micropython", extra, name in TLS)
    return seen


@pytest.mark.parametrize("python", ["micropython", "cpython"])
@pytest.mark.parametrize("name", NAMES)
def test_a_program_does_the_same(
    name: str, python: str, expected: dict[str, Seen], tmp_path: Path
) -> None:
    program = tmp_path / f"{name}.py"
    program.write_text(umqtt_stage.moved((PROGRAMS / f"{name}.py").read_text()))
    extra = umqtt_stage.certificate(tmp_path) if name in TLS else ""
    seen = umqtt_stage.run(program, "flatmq", python, extra, name in TLS)
    assert seen == expected[name]


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_what_is_known_of_umqtt_is_so(name: str, expected: dict[str, Seen]) -> None:
    if not umqtt_stage.is_current():
        pytest.skip("UMQTT names no folder with the umqtt of micropython-lib")
    assert expected[name] == KNOWN[name]


def test_the_real_umqtt_is_the_one_that_runs(tmp_path: Path) -> None:
    program = tmp_path / "where.py"
    program.write_text("import umqtt.robust, desk\nprint(umqtt.robust.__file__)\ndesk.end()\n")
    (line,) = umqtt_stage.run(program, "umqtt", "micropython").printed
    assert Path(line).parents[1] in umqtt_stage.real_umqtt()
