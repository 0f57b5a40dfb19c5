"""The heap that a client holds on this board, and what the host's operations allocate here."""

import gc
import sys

import proof

try:
    from time import ticks_ms
except ImportError:
    ticks_ms = None


def _free():
    gc.collect()
    gc.collect()  # what the first one finalized
    return gc.mem_free()


def held():
    """Print "@held STEP BYTES". The first subscription claims the last of a client's memory."""
    start = _free()
    start = _free()
    from flatmq import Client

    print("@held import", start - _free())
    client = Client(b"held", "broker")
    print("@held made", start - _free())
    client.subscribe(b"t/back", print)
    print("@held subscribed", start - _free())


def prove(module, names, repeats, broker=None):
    """Print "@proof MODULE NAME KEPT REFUSED" for each operation of a module."""
    proof.REPEATS = repeats
    operations = __import__(module)
    for name in names:
        one = proof.Proof(broker)
        try:
            one.prove(getattr(operations, name))
            print("@proof", module, name, one.asked, one.kept, int(one.refused))
        except Exception as error:
            gc.enable()
            print("@failed", module, name, repr(error))
        gc.collect()
    del sys.modules[module]
    port = sys.modules.get("flatmq.port")
    if port:
        port.ticks_ms = ticks_ms  # the scripted peer has put its own clock there
