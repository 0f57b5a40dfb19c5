"""The guide keeps its word: its sketches run. And the README is short.

`test_examples.py` runs the program of the README.
"""

import re
import subprocess
from pathlib import Path

import pytest

import sizes
from conftest import BROKERS, LIB, PYTHONS, ROOT, SharedBrokers, interpreter_command
from flatmq_tools import interpreter
from observer import Observer

README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "guide.md").read_text()
ANSWER = 20.0  # seconds until a program has ended
CASES = [
    (page, python, kind) for page in ("guide", "script") for python in PYTHONS for kind in BROKERS
]


def _blocks(text: str) -> list[str]:
    """The Python code of a page."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def _started(code: str, python: str, port: int, folder: Path) -> subprocess.Popen[str]:
    """Run code of a page with the broker at `port`."""
    assert code.count('"192.168.1.10"') == 1
    script = folder / "sketch.py"
    script.write_text(code.replace('"192.168.1.10"', f'"127.0.0.1", {port}'))
    return subprocess.Popen(
        [*interpreter_command(python, "128k"), str(script)],
        env=interpreter.environment(LIB),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("case", sizes.one_each(CASES, lambda case: case[:2]), ids="-".join)
def test_the_code_of_the_page_runs(
    case: tuple[str, str, str], shared_brokers: SharedBrokers, tmp_path: Path
) -> None:
    page, python, kind = case
    near = shared_brokers.get(kind, "shared")
    script = next(code for code in _blocks(GUIDE) if ".disconnect(" in code)
    code = script if page == "script" else _blocks(GUIDE)[0]
    with Observer(near.host, near.port, "dev/#") as desk:

        def says(what: str, payload: bytes) -> None:
            desk.until(lambda: payload in desk.payloads(f"dev/pico-1/{what}"))

        process = _started(code, python, near.port, tmp_path)
        try:
            if page == "script":
                says("cmd", b"hello")
                assert process.wait(ANSWER) == 0
            else:
                says("status", b"online")
                desk.publish("dev/pico-1/cmd", b"hello")
                says("answer", b"hello yourself")
                assert process.poll() is None
                process.kill()
                says("status", b"offline")
        finally:
            process.kill()
            output = process.communicate()[0]
            print(output)
    assert output == ""


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert "OWNER" not in README


def test_ci_runs_what_the_readme_says() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
