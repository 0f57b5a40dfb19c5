"""Each command `flatmq pipeline …` of the README and the how-to pages, typed as it stands there.

It is read with all its options, and calls what does its work, which other tests prove.
"""

from pathlib import Path

import pytest

from conftest import HERE
from flatmq_tools.pipeline import export, forget, landing, rebuild, run
from flatmq_tools.pipeline.report import command as report
from pages.commands import everything
from pipeline.runs import typed

DEMO = ("test_pipeline_demo.py", "test_everything_that_boards_send_is_in_the_tables")
COVERED = {
    "flatmq pipeline demo build/demo": DEMO,
    "flatmq pipeline demo build/on-workers": DEMO,
    "spark-submit --master spark://master:7077 submit.py":
        ("test_clusters.py", "test_spark_submit_runs_the_jobs"),
}  # fmt: skip
COMMANDS = [
    words for words in everything()
    if words[:2] == ("flatmq", "pipeline") and " ".join(words) not in COVERED
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_its_options_are_understood(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tables", "out", "srv/out", "mnt/shared/out", "var/lib/flatmq/log"):
        (tmp_path / name).mkdir(parents=True)
    done: list[object] = []
    for command in (export, forget, landing, rebuild, report, run):
        monkeypatch.setattr(command, "main", lambda *work, **_: done.append(work) or 0)
    monkeypatch.chdir(tmp_path)
    said = typed([f"{tmp_path}{word}" if word[0] == "/" else word for word in words[2:]])
    assert said.exit_code == 0, said.output
    assert len(done) == 1


def test_what_stands_for_a_command_is_there() -> None:
    for command, (file, test) in COVERED.items():
        assert any(" ".join(words).startswith(command) for words in everything()), command
        assert f"def {test}(" in (HERE / "pipeline" / file).read_text(encoding="utf-8")
