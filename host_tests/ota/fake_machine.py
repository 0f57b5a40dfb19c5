"""The module `machine` of a board, on the unix port of MicroPython: import this before `slots`."""

import sys


class Reset(BaseException):
    """The board resets."""


class _WDT:
    def __init__(self, timeout):
        pass

    def feed(self):
        pass


class _Machine:
    WDT_RESET = 3
    WDT = _WDT

    def reset_cause(self):
        return 1

    def reset(self):
        raise Reset


machine = sys.modules["machine"] = _Machine()
