"""Constants, a millisecond clock that wraps, and code that is loaded when it is needed.

Boards have the first two, and too little memory to have all code at all times.
"""

import sys

MICROPYTHON = sys.implementation.name == "micropython"

if MICROPYTHON:
    from gc import collect
    from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

    from micropython import const

    class Shown:
        """Base of the objects that print something readable at the prompt."""

        def __repr__(self):
            from .show import show

            return show(self)
else:
    from .port_cpython import Shown, collect, const, ticks_add, ticks_diff, ticks_ms  # noqa: F401


def load(name: str, path: str = "rare.") -> "object":
    """Return the module `name` of the folder `path`.

    This is the only place where a module is loaded by its name: see "When memory is
    claimed" in docs/design.md.
    """
    if MICROPYTHON:
        # An import without memory may have entered a module in this list, and then had none for
        # its contents: it would return nothing for it ever after, or crash.
        for module in sys.modules:
            if sys.modules.get(module) is None:
                sys.modules.pop(module, None)
    return __import__(path + name, globals(), None, (name,), 1)


def drop(*names: str) -> None:
    """Let go of modules on a board, and collect them.

    One that another module keeps says so by `held`: otherwise it would be loaded twice.
    """
    found = False
    if MICROPYTHON:
        try:
            for path in list(sys.modules):
                package, _, name = path.rpartition(".")
                module = sys.modules.get(path)
                if (
                    (module and name in names)
                    and (package + ".")[:7] == "flatmq."
                    and not getattr(module, "held", False)
                ):
                    del sys.modules[path]
                    sys.modules[package].__dict__.pop(name, None)
                    found = True
        except MemoryError:  # the rest goes the next time
            found = True
    if found:
        collect()
