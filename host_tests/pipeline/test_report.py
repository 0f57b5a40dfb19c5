"""The report has the numbers of the messages, on a page that needs nothing, and in a terminal."""

import base64
import dataclasses
import datetime
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from flatmq_tools.pipeline.report import (
    charts,
    command,
    figures,
    from_raw,
    needs,
    numbers,
    page,
    terminal,
    values,
)
from flatmq_tools.pipeline.report.figures import Figures
from pipeline import look
from pipeline.messages import START, Message, land, reading
from pipeline.runs import said


def messages() -> list[Message]:
    """Ten minutes of three boards that send every 10 s, and what befalls them."""
    sent = []
    for n in range(60):
        when = n * 10.0
        if n not in (20, 21, 40):
            sent.append(reading("steady", 1, n + 1, when + 0.5, time=when, temperature=2000 + n))
        if n < 30:  # a reboot at 15, then silence
            boot, seq = (4, n + 1) if n < 15 else (5, n - 14)
            sent.append(reading("silent", boot, seq, when + 1))
        if n < 6:
            sent.append(reading("asleep", 9, n + 1, when + 2, time=when))
    sent.append(reading("steady", 1, 6, 55))  # twice
    sent.append(Message("dev/asleep/status", b"asleep", 53, retain=True))
    sent.append(Message("dev/silent/status", b"<script>", 54, retain=True))
    sent.append(Message("dev/steady/telemetry", b"torn", 56))
    return sorted(sent, key=lambda message: message.at)


PROGRESS = [
    {"id": "q", "name": "measurements", "batchId": n, "timestamp": f"2026-03-01T12:0{n}:00.000Z",
     "numInputRows": 20, "durationMs": {"triggerExecution": 400 + 500 * (n == 3)},
     "triggerMs": 500}
    for n in range(6)
]  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the jobs leave behind."""
    folder = tmp_path_factory.mktemp("tables")
    land(folder, messages()[:50])
    land(folder, messages()[50:])
    # What a table no longer has is on the disk all the same.
    land(folder, messages())
    DeltaTable(str(folder / "raw")).restore(1)
    lines = [json.dumps(each) for each in [*PROGRESS, PROGRESS[0]]]
    (folder / "progress.jsonl").write_text("\n".join([*lines, lines[0][:30]]))
    return folder


@pytest.fixture(scope="module")
def fleet(tables: Path) -> Figures:
    with from_raw.figures(tables) as (found, _):
        return found


def test_the_figures_are_those_of_the_messages(fleet: Figures) -> None:
    sent = messages()
    assert (fleet.messages, fleet.span) == (len(sent), 590)
    assert fleet.since == START + datetime.timedelta(seconds=0.5)
    assert sum(moment.messages for moment in fleet.moments) == len(sent)
    found = {device.name: device for device in fleet.devices}
    assert found.keys() == {"steady", "silent", "asleep"}
    steady, silent, asleep = found["steady"], found["silent"], found["asleep"]
    assert (steady.received, steady.lost, steady.duplicates, steady.p50) == (57, 3, 1, 500)
    assert (silent.received, silent.reboots, silent.silent, silent.p50) == (30, 1, True, None)
    assert silent.silent_s == 590.5 - 291
    assert (asleep.status, asleep.silent, asleep.p50) == ("asleep", False, 2000)
    assert [(gap.device, gap.missing) for gap in fleet.gaps] == [
        ("silent", None), ("steady", 2), ("steady", 1)
    ]  # fmt: skip
    assert (silent.restarted_since, silent.restarted_until) == (150.5, 150.5)
    assert (steady.restarted_since, steady.restarted_until) == (None, None)
    assert [(v.device, v.value) for v in fleet.newest] == [
        ("asleep", 21.5), ("silent", 21.5), ("steady", 20.59),
    ]  # fmt: skip
    assert [each[:2] for each in fleet.dead] == [("not JSON: Expecting value", 1)]
    assert fleet.delays == pytest.approx((500, 2000, 2000), rel=0.02)
    assert (steady.lost_since, steady.lost_until) == (220, 410)
    assert (sum(fleet.losses), len(fleet.losses), fleet.paused) == (3, len(fleet.moments), 1)
    # Boards send every 10 s: one is heard where it is in 30 s.
    assert fleet.wide == 30
    assert [(h.heard, h.known) for h in fleet.heard[:3]] == [(3, 3), (3, 3), (2, 3)]
    assert fleet.heard[-1][1:] == (1, 3)


def test_batches_and_what_waited(fleet: Figures) -> None:
    """Each once, also where a line is torn or there twice."""
    sent = messages()
    came = [sum(message.at < 60 * n for message in sent) for n in range(6)]
    read = [len(sent) - 20 * (5 - n) for n in range(6)]  # with the batch itself
    assert [(b.seconds, b.trigger, b.rows, b.spool) for b in fleet.batches] == [
        (0.9 if n == 3 else 0.4, 0.5, 20, max(0, came[n] - read[n])) for n in range(6)
    ]
    assert [batch.late for batch in fleet.batches].index(True) == 3


class Read(HTMLParser):
    """A page as a browser reads it: elements with their attributes, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif data.strip() and self._open != "style":
            self.texts.append(data.strip())

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


