"""Each scenario of the fault table, in its short version.

All run side by side: most only wait. `python -m flatmq_rigs faults` runs every row.
"""

import ast
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

import sizes
from faults.bench import HERE, SIDE_BY_SIDE, Bench, Case, Row, cases
from faults.catalogue import SCENARIOS
from side_by_side import side_by_side

CASES = sizes.one_each(
    cases(), lambda case: case.scenario.title, lambda case: (case.broker, case.python), 8,
    is_proof=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[dict[Case, Future[Row]]]:
    """A row, now or later, for each case that this run of the tests asks for."""
    with Bench() as bench, side_by_side(request, test_fault, bench.run, SIDE_BY_SIDE) as futures:
        yield futures


@pytest.mark.parametrize("case", CASES, ids=str)
def test_fault(case: Case, rows: dict[Case, Future[Row]]) -> None:
    row = rows[case].result()
    assert row.ok, f"{row.problems}\n{row.told}"


def test_every_scenario_has_a_row() -> None:
    found = set()
    for path in (HERE / "client").glob("*.py"):
        if path.stem != "fault_env":
            found |= {
                (path.stem, node.name)
                for node in ast.parse(path.read_text()).body
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            }
    assert found == {(scenario.module, scenario.function) for scenario in SCENARIOS}


def test_no_two_rows_have_one_name() -> None:
    names = [str(case) for case in cases()]
    assert len(set(names)) == len(names)
