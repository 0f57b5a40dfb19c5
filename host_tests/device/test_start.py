"""A client whose code does not fit into memory says so, and goes on once there is room."""

import pytest

import sizes
from device import on_device


@pytest.mark.parametrize(
    ("what", "version"), [("first", "4"), ("large", "4"), ("large", "5"), ("properties", "5")]
)
def test_what_comes_while_memory_is_short_is_never_delivered_wrongly(
    what: str, version: str
) -> None:
    """The connection ends, `poll` raises nothing, and with memory the client goes on."""
    short, raised, wrong, missing = on_device.run(
        "receive_in_little_memory.py", what, version, heap="128k"
    )
    assert int(short), "there was too much memory to see anything"
    assert (raised, wrong, missing) == ("0", "0", "0")


@pytest.mark.parametrize("when", ["start", "lost", "error"])
@pytest.mark.parametrize("link", ["plain", "tls", "reserve", "websocket", "uart"])
def test_a_link_whose_memory_is_short_says_so_and_connects_later(link: str, when: str) -> None:
    """No socket stays open, and the message is delivered."""
    step = "96" if sizes.whole() else "480"
    short, *wrong = on_device.run("link_in_little_memory.py", link, when, step, heap="200k")
    assert int(short), "there was too much memory to see anything"
    raised, opened, other, missing = wrong
    assert (raised, opened, other, missing) == ("0", "0", "0", "0")


@pytest.mark.parametrize("version", ["4", "5"])
def test_a_subscription_without_memory_changes_nothing(version: str) -> None:
    short, wrong = on_device.run("subscribe_in_little_memory.py", version, heap="160k")
    assert int(short), "there was too much memory to see anything"
    assert int(wrong) == 0


def test_a_component_of_home_assistant_is_whole_once_there_is_room_for_it() -> None:
    short, wrong = on_device.run("ha_in_little_memory.py", heap="200k")
    assert int(short), "there was too much memory to see anything"
    assert int(wrong) == 0
