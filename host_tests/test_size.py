"""The bounds of what a client holds in each state, measured on 32 bits, and of its start."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from flatmq_rigs import results, size, webassembly
from flatmq_rigs.__main__ import main as cli
from flatmq_rigs.size import rows, scales
from flatmq_rigs.size.scales import Start, Weight
from flatmq_tools import interpreter


@pytest.fixture(scope="module")
def measured() -> size.Sizes:
    if webassembly.find() is None:
        pytest.fail(webassembly.MISSING)
    if interpreter.find() is None:
        pytest.fail(interpreter.MISSING)
    return size.measure(peers=False)


@pytest.mark.parametrize("name", [row.name for row in rows.ROWS.values() if row.bound])
def test_a_state_keeps_its_bound_on_32_bits(name: str, measured: size.Sizes) -> None:
    assert measured.weights[name].held <= (rows.ROWS[name].bound or 0)


def test_the_start_keeps_its_bound(measured: size.Sizes) -> None:
    assert measured.starts["flatmq"].loads <= rows.BOUND_LOADS


def test_the_tcp_link_is_loaded_and_weighed(measured: size.Sizes) -> None:
    assert any(name.endswith("tcp") for name in measured.weights[rows.ONLINE].modules)


def test_what_is_asked_for_is_the_bound_once_it_is_met() -> None:
    assert [rows.Row("", 1_000, now, "").bound for now in (900, 1_000, 1_200)] == [
        1_000, 1_000, 1_212,
    ]  # fmt: skip


def test_the_figures_are_the_same_in_each_run(
    measured: size.Sizes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = rows.PATHS[0]
    monkeypatch.setattr(rows, "PATHS", (path,))
    monkeypatch.setattr(scales, "time_start", lambda *arguments: None)
    again = size.measure(tmp_path, peers=False).weights
    assert again == {row.name: measured.weights[row.name] for row in path}


def test_the_command_writes_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = rows.PATHS[0]
    simple = Weight(3_834, frozenset())
    sizes = size.Sizes(
        weights={
            first.name: Weight(99_999, frozenset({"flatmq", "flatmq.reader"})),
            second.name: Weight(77, frozenset({"flatmq", "flatmq.resend"})),
        },
        umqtt={"imported": simple, "made": simple, first.name: simple},
        starts={"flatmq": Start(0.5, 2.5, 99.9)},
        flash={"package": 90_000, "ha": 99_000},
        notes=["no peer"],
    )
    monkeypatch.setattr(size, "measure", lambda build: sizes)
    document = tmp_path / "results.md"
    done = CliRunner().invoke(cli, ["size", "--results", str(document)])
    assert done.exit_code == 0, done.output
    assert f"over its bound: {first.name}: 99,999 bytes" in done.output
    assert "over its bound: start: 99.9 loads" in done.output
    assert "not measured: no peer" in done.output
    held, flash, starts = map(results.rows, results.tables(document, "size"))
    assert held[1] == [first.name, "99,999", f"{first.bound:,}", f"{first.asked:,}", "3,834"]
    assert held[2] == [second.name, "+77", f"+{second.bound:,}", "+500", "-"]
    assert held[3] == [third.name, "-", f"+{third.bound:,}", "+64", "-"]
    assert flash[1:] == [["the client", "90,000", ""], ["ha", "99,000", "+9,000"]]
    assert starts[1][:4] == ["flatmq", "0.50", "2.50", "99.9"]