@pytest.fixture(scope="module")
def read(fleet: Figures, tmp_path_factory: pytest.TempPathFactory) -> Read:
    file = command.written(fleet, tmp_path_factory.mktemp("report"))
    return Read(file.read_text(encoding="utf-8"))


def test_the_page_begins_with_what_needs_a_person(fleet: Figures, read: Read) -> None:
    texts = [text.replace("\N{NARROW NO-BREAK SPACE}", " ") for text in read.texts]
    order = [texts.index(text) for text in (
        "2 of 3 devices need a look", "Silent", "Losing messages", "Restarting",
        "Messages that cannot be read", "Devices", "The fleet over time", "The pipeline itself",
    )]  # fmt: skip
    assert order == sorted(order)
    found = {need.kind: need.items for need in needs.needs(fleet)}
    assert [(item.name, item.since) for item in found["silent"]] == [("silent", 290.5)]
    assert [item[:] for item in found["losing"]] == [
        ("steady", "3 messages, 5\N{NARROW NO-BREAK SPACE}%", 220, 410)
    ]
    assert [(item.name, item.since) for item in found["restarting"]] == [("silent", 150.5)]
    assert found["unreadable"][0].name == "not JSON: Expecting value"
    assert "repeating" not in found
    device = fleet.devices[0]._replace(name="stuck", boots=1, received=99, duplicates=100)
    repeating = needs.needs(dataclasses.replace(fleet, devices=[device]))
    assert [need.items[0].name for need in repeating if need.kind == "repeating"] == ["stuck"]
    for item in found["silent"] + found["losing"]:
        assert item.name in texts and item.text.replace("\N{NARROW NO-BREAK SPACE}", " ") in texts
    # Each leads to its row.
    rows = read.data["devices"]
    links = {a["title"]: a["href"] for tag, a in read.elements if tag == "a" and "title" in a}
    assert {name: f"#device-{rows['name'].index(name)}" for name in links} == links
    assert {*links} == {"silent", "steady"}
    assert rows["name"] == ["silent", "steady", "asleep"]
    assert [len(kinds) for kinds in rows["needs"]] == [2, 1, 0]
    assert rows["status"][0] == "<script>"
    assert rows["lost"][1] == 3 and rows["heard"][0] == (START.timestamp() + 291)
    newest = read.data["newest"]["1"]
    assert [row[:2] for row in newest] == [["chip/temp", "20.59\N{NARROW NO-BREAK SPACE}°C"]]


