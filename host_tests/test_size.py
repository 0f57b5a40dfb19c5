"""The weights of every module and the bounds of every step of a client's life.

They are measured with --whole, and where the client is not the one of the committed figures.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import sizes
from conftest import ROOT
from flatmq_rigs import results, size, webassembly
from flatmq_rigs.__main__ import main as cli
from flatmq_rigs.size import modules, steps
from flatmq_rigs.size.committed import sealed, steps_on_32_bits
from flatmq_rigs.size.scales import InPlace, Narrow, Wide
from flatmq_tools import bytecode

COMMITTED = {} if sizes.whole() else steps_on_32_bits(ROOT / "docs/results.md")


@pytest.fixture(scope="module")
def weighed() -> size.Sizes:
    if webassembly.find() is None:
        pytest.fail(webassembly.MISSING)
    return size.measure(peers=False)


def measured(test: Callable[..., None]) -> Callable[..., None]:
    """Have a test of what is measured run where there are no committed figures."""
    return pytest.mark.proof(test) if COMMITTED else test


@pytest.mark.parametrize("step", steps.BOUNDS)
def test_a_step_keeps_its_bound_on_32_bits(step: str, request: pytest.FixtureRequest) -> None:
    held = COMMITTED or request.getfixturevalue("weighed").steps[Narrow.title]
    assert held[step] <= steps.BOUNDS[step]


@pytest.mark.parametrize("edit", ["nothing", "a source", "a new source", "a figure"])
def test_committed_figures_are_those_of_the_sources(edit: str, tmp_path: Path) -> None:
    sources = shutil.copytree(bytecode.SOURCES, tmp_path / "flatmq")
    document = tmp_path / "results.md"
    text = size._text(_SIZES)
    results.write(document, "size", sealed(text, sources))
    if edit == "a source":
        with (sources / "client.py").open("a") as file:
            file.write("#")
    elif edit == "a new source":
        (sources / "more.py").touch()
    elif edit == "a figure":
        document.write_text(document.read_text().replace("99,999", "9,999"))
    found = steps_on_32_bits(document, sources)
    assert found == (_SIZES.steps[Narrow.title] if edit == "nothing" else {})


@measured
def test_every_module_is_weighed(weighed: size.Sizes) -> None:
    order = [module for group in weighed.groups for module in group]
    assert sorted(order) == modules.names(bytecode.SOURCES, bytecode.DESK_ONLY)
    assert len(set(order)) == len(order)
    for title in (Wide.title, Narrow.title, InPlace.title):
        assert set(weighed.modules[title]) == set(order)
        assert all(held > 0 for held in weighed.modules[title].values()), title
    for module in order:
        assert weighed.functions[module] < weighed.mpy[module]


@measured
def test_what_publishes_does_not_load_what_receives(weighed: size.Sizes) -> None:
    publishing, receiving, on_request = weighed.groups
    assert "client" in publishing
    assert receiving
    assert {"spool", "senml", "stream_uart"} <= set(on_request)


@measured
def test_mqtt_5_is_weighed_at_every_step_and_feature(weighed: size.Sizes) -> None:
    for title in (Wide.title, Narrow.title, InPlace.title):
        old, new = weighed.steps[title], weighed.steps_5[title]
        assert set(new) == set(old)
        assert new[steps.IMPORTED] == old[steps.IMPORTED], "3.1.1 loads something of MQTT 5"
        assert all(new[step] > old[step] for step in new if step != steps.IMPORTED)
        found = weighed.features[title]
        assert set(found) == {4, 5}
        for version in (4, 5):
            assert set(found[version]) == set(steps.features(version))
        for name in steps.FEATURES_5:
            assert found[5][name] > 0 or "comes in" in name, name
        # What comes in with properties needs nothing that is not there.
        assert found[5]["a message with properties comes in"] == 0
        # What has fallen back lets go of the connection and the router of MQTT 5.
        assert old[steps.GRANTED] < weighed.fallen_back[title] < new[steps.GRANTED]


def test_the_command_writes_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "measure", lambda build: _SIZES)
    document = tmp_path / "results.md"
    done = CliRunner().invoke(cli, ["size", "--results", str(document)])
    assert done.exit_code == 0, done.output
    assert "over its bound: made: `Client(...)`: 99,999 bytes" in done.output
    assert "not measured: no peer" in done.output
    written = document.read_text()
    assert "| client | 3 | 1,234 | 2,345 | - | - |" in written
    assert "| **all of package.json** | 5 | 1,354 | 2,350 | - | - |" in written
    assert "| **spool.json adds** | 5 | 3 | 50 | - | - |" in written
    assert "| **together** | 10 | 1,364 | 2,400 | - | - |" in written
    assert "| TLS | 1,500 | 2,500 |" in written
    assert "| made: `Client(...)` | 99,999 | - | - | - | - | 14,000 |" in written
    assert "| made: `Client(...)` | 99,999 | 100,009 | 10 | - | - | - | - | - | - |" in written
    assert "| `client.request` | - | 77 | - | - | - | - |" in written
    assert "| version=None, fallen back to 3.1.1, subscribed | - | 5,555 | - |" in written
    assert "It is 7 bytes of .mpy files (mqtt5.json)" in written


_SIZES = size.Sizes(
    groups=[["client"], ["message"], ["chunks", "spool", "v5"]],
    parts={"package": ["chunks"], "spool": ["spool"], "mqtt5": ["v5"]},
    functions={"client": 3, "message": 1, "chunks": 1, "spool": 5, "v5": 0},
    mpy={"client": 1234, "message": 100, "chunks": 20, "spool": 3, "v5": 7},
    modules={Wide.title: {"client": 2345, "message": 1, "chunks": 4, "spool": 50}},
    links={Wide.title: {"TLS": {steps.MADE: 1_500, steps.CONNECTED: 2_500}}},
    steps={Narrow.title: {steps.MADE: 99_999, steps.SUBSCRIBED: 77}},
    steps_5={Narrow.title: {steps.MADE: 100_009}},
    features={Narrow.title: {5: {"`client.request`": 77}}},
    fallen_back={Narrow.title: 5_555},
    notes=["no peer"],
)
