"""Call every function of the module `sample` and report what its frame took from the heap."""

import micropython
import sample


def taken(function):
    """Bytes that one call asks the heap for."""
    before = micropython.mem_total()
    function()
    return micropython.mem_total() - before


functions = [(name, getattr(sample, name)) for name in dir(sample) if name[0] != "_"]
print("SEEN", *[name + "=" + str(taken(function)) for name, function in functions])