def test_the_page_needs_nothing_else(read: Read) -> None:
    tags = {tag for tag, _ in read.elements}
    assert not {"link", "iframe", "img", "object", "base", "form"} & tags
    for tag, attributes in read.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert all((attributes.get(name) or "#")[0] == "#" for name in ("src", "href")), tag
    policy = next(a["content"] for _, a in read.elements if "http-equiv" in a)
    assert policy is not None and "default-src 'none'" in policy
    # The browser runs these scripts, and no other.
    hashes = re.findall(r"'sha256-([^']+)'", policy)
    sha = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in read.scripts]
    assert hashes == sha[1:] and len(hashes) == 2
    assert "unsafe-eval" not in policy and "script-src 'unsafe" not in policy
    assert "viewport" in {a.get("name") for _, a in read.elements}


HOSTILE = (
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "<!--", "a\x00b",
    "\"' onclick=alert(1) x='", "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe", "{{ 7 * 7 }}", "&lt;b&gt;",
    "x" * 65_535, "\x1b[2J", "__proto__", "]]>", "javascript:alert(1)",
)  # fmt: skip


def hostile(fleet: Figures) -> Figures:
    """Return figures whose names are all hostile."""
    boards = [fleet.devices[-1]._replace(name=n, lost=9, silent=True, status=n) for n in HOSTILE]
    curves = {name: [1.0, None, 2.0] for name in HOSTILE}
    band = [figures.Band(0, 1, 2, 3, 4)] * 3
    return dataclasses.replace(
        fleet, devices=boards, gaps=[figures.Gap(n, 0, 1, 9) for n in HOSTILE],
        newest=[figures.Value(n, n, n, n, 0) for n in HOSTILE],
        out_of_time=[figures.OutOfTime(n, 1, 0) for n in HOSTILE],
        dead=[figures.Dead(n, 1, (n,)) for n in HOSTILE],
        measured=figures.Measured(0, 1, [
            *(figures.Quantity(n, n, 13, band, curves) for n in HOSTILE),
            figures.Quantity(HOSTILE[0], "", 13, [], curves),
        ], 13, 13),
    )  # fmt: skip


def test_names_are_texts(fleet: Figures) -> None:
    """Whatever they contain: the page has the elements and scripts of one with plain names."""
    bad, plain = hostile(fleet), hostile(fleet)
    swapped = {name: f"name {n}" for n, name in enumerate(HOSTILE)}
    plain = dataclasses.replace(
        plain, devices=[d._replace(name=swapped[d.name]) for d in plain.devices],
        out_of_time=[o._replace(device=swapped[o.device]) for o in plain.out_of_time],
        dead=[d._replace(kind=swapped[d.kind]) for d in plain.dead],
    )  # fmt: skip
    seen, wanted = Read(page.page(bad)), Read(page.page(plain))
    assert [(tag, {*a}) for tag, a in seen.elements] == [(tag, {*a}) for tag, a in wanted.elements]
    assert seen.scripts[1:] == wanted.scripts[1:]
    assert sorted(seen.data["devices"]["name"]) == sorted(HOSTILE)
    assert {a["title"] for tag, a in seen.elements if tag == "a" and "title" in a} <= {*HOSTILE}
    out = io.StringIO()
    terminal.show(bad, Console(file=out, width=80))
    assert "\x1b" not in out.getvalue() and "\N{RIGHT-TO-LEFT OVERRIDE}" not in out.getvalue()
    assert len(out.getvalue()) < 20_000


def test_the_charts_of_the_fleet(fleet: Figures) -> None:
    made = {chart["title"]: chart for chart in charts.fleet(fleet)}
    assert [*made] == ["Messages", "Devices heard", "Delay", "Messages lost"]
    assert sum(made["Messages lost"]["bars"][0][2]) == 3
    known, heard = (line for _, _, line in made["Devices heard"]["lines"])
    assert (max(known), heard[0]) == (3, 3)
    slowest = max(filter(None, made["Delay"]["lines"][2][2]))
    assert slowest == pytest.approx(2, rel=0.02)  # half of a bin
    assert (made["Delay"]["high"], made["Delay"]["unit"]) == (1, "s"), "up to 10 s"
    batches = {chart["title"]: chart for chart in charts.pipeline(fleet.batches)}
    assert batches["Time of a batch"]["high"] == 0.9
    # 5 that the second batch leaves, and the 20 that are in it.
    assert max(filter(None, batches["Messages that wait"]["bars"][0][2])) == 25


