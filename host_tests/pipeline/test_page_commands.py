"""Each command `flatmq pipeline …` of the README and the how-to pages, typed as it stands there.

A broker, folders, a bucket and a master of Spark stand for those that it names. Each is
read with all its options; one of each kind does its work, in this process on the session that all
tests share. With --whole all of them do, as processes. `COVERED` names the tests that stand for
the others.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import signal
import sqlite3
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

import sizes
import typed_command
from conftest import HERE
from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools import ports
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import export, forget, landing, rebuild, run
from flatmq_tools.pipeline.report import command as report
from flatmq_tools.pipeline.report import from_state
from flatmq_tools.pipeline.report.figures import ReportError
from flatmq_tools.pipeline.report.period import Period
from flatmq_tools.pipeline.state.store import StateError
from pages.commands import everything
from pipeline.mqtt import broker, publish
from pipeline.typed_here import CLUSTER, apart, shared, typed

# By its name tests are grouped that run in the process of the shared session.
pytestmark = [] if sizes.whole() else [pytest.mark.usefixtures("spark")]
DEMO = ("test_pipeline_demo.py", "test_everything_that_boards_send_is_in_the_tables")
COVERED = {
    "flatmq pipeline demo build/demo": DEMO,
    "flatmq pipeline demo build/on-workers": DEMO,
    "spark-submit --master spark://master:7077 submit.py": (
        "test_submit.py",
        "test_spark_submit_runs_the_jobs",
    ),
}
COMMANDS = [
    words
    for words in everything()
    if words[:2] == ("flatmq", "pipeline") and " ".join(words) not in COVERED
]
READERS = ("report", "forget", "export", "rebuild")
MADE = ("--log /var/lib/flatmq/log", "--metrics-port 9102")
"""Options of an ingest, and of a run, which make tables for the readers."""
DEVICE = "kitchen-lamp"
PACK = [{"bn": f"urn:dev:{DEVICE}/", "boot": 1, "seq": 1}, {"n": "temp", "u": "Cel", "v": 21.5}]


def _names_the_device(tables: Path) -> bool:
    """Return whether a file of the tables has the name: its footer has the least and greatest."""
    return any(DEVICE.encode() in path.read_bytes() for path in tables.rglob("*.parquet"))


class Desk:
    """Somebody types commands in `folder`, while boards publish to a broker."""

    def __init__(self, folder: Path, there: Broker) -> None:
        self.folder = folder
        self.broker = there
        self.port = ports.free_port()
        self._published = 0

    def word(self, word: str) -> str:
        """Return what replaces a word of a command."""
        today = datetime.datetime.now(datetime.timezone.utc).date()
        for name, mine in {
            "192.168.1.10": self.broker.address,
            "broker.local": self.broker.address,
            "/srv/": f"{self.folder}/srv/",
            "/var/lib/flatmq": f"{self.folder}/var",
            "/mnt/shared/": f"{self.folder}/shared/",
            "910": f"{self.port}#",
            "spark://master:7077": CLUSTER,
            "s3://bucket": f"s3://{BUCKET}",
            "2026-11-01": str(today - datetime.timedelta(days=7)),
            "2026-11-08": str(today + datetime.timedelta(days=1)),
        }.items():
            if name in word:
                return word.replace(name, mine).partition("#")[0]
        return word

    def publish(self) -> None:
        """Have a board and a bridge publish a reading each."""
        self._published += 1
        pack = [PACK[0] | {"seq": self._published}, PACK[1]]
        publish(
            self.broker,
            [
                (f"dev/{DEVICE}/telemetry", json.dumps(pack).encode()),
                (f"zigbee2mqtt/{DEVICE}", b'{"temperature": 21.5, "linkquality": 100}'),
            ],
        )

    def type(self, *words: str, ready: Callable[[], object] | None = None) -> None:
        """Run a command, to its end or until that is so and then Ctrl-C."""
        if not sizes.whole():
            self._type_here(words, ready)
            return
        command = [sys.executable, "-m", "flatmq_tools.cli", *words[1:]]
        environment = {**apart(self.folder), "COLUMNS": "200"}
        with typed_command.running(command, self.folder, environment) as process:
            if ready is None:
                said = process.communicate(timeout=typed_command.PATIENCE)[0]
                assert process.returncode == 0, said
            else:
                typed_command.when(ready, process)
                typed_command.interrupt(process)

    def _type_here(self, words: Sequence[str], ready: Callable[[], object] | None) -> None:
        arguments = [*words[2:]]
        if words[2] == "run":  # Java works in another folder
            arguments[1] = str(self.folder / words[3])
        with contextlib.chdir(self.folder):
            done = typed(arguments, ready, [signal.SIGINT] if ready else [])
        assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def there() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def made(
    there: Broker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """A log, and the tables of what was received, made by commands of the pages."""
    desk = Desk(tmp_path_factory.mktemp("made"), there)

    def is_noted() -> bool:
        """Return whether the run has made all of which a report is made."""
        with contextlib.suppress(ReportError, StateError, sqlite3.Error, OSError):
            return from_state.of_state(desk.folder / "out", Period()) is not None
        return False

    with contextlib.ExitStack() as stack:
        if not sizes.whole():
            spark = request.getfixturevalue("spark")
            stack.enter_context(shared(spark, stack.enter_context(pytest.MonkeyPatch.context())))
        ingest, run = (
            tuple(map(desk.word, words))
            for option in MADE
            for words in COMMANDS
            if words[2] not in READERS and f" {option} " in f"{' '.join(words)} "
        )
        desk.type(*ingest, ready=_until(desk, ingest))
        shutil.copytree(desk.folder / "srv" / "out", desk.folder / "out")
        noted = _until(desk, run)
        desk.type(*run, "--health-every", "1", ready=lambda: noted() and is_noted())
    return desk.folder


@pytest.fixture
def desk(made: Path, there: Broker, tmp_path: Path) -> Desk:
    """A desk at which that was made before."""
    for name in ("out", "srv/out", "shared/out"):
        shutil.copytree(made / "srv" / "out", tmp_path / name)
    shutil.copytree(made / "var" / "log", tmp_path / "var" / "log")
    return Desk(tmp_path, there)


def _metrics(desk: Desk) -> bool:
    """Return whether the page of metrics is there."""
    url = f"http://127.0.0.1:{desk.port}/metrics"
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as page:
        return b"flatmq_" in page.read()
    return False


def _until(desk: Desk, words: tuple[str, ...]) -> Callable[[], object]:
    """Return the function that says when a command has done its work."""
    out = words[4] if words[2] == "ingest" else words[3]
    table = f"{out}/raw" if words[2] == "ingest" or "--broker" in words else f"{out}/devices"
    where = table if "://" in table else str(desk.folder / table)

    def version() -> int:
        return DeltaTable(where).version() if DeltaTable.is_deltatable(where) else -1

    before = version()

    def ready() -> bool:
        if words[2] == "ingest" or "--broker" in words:
            desk.publish()
        return version() > before

    if "--metrics-port" not in words:
        return ready
    return lambda: ready() and _metrics(desk)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_its_options_are_understood(
    words: tuple[str, ...], there: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tables", "out", "srv/out", "var/log"):
        (tmp_path / name).mkdir(parents=True)
    done: list[object] = []
    for command in (export, forget, landing, rebuild, report, run):
        monkeypatch.setattr(command, "main", lambda *work, **_: done.append(work) or 0)
    monkeypatch.chdir(tmp_path)
    said = typed([*map(Desk(tmp_path, there).word, words[2:])])
    assert said.exit_code == 0, said.output
    assert len(done) == 1


AT_WORK = COMMANDS if sizes.whole() else [words for words in COMMANDS if words[2] in READERS]


@pytest.mark.parametrize("words", sizes.one_each(AT_WORK, lambda words: words[2]), ids=" ".join)
def test_it_runs(words: tuple[str, ...], desk: Desk, made: Path) -> None:
    with contextlib.ExitStack() as stack:
        if "s3://" in " ".join(words):
            stack.enter_context(store())
        typed_words = tuple(map(desk.word, words))
        if words[2] not in READERS:
            desk.type(*typed_words, ready=_until(desk, typed_words))
            return
    named = words.index("--tables") + 1 if words[2] == "report" else 4 - (words[2] == "export")
    tables = words[named]
    shutil.rmtree(desk.folder / tables, ignore_errors=True)
    shutil.copytree(made / "out", desk.folder / tables)
    assert _names_the_device(desk.folder / tables)
    desk.type(*typed_words)
    if words[2] == "report":
        page = desk.folder / words[3] / "report.html"
        assert DEVICE in page.read_text(encoding="utf-8")
    elif words[2] == "rebuild":
        assert not (desk.folder / tables / words[3]).exists()
    elif words[2] == "export":
        assert _names_the_device(desk.folder / words[4])
    else:
        assert not _names_the_device(desk.folder / tables)


def test_what_stands_for_a_command_is_there() -> None:
    for command, (file, test) in COVERED.items():
        assert any(" ".join(words).startswith(command) for words in everything()), command
        assert f"def {test}(" in (HERE / "pipeline" / file).read_text(encoding="utf-8")
