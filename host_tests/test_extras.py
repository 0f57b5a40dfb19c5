"""Commands without the extra that they need, and errors of the system."""

import errno
import importlib.util

import click
import pytest
from click.testing import CliRunner

from flatmq_tools.cli import main as cli
from flatmq_tools.typed import command


def test_the_pipeline_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown = CliRunner().invoke(cli, ["pipeline", "run", "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output
    done = CliRunner().invoke(cli, ["pipeline", "export", "tables", "out"])
    assert done.exit_code == 1
    assert done.output.endswith("pip install 'flatmq[pipeline]'\n")


def test_an_error_of_the_system_is_a_sentence() -> None:
    group = click.Group()

    @command(group)
    def fails() -> int:
        raise OSError(errno.EROFS, "Read-only file system", "out/raw")

    done = CliRunner().invoke(group, ["fails"])
    assert (done.exit_code, done.output) == (1, "Error: out/raw: Read-only file system\n")


def test_a_reader_that_has_gone_is_no_error() -> None:
    """As in `flatmq logs | head`."""
    group = click.Group()

    @command(group)
    def prints() -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    done = CliRunner().invoke(group, ["prints"])
    assert (done.exit_code, done.output) == (1, "")