def test_a_chart_of_one_value_is_not_blank(fleet: Figures) -> None:
    """All delays are equal, or there is a single one: the line is within the chart."""
    for delay, low, high in ((500.0, -1, 0), (0.0, 0, 1), (-3.0, 0, 1), (1000.0, 0, 1)):
        moments = [figures.Moment(n, 1, delay, delay, delay) for n in range(3)]
        same = Figures(fleet.since, fleet.until, 3, moments=moments)
        (chart,) = (chart for chart in charts.fleet(same) if chart["title"] == "Delay")
        assert (chart["low"], chart["high"]) == (low, high), "powers of ten, in seconds"
    flat = figures.Quantity("t", "Cel", 1, [], {"a": [20.5, 20.5]})
    chart = charts.value(flat, (0, 1), ["blue"])
    assert chart["low"] < 20.5 < chart["high"]


def test_the_last_seconds_do_not_silence_the_fleet(fleet: Figures) -> None:
    """The last stretch of time is not over: who is not heard in it is not silent."""
    heard = [figures.Heard(at, 20, 20) for at in (0, 30, 60)] + [figures.Heard(90, 0, 20)]
    until = fleet.since + datetime.timedelta(seconds=91)
    cut = Figures(fleet.since, until, 9, wide=30, heard=heard)
    (chart,) = (chart for chart in charts.fleet(cut) if chart["title"] == "Devices heard")
    assert min(chart["lines"][1][2]) == 20


def test_who_was_silent_for_a_while_is_counted(fleet: Figures) -> None:
    calm = dataclasses.replace(
        fleet, devices=[d._replace(silent=False) for d in fleet.devices], paused=3
    )
    (silent,) = (number for number in numbers.summary(calm) if number.name == "silent now")
    assert (silent.text, silent.note) == ("0", "3 others for a while")


def test_silence_since_the_newest_message_is_said(fleet: Figures) -> None:
    late = fleet.until + datetime.timedelta(hours=5)
    assert "5\N{NARROW NO-BREAK SPACE}h before this report was written" in page.page(fleet, late)
    assert "before this report" not in page.page(fleet, fleet.until) + page.page(fleet)


def test_there_is_no_empty_card(fleet: Figures) -> None:
    calm = Figures(fleet.since, fleet.until, 1, moments=[figures.Moment(0, 1, None, None, None)])
    seen = Read(page.page(calm))
    assert [chart["title"] for chart in seen.data["fleet"]] == ["Messages"]
    ids = {a["id"] for tag, a in seen.elements if tag == "section" and "id" in a}
    assert ids == {"fleet"}
    single = Figures(fleet.since, fleet.since, 1)  # one message has no span to be spread over
    assert "1" in Read(page.page(single)).texts


def measured(folder: Path, devices: int, span: float = 3600.0) -> Figures:
    """Write values of `n` that the devices have: device 7 has 7, then 8."""
    times = [START + datetime.timedelta(seconds=at) for at in (0, span / 2)]
    names = [f"d{n}" for n in range(devices)]
    at = pa.array([at for at in times for _ in names], pa.timestamp("us", "UTC"))
    write_deltalake(folder / "measurements", pa.table({
        "device": names * 2, "quantity": ["n"] * 2 * devices, "unit": [None] * 2 * devices,
        "value": [float(n) for n in range(devices)] + [n + 1.0 for n in range(devices)],
        "time": at, "received": at,
    }))  # fmt: skip
    return Figures(START, START + datetime.timedelta(seconds=span), 2 * devices)


