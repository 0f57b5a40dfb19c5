"""A station with the parts `ha` and `updates`: a version waits until somebody installs it."""

from types import SimpleNamespace
from typing import Any

from flatmq import Client
from ha_part import HomeAssistant
from ota import fakes


class Chip:
    kind = "pico"

    def recall(self) -> bytes:
        return b""


def _station() -> Any:
    """A station that is never connected, but for what it is asked to publish."""
    client = Client(b"pico-1", "127.0.0.1")
    client.set_will(b"dev/pico-1/status", b"offline", 1, True)
    return SimpleNamespace(
        base=b"dev/pico-1/", name=b"pico-1", client=client, chip=Chip(), boot=1, seq=0,
        always_sleeps=False, led_on=False, interval=60, sleep_for=0,
        updates=SimpleNamespace(record={"version": "1"}, state="", to="", ready=None),
    )  # fmt: skip


def test_a_version_waits_until_it_is_installed() -> None:
    station, broker = _station(), fakes.Client()
    part, updates = HomeAssistant(station), station.updates
    part._offer(updates, broker)
    shown = part._update
    assert shown.value == b"1"
    assert broker.sent == [(b"dev/pico-1/ota/latest", b"1")]
    updates.to, updates.state = "2", "waiting"
    part._offer(updates, broker)
    assert broker.sent[1:] == [(b"dev/pico-1/ota/latest", b"2")]
    assert updates.ready() == "until it is installed in Home Assistant"
    shown.on_command()
    part._offer(updates, broker)
    assert updates.ready() == ""
    # One that is refused is not offered, and the next one waits again.
    updates.state = "refused"
    part._offer(updates, broker)
    assert broker.sent[2:] == [(b"dev/pico-1/ota/latest", b"1")]
    updates.to, updates.state = "3", "waiting"
    part._offer(updates, broker)
    assert updates.ready() != ""
