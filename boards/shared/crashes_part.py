"""The part `crashes` of a station: dev/NAME/crash has why the board crashed. See docs/crashes.md.

Most of the work is done by flatmq.crash.
"""

import sys

import machine

from flatmq import crash

# Of the watchdog of an RP2040 or RP2350. The Pico SDK (hardware_watchdog) leaves the number there
# when a watchdog that has run out may reset, and 0 for a reset that the program asked for.
_SCRATCH_4 = 0x1C
_RAN_OUT = 0x6AB73121


def crashes(station) -> crash.Crashes:
    """Return the part, and have `station.run` keep an exception that it raises."""
    run = station.run

    def kept():
        try:
            run()
        except Exception as error:
            crash.keep(error)
            raise

    station.run = kept
    slots = sys.modules.get("slots")  # the board can be updated over MQTT
    if slots:
        crash.version = slots.load()["version"]
    return crash.Crashes(station.client, station.base + b"crash", by_watchdog(station.chip))


def by_watchdog(chip) -> bool:
    """Return whether the watchdog ran out before this boot. True once: not after a soft reset.

    On an RP2040 or RP2350, `machine.reset` and `machine.deepsleep` use the watchdog, too.
    """
    if machine.reset_cause() != machine.WDT_RESET:
        return False
    if chip.kind != "pico":
        return True
    if machine.mem32[chip.watchdog + _SCRATCH_4] != _RAN_OUT:
        return False
    machine.mem32[chip.watchdog + _SCRATCH_4] = 0
    return True
