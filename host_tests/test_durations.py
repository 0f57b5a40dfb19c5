"""Every option that is a duration takes the same words."""

import click
import pytest

from flatmq_tools import cli
from flatmq_tools.durations import DURATION, SPAN, duration


@pytest.mark.parametrize(
    ("text", "is_"),
    [("10s", 10), ("1.5min", 90), ("1.5 h", 5400), ("366d", 31_622_400), ("2", 2), ("0.5", 0.5)],
)
def test_a_number_alone_is_seconds(text: str, is_: float) -> None:
    assert DURATION.convert(text, None, None) == is_


@pytest.mark.parametrize("text", ["", "h", "-1h", "1 year", "1h30min"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be a number and ms, s, min, h, d, w"):
        DURATION.convert(text, None, None)


@pytest.mark.parametrize(("limits", "text", "said"), [
    ((1,), "500ms", "must be 1s to 36525d, not 500ms"),
    ((0.1, 60), "61", "must be 0.1s to 60s, not 61"),
    ((0, 0xFFFFFFFF), "-1", "not '-1'"),
    ((0, 0xFFFFFFFF), "9999999d", "must be 0s to 4,294,967,295s, not 9999999d"),
    ((0, 60), "500ms", "must be whole seconds, not 500ms"),
])  # fmt: skip
def test_a_limit_is_named(limits: tuple[float, ...], text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        duration(*limits, whole=True).convert(text, None, None)


@pytest.mark.parametrize("text", ["36526d", "9" * 400 + "s"])
def test_no_time_is_longer_than_a_century(text: str) -> None:
    """It would overflow somewhere, later."""
    for kind, words in ((DURATION, text), (SPAN, f"1s:{text}"), (SPAN, f"{text}:1s")):
        with pytest.raises(click.BadParameter, match=f"36525d, not '?{text}"):
            kind.convert(words, None, None)


def _times(command: click.Command) -> dict[str, click.ParamType]:
    found = {}
    if isinstance(command, click.Group):
        for each in command.commands.values():
            found |= _times(each)
    for option in command.params:
        if {
            "seconds",
            "every",
            "metrics_every",
            "health_every",
            "trigger",
            "keepalive",
            "limit",
        } & {option.name}:
            found[f"{command.name} {option.opts[0]}"] = option.type
    return found


def test_options_for_times_are_durations() -> None:
    found = _times(cli.main)
    found.pop("ingest --limit")  # MiB
    assert len(found) > 8
    assert {kind.name for kind in found.values()} == {"duration"}
