"""The memory that the client takes on this board: free bytes at each step.

Nothing else is loaded.
"""

import gc
import sys


def _free():
    gc.collect()
    gc.collect()  # what the first one finalized
    return gc.mem_free()


def measure():
    """Print "@free STEP BYTES" lines.

    Raises RuntimeError if something of the client is loaded already: the figures would be too
    small.
    """
    for name in sys.modules:
        if name.partition(".")[0] == "flatmq":
            raise RuntimeError("flatmq is loaded already: its import cannot be measured")
    _free()  # whatever it takes itself
    print("@free before", _free())
    from flatmq import Client

    print("@free imported", _free())
    client = Client(b"board", link=object())
    print("@free made", _free())
    client.subscribe(b"board/#", print)
    print("@free subscribed", _free())
