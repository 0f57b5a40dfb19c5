"""A client whose code does not fit into memory says so, and starts once there is room."""

import pytest

from device import on_device


@pytest.mark.parametrize("left", [600, 1200])
def test_start_raises_nothing_when_memory_is_short(left: int) -> None:
    raised, full, kinds, state, pending = on_device.run(
        "short_of_memory.py", str(left), heap=on_device.SCRIPTED_HEAP
    )
    assert int(raised) == 0, "start or poll has raised MemoryError"
    assert (full, kinds) == ("waiting", "resource")
    # Nothing else is called: later polls load the code.
    assert (state, int(pending)) == ("online", 1)
