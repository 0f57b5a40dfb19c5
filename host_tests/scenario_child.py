"""A scenario in an interpreter of its own, and what it asks the process that started it for."""

import itertools
import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conftest import HERE, interpreter_command, library
from flatmq_tools import interpreter

HEAP = "320k"  # of MicroPython, for the client, a scenario over TLS or WebSocket, and its compiler
_runs = itertools.count()


class ScenarioError(AssertionError):
    """A scenario did not come to its end; the text has what it printed."""


def converse(
    command: Sequence[str],
    environment: Mapping[str, str],
    deadline: float,
    carry_out: Callable[[list[str]], str | None],
    hear: Callable[[list[str]], None] = lambda words: None,
) -> list[str]:
    """Run an interpreter with a scenario to its end and return the lines that it printed.

    carry_out: does what a line "@ask WORDS" asks for and returns the answer, or None to have the
    interpreter killed. hear: gets the words of every other line that begins with "@". deadline:
    seconds until it is ended from outside. Raises ScenarioError for one that fails.
    """
    output: list[str] = []
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watchdog = threading.Timer(deadline, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            output.append(line.rstrip("\n"))
            words = line.split()
            if words[:1] == ["@ask"]:
                answer = carry_out(words[1:])
                if answer is None:
                    return output
                process.stdin.write(answer + "\n")
                process.stdin.flush()
            elif line.startswith("@"):
                hear(words)
        status = process.wait()
    except BrokenPipeError:  # it died while it was being answered
        status = process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    if status or output[-1:] != ["@end"]:
        told = "\n".join(output)
        raise ScenarioError(f"{' '.join(command)} ended with {status}:\n{told}")
    return output


def play(
    python: str,
    script: Path,
    *arguments: str,
    heap: str,
    deadline: float = 120,
    folders: Sequence[Path] = (),
    carry_out: Callable[[list[str]], str | None] = lambda words: None,
    hear: Callable[[list[str]], None] = lambda words: None,
    **options: object,
) -> list[str]:
    """Run a script with a scenario on "cpython" or "micropython"; return the lines it printed.

    It gets the arguments, then the options as NAME=VALUE, and imports from `folders`, this folder
    and its own. The others are as in `converse`.
    """
    return converse(
        [
            *interpreter_command(python, heap),
            *(str(script), *arguments),
            *(f"{name}={value}" for name, value in options.items()),
        ],
        interpreter.environment(*folders, library(python), HERE, script.parent),
        deadline,
        carry_out,
        hear,
    )


def linked(python: str, scenario: str, tls: dict[str, Any], **options: object) -> list[list[str]]:
    """Run a scenario, "module.function", over TLS or WebSocket, as run_scenario.py says.

    Returns the words of each line that begins with "@".
    """
    heard: list[list[str]] = []
    given = {"host": "127.0.0.1", "token": f"linked{next(_runs)}", **options}
    if tls:
        given["tls"] = json.dumps(tls)
    play(
        python,
        HERE / "run_scenario.py",
        *scenario.split("."),
        heap=HEAP,
        folders=[HERE / name for name in ("scenarios", "tls", "websocket")],
        hear=heard.append,
        **given,
    )
    return heard