def test_few_devices_have_lines(tmp_path: Path) -> None:
    fleet = measured(tmp_path, 3)
    found = values.read(tmp_path, fleet)
    assert found.step == 60
    (of,) = found.quantities
    assert (of.name, of.unit, of.devices, of.bands) == ("n", "", 3, [])
    line = of.curves["d2"]
    assert (line[0], line[30], line.count(None)) == (2, 3, len(line) - 2)
    # In whatever order their rows came, a device has its colour in each report.
    chart = charts.value(
        of._replace(curves=dict.fromkeys(("d2", "d0", "d1"), line)), (0, 60), "bga"
    )
    assert [each[:2] for each in chart["lines"]] == [["d0", "b"], ["d1", "g"], ["d2", "a"]]
    fleet.measured = found
    (shown,) = Read(page.page(fleet)).data["values"]
    assert [name for name, _, _ in shown["lines"]] == ["d0", "d1", "d2"]


def test_many_devices_have_a_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the lines there is room for, of those first that need a look; the page says so."""
    monkeypatch.setattr(values, "POINTS", 15 * 61)
    fleet = measured(tmp_path, 101)
    found = values.read(tmp_path, fleet, ["d77", "nobody"])
    (of,) = found.quantities
    assert of.bands[0] == figures.Band(0, 10, 50, 90, 100)
    assert of.bands[30] == figures.Band(1, 11, 51, 91, 101)
    assert of.bands[1] is None
    assert len(of.curves) == found.curves_of == 10 and "d77" in of.curves
    fleet.measured = found
    assert "the lines of 10 of 101 devices" in page.page(fleet)


def test_values_of_a_year_are_read_of_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """And of less if there are very many; a table that is not there is none."""
    assert values.read(tmp_path, Figures(START, START, 1)) is None
    fleet = measured(tmp_path, 20, span=400 * values.DAY)
    assert values.read(tmp_path, fleet) is None  # the newest is 200 days old
    fleet.until = START + datetime.timedelta(days=200, minutes=1)
    for longest, step in ((values.DAY, 900), (fleet.span, 3 * values.DAY)):
        found = values.read(tmp_path, fleet, (), longest)
        assert found.step == step
    monkeypatch.setattr(values, "_READINGS", 30)  # the first 20 are 200 days older
    found = values.read(tmp_path, fleet, (), fleet.span)
    assert found.step == 7200


def test_there_are_more_names_than_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The names that most devices have stay, and the page says what is left out."""
    monkeypatch.setattr(values, "POINTS", 700)
    fleet = measured(tmp_path, 7)
    rows = DeltaTable(tmp_path / "measurements").to_pyarrow_table().to_pydict()
    rows["quantity"][:7] = [f"own {n}" for n in range(7)]
    write_deltalake(tmp_path / "measurements", pa.table(rows), mode="overwrite")
    found = values.read(tmp_path, fleet)
    assert [(q.name, q.devices) for q in found.quantities] == [
        ("n", 7), *((f"own {n}", 1) for n in range(6)),
    ]  # fmt: skip
    fleet.measured = found
    assert "no room for 1 value of" in page.page(fleet)


def test_a_large_fleet_has_a_page_of_some_megabytes(fleet: Figures) -> None:
    boards = [fleet.devices[-1]._replace(name=f"dev-{n:05d}", lost=n % 7) for n in range(20_000)]
    text = page.page(dataclasses.replace(fleet, devices=boards, gaps=[]))
    assert len(text) < 4_000_000
    assert len(Read(text).data["devices"]["name"]) == 20_000


@pytest.mark.proof
def test_a_browser_shows_it(fleet: Figures, tmp_path: Path) -> None:
    """In both widths and both colours, with charts in which something is drawn."""
    names = [f"board-{n}" for n in range(9)]
    curves = {name: [20.0 + n, None, 21.0, 21.0] for n, name in enumerate(names)}
    band = [figures.Band(19, 20, 21, 22, 23)] * 4
    fleet = dataclasses.replace(
        fleet, devices=[*fleet.devices, *(fleet.devices[0]._replace(name=n) for n in names)],
        measured=figures.Measured(0, 150, [
            figures.Quantity("temperature", "Cel", 9, band, curves),
            figures.Quantity("flat", "", 1, [], {"board-1": [5.0] * 4}),
        ], 9, 9),
    )  # fmt: skip
    look.all_of(command.written(fleet, tmp_path), tmp_path)


