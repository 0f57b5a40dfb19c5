"""A command without the extra that it needs: its help is there, and an error names the extra."""

from __future__ import annotations

import importlib.util

import pytest
from click.testing import CliRunner

from flatmq_tools.cli import main as cli


def test_the_pipeline_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown = CliRunner().invoke(cli, ["pipeline", "run", "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output
    done = CliRunner().invoke(cli, ["pipeline", "export", "tables", "out"])
    assert done.exit_code == 1
    assert done.output.endswith("pip install 'flatmq[pipeline]'\n")
