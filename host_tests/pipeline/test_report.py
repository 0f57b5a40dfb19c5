"""The report: its numbers are those of the messages, on the page and in the terminal.

It needs nothing but itself, and a phone shows it.
"""

from __future__ import annotations

import dataclasses
import datetime
import html
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from PIL import Image
from pyspark.sql import SparkSession
from rich.console import Console

from flatmq_tools.cli import main
from flatmq_tools.pipeline.report import (
    command,
    figures,
    from_raw,
    numbers,
    page,
    pictures,
    terminal,
)
from flatmq_tools.pipeline.report.figures import Figures
from pipeline.landed import land
from pipeline.messages import START, Message, frame, reading


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
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the jobs leave behind."""
    folder = tmp_path_factory.mktemp("tables")
    land(folder, messages()[:50])
    land(folder, messages()[50:], 50)
    # What a table no longer has is on the disk all the same.
    land(folder, messages(), 50 + len(messages()))
    DeltaTable(str(folder / "raw")).restore(1)
    lines = [json.dumps(each) for each in [*PROGRESS, PROGRESS[0]]]
    (folder / "progress.jsonl").write_text("\n".join([*lines, lines[0][:30]]))
    return folder


@pytest.fixture(scope="module")
def told(spark: SparkSession, tables: Path) -> Figures:
    return from_raw.of_tables(spark, tables)


def test_the_figures_are_those_of_the_messages(told: Figures) -> None:
    sent = messages()
    assert (told.messages, told.span) == (len(sent), 590)
    assert told.since == START + datetime.timedelta(seconds=0.5)
    assert sum(moment.messages for moment in told.moments) == len(sent)
    found = {device.name: device for device in told.devices}
    assert found.keys() == {"steady", "silent", "asleep"}
    steady, silent, asleep = found["steady"], found["silent"], found["asleep"]
    assert (steady.received, steady.lost, steady.duplicates, steady.p50) == (57, 3, 1, 500)
    assert (silent.received, silent.reboots, silent.silent, silent.p50) == (30, 1, True, None)
    assert silent.silent_s == 590.5 - 291
    assert (asleep.status, asleep.silent, asleep.p50) == ("asleep", False, 2000)
    assert sorted((gap.kind, gap.device, gap.missing) for gap in told.gaps) == [
        ("lost", "steady", 1), ("lost", "steady", 2), ("silent", "silent", None),
    ]  # fmt: skip
    assert told.gappy == 2
    assert [(r.device, r.boot, r.at, r.starts) for r in told.reboots] == [("silent", 5, 150.5, 1)]
    assert [(v.device, v.value) for v in told.newest] == [
        ("asleep", 21.5), ("silent", 21.5), ("steady", 20.59),
    ]  # fmt: skip
    assert told.dead == [figures.Dead("not JSON: Expecting value", 1)]
    assert told.delays == (500, 2000, 2000)
    # Boards send every 10 s: one is heard where it is in 30 s.
    assert told.wide == 30
    assert [(h.heard, h.known) for h in told.heard[:3]] == [(3, 3), (3, 3), (2, 3)]
    assert told.heard[-1][1:] == (1, 3)


def test_batches_and_what_waited(told: Figures) -> None:
    """Each once, also where a line is torn or there twice."""
    sent = messages()
    came = [sum(message.at < 60 * n for message in sent) for n in range(6)]
    read = [len(sent) - 20 * (5 - n) for n in range(6)]  # with the batch itself
    assert [(b.seconds, b.trigger, b.rows, b.spool) for b in told.batches] == [
        (0.9 if n == 3 else 0.4, 0.5, 20, max(0, came[n] - read[n])) for n in range(6)
    ]
    assert [batch.late for batch in told.batches].index(True) == 3


def texts(part: str, tags: str) -> list[str]:
    """The texts of these elements, as a reader of the page has them."""
    found = re.findall(rf"<(?:{tags})\b[^>]*>(.*?)</(?:{tags})>", part, re.DOTALL)
    return [html.unescape(re.sub("<[^>]*>", "", each)) for each in found]


@pytest.fixture(scope="module")
def written(told: Figures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return command.written(told, tmp_path_factory.mktemp("report"))


def test_the_page_says_so(told: Figures, written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    found = [texts(part, "dt|dd") for part in re.findall('<div class="tile(.*?)</div>', text)]
    assert [tuple(tile) for tile in found] == [
        (number.name, number.text, number.note) for number in numbers.summary(told)
    ]
    tiles = {name: number for name, number, _ in found}
    assert tiles["messages"] == str(len(messages()))
    assert (tiles["lost"], tiles["duplicates"]) == ("3", "1")
    assert (tiles["silent"], tiles["reboots"]) == ("1", "1")
    assert (tiles["dead letters"], tiles["batches"]) == ("1", "6")
    every = [texts(part, "td|th") for part in re.findall("<tr>(.*?)</tr>", text)]
    rows = {row[0]: row for row in every if len(row) == 13}
    assert rows["steady"][3:8] == ["57", "3", "5\N{NARROW NO-BREAK SPACE}%", "1", "0"]
    assert rows["silent"][1] == "<script>"
    assert list(rows)[:2] == ["device", "silent"]  # who is silent needs a look first
    newest = [row[:3] for row in every]
    assert ["steady", "chip/temp", "20.59\N{NARROW NO-BREAK SPACE}°C"] in newest
    # It needs nothing else.
    assert not {"script", "link", "iframe", "img", "object"} & {*re.findall(r"<(\w+)", text)}
    wants = re.findall(r'\b(?:src|href|srcset|data)="([^"]*)"', text)
    assert all(want.startswith("#") for want in wants)
    assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
    assert "@import" not in text
    assert 'name="viewport"' in text


def test_every_picture_is_there_as_both(told: Figures, written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    made = pictures.pictures(told)
    assert [picture.name for picture in made] == [
        "rate", "devices", "loss", "gaps", "delay", "reboots", "batches", "spool",
    ]  # fmt: skip
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    for picture in made:
        assert picture.svg in text
        # It has the colours of the page, and no other: by day and by night.
        assert not re.findall(r"#[0-9a-f]{6}", picture.svg)
        assert {*re.findall(r"var\((--\w+)\)", picture.svg)} <= {*re.findall(r"(--\w+):", text)}
        with Image.open(written.with_name(f"{picture.name}.png")) as image:
            assert image.width > 900
            assert len(image.convert("RGB").getcolors(1 << 24)) > 20  # type: ignore[arg-type]
    loss = next(picture for picture in made if picture.name == "loss")
    spool = next(picture for picture in made if picture.name == "spool")
    most = max((batch.spool or 0) + batch.rows for batch in told.batches)
    assert spool.says.endswith(f"at most {most}.")
    # Batches of the same time are below the messages that came then.
    hours = {p.name: re.findall(r">(\d\d:\d\d)<", p.svg) for p in made}
    assert hours["batches"] == hours["spool"] == hours["rate"] != []
    assert "steady" in loss.svg
    assert "3 " in loss.svg


def test_the_terminal_says_the_same(told: Figures) -> None:
    out = io.StringIO()
    terminal.show(told, Console(file=out, width=100))
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.getvalue().splitlines()]
    for number in numbers.summary(told):
        text = number.text.replace("\N{NARROW NO-BREAK SPACE}", " ")
        assert [number.name, text] in [line[:2] for line in lines]
    heads = next(line for line in lines if line[0] == "device")
    steady = next(line for line in lines if line[0] == "steady")
    # It sent no status, and its cell is empty.
    assert dict(zip(heads[2:], steady[1:], strict=True)) == {
        "silent for": "0 s", "received": "57", "lost": "3", "twice": "1", "reordered": "0",
        "delay": "500 ms", "reboots": "0",
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_terminal_cuts_a_number_or_a_name(told: Figures, width: int) -> None:
    """A name has its line, and what matters less is left out where there is no room."""
    long = "fleet-of-the-north-board-0001"
    boards = [told.devices[-1]._replace(name=long, lost=3), *told.devices[1:]]
    out = io.StringIO()
    terminal.show(dataclasses.replace(told, devices=boards), Console(file=out, width=width))
    assert "…" not in out.getvalue()
    assert long in out.getvalue()
    (heads,) = (line.split() for line in out.getvalue().splitlines() if " device " in line)
    assert {"silent", "lost"} <= {*heads}


def test_many_batches_are_drawn_as_few_points(told: Figures) -> None:
    """A day of them, and the longest is not passed over."""
    first = told.batches[0]
    many = [first._replace(at=float(n), seconds=0.5 + 9 * (n == 777)) for n in range(86_400)]
    drawn = pictures._thinned(many, lambda batch: batch.seconds)
    assert len(drawn) <= pictures.POINTS + 1
    assert max(batch.seconds for batch in drawn) == 9.5


def test_the_depth_of_the_spool(spark: SparkSession, told: Figures, tables: Path) -> None:
    """It is what had come when a batch began, and was not read with it.

    What the first progress was of may be missing.
    """
    last, total = sum(message.at > 300 for message in messages()), len(messages())
    batch = told.batches[0]._replace(spool=None)
    starts = ((300.0, 10), (400.0, 15), (800.0, last))
    batches = [batch._replace(at=at, rows=n) for at, n in starts]
    asked = dataclasses.replace(told, batches=batches)
    from_raw._waited(asked, from_raw.table(spark, tables / "raw"))
    came = [sum(message.at < at for message in messages()) for at, _ in starts]
    before = [total - last - 15, total - last, total]  # rows of the batches before it
    assert [b.spool for b in asked.batches] == [c - b for c, b in zip(came, before, strict=True)]
    assert came[0] > before[0]


def test_nothing_to_show_is_said(told: Figures) -> None:
    calm = Figures(told.since, told.until, 1)
    made = pictures.pictures(calm)
    names = ["rate", "devices", "loss", "gaps", "delay", "reboots"]
    assert [picture.name for picture in made] == names
    assert "nothing was lost" in next(p.svg for p in made if p.name == "loss")
    assert "no progress was noted" in page.page(calm, made)
    # One message has no span to be spread over.
    single = Figures(told.since, told.since, 1, moments=[figures.Moment(0, 1, None, None, None)])
    assert pictures.pictures(single)[0].says == "Messages per second over time, at most 1."


def test_long_names_are_told_apart(told: Figures) -> None:
    """Boards of one fleet begin alike; the picture has room for what differs."""
    names = [f"fleet-of-the-north-board-{n:04d}" for n in (7, 12)]
    boards = [told.devices[-1]._replace(name=name, lost=7) for name in names]
    made = pictures.pictures(Figures(told.since, told.until, 1, devices=boards))
    (loss,) = (p for p in made if p.name == "loss")
    assert "…board-0007<" in loss.svg
    assert "…board-0012<" in loss.svg
    assert "north" not in re.sub("aria-label=.[^>]*", "", loss.svg)


def test_a_short_name_beside_a_long_one_is_whole(told: Figures) -> None:
    names = ["kitchen", "fleet-of-the-north-board-0007"]
    boards = [told.devices[-1]._replace(name=name, lost=7) for name in names]
    made = pictures.pictures(Figures(told.since, told.until, 1, devices=boards))
    (loss,) = (p for p in made if p.name == "loss")
    assert ">kitchen<" in loss.svg
    assert "board-0007<" in loss.svg


def test_the_command_says_what_is_missing_before_spark_starts(tmp_path: Path) -> None:
    for tables, code, words in (
        (str(tmp_path), 1, "flatmq pipeline run"),
        ("s3://bucket/tables", 2, "not the URL s3://bucket/tables"),
        ("nowhere", 2, "no such folder"),
    ):
        done = CliRunner().invoke(main, ["pipeline", "report", str(tmp_path), "--tables", tables])
        assert done.exit_code == code
        assert words in done.output


def test_a_folder_without_messages(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with pytest.raises(figures.ReportError, match="no messages"):
        from_raw.of_tables(spark, tmp_path)
    with pytest.raises(figures.ReportError, match="no messages"):
        from_raw.of_messages(frame(spark, []))