def test_the_terminal_says_the_same(fleet: Figures) -> None:
    out = io.StringIO()
    terminal.show(fleet, Console(file=out, width=100))
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.getvalue().splitlines()]
    for number in numbers.summary(fleet):
        text = number.text.replace("\N{NARROW NO-BREAK SPACE}", " ")
        assert [number.name, text] in [line[:2] for line in lines]
    assert [f"{numbers.local(fleet.since)} to {numbers.local(fleet.until)}"] in lines
    heads = next(line for line in lines if line[0] == "device")
    steady = next(line for line in lines if line[0] == "steady")
    # It sent no status, and its cell is empty.
    assert dict(zip(heads[2:], steady[1:], strict=True)) == {
        "silent for": "0 s", "received": "57", "lost": "3", "copies": "1", "late": "0",
        "delay": "500 ms", "restarts": "0",
    }  # fmt: skip


def test_the_terminal_lists_the_devices_that_the_page_does(fleet: Figures) -> None:
    """One whose messages came twice, or after later ones, is well: QoS 1 does that."""
    well = fleet.devices[0]._replace(
        name="well", lost=0, reboots=0, silent=False, duplicates=2, reordered=1, received=9
    )
    out = io.StringIO()
    terminal.show(dataclasses.replace(fleet, devices=[*fleet.devices, well]), Console(file=out))
    assert " steady " in out.getvalue() and " well " not in out.getvalue()


def test_what_a_device_without_numbers_lost_is_not_known(fleet: Figures) -> None:
    plug = fleet.devices[0]._replace(name="plug", boots=0, received=5, lost=0)
    mute = plug._replace(name="mute", received=0)

    def lost(*devices: figures.Device) -> tuple[str, str]:
        found = numbers.sums(dataclasses.replace(fleet, devices=[*devices]))
        return next(each[1:3] for each in found if each.name == "lost messages")

    assert lost(plug) == (numbers.UNKNOWN, "no device numbers its messages")
    assert lost(*fleet.devices, plug)[1].endswith(" of 3 devices with numbers")
    assert "numbers" not in lost(*fleet.devices, mute)[1]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_terminal_cuts_a_number_or_a_name(fleet: Figures, width: int) -> None:
    """A name has its line, and what matters less is left out where there is no room."""
    long = "fleet-of-the-north-board-0001"
    boards = [fleet.devices[-1]._replace(name=long, lost=3), *fleet.devices[1:]]
    out = io.StringIO()
    terminal.show(dataclasses.replace(fleet, devices=boards), Console(file=out, width=width))
    assert "…" not in out.getvalue()
    assert long in out.getvalue()
    (heads,) = (line.split() for line in out.getvalue().splitlines() if " device " in line)
    assert {"silent", "lost"} <= {*heads}


def test_many_batches_are_drawn_as_few_points(fleet: Figures) -> None:
    """A day of them, and the longest is not passed over."""
    first = fleet.batches[0]
    many = [first._replace(at=float(n), seconds=0.5 + 9 * (n == 777)) for n in range(86_400)]
    chart = charts.pipeline(many)[0]
    assert len(chart["lines"][0][2]) <= figures.BUCKETS + 1
    assert chart["high"] == 9.5


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    for tables, code, words in (
        (str(tmp_path), 1, "flatmq pipeline run"),
        ("s3://bucket/tables", 2, "not the URL s3://bucket/tables"),
        ("nowhere", 2, "no such folder"),
    ):
        status, text = said("report", tmp_path, "--tables", tables)
        assert status == code and words in text


def test_a_folder_without_messages(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(figures.ReportError, match="no messages"), from_raw.figures(tmp_path):
        pass
