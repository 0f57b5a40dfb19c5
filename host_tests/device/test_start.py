"""A client whose code does not fit into memory says so, and starts once there is room."""

import pytest

from device import on_device


@pytest.mark.parametrize("left", [0, 600])
def test_start_raises_nothing_when_memory_is_short(left: int) -> None:
    raised, kinds, state, pending = on_device.run(
        "short_of_memory.py", str(left), heap=on_device.SCRIPTED_HEAP
    )
    assert int(raised) == 0, "start or poll has raised MemoryError"
    assert "resource" in kinds.split(",")
    # Nothing else is called: later polls load the code.
    assert (state, int(pending)) == ("online", 1)
