"""The events of an emulated board, as its child process prints them: one line of JSON for each.

{"serial": port}   its serial line is there
{"log": text}      the board has printed something
{"ms": time}       the board's clock, which is in every event, and several times a second
{"reset": cause}   it was reset: "machine.reset()", "watchdog", "crash", "button", "power", …
{"typed": true}    a program has sent something over the serial line
{"wifi": up}       the access point is there, or not
"""

from __future__ import annotations

import json


def clock() -> float:
    """Return the board's time in ms. A machine puts its own function here."""
    return 0.0


def report(**event: object) -> None:
    """Print an event, with the board's clock."""
    print(json.dumps({"ms": round(clock()), **event}), flush=True)
