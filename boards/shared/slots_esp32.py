"""The firmware of an ESP32 with two OTA partitions, while a new one proves itself.

    record["firmware"]   the labels of the partitions: `from` one, `to` the other; and what `old`
                         was before in the record. There is none at any other time

To `slots` a new firmware is a version like any other: the same program, with another counter.
/boot.py calls `check` behind it. A firmware that is not marked as valid is replaced at each reset
by the one before, if its boot loader can do that, as MicroPython's does.
"""

import machine
from esp32 import Partition

import slots

NAMED = ", firmware "  # between the versions of the program and of the firmware


def check(folder: str = "") -> None:
    """Go to the other partition if the record says so."""
    record = slots.load(folder)
    said = record["firmware"]
    is_new = Partition(Partition.RUNNING).info()[4] == said["to"]
    if is_new == (record["state"] == "new"):
        if not is_new:  # it was given up
            end(record)
            slots.store(record, folder)
        return
    if not is_new:
        # The boot loader has replaced it, or the power was cut before it was chosen.
        record["why"] = "it did not start"
        slots.store(record, folder)
    Partition(said["from" if is_new else "to"]).set_boot()
    machine.reset()


def keep(record: dict) -> None:
    """Keep a firmware that has proved itself, and change the record. OSError."""
    Partition.mark_app_valid_cancel_rollback()
    program = record["old"]["version"].split(NAMED)[0]
    record["version"] = program + NAMED + record["version"]
    end(record)


def end(record: dict) -> None:
    """Change a record: the firmware that runs is the only one."""
    record["old"] = record.pop("firmware")["old"]
