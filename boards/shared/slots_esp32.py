"""The firmware of an ESP32 with two OTA partitions, while a new one proves itself.

    record["firmware"]   the labels of two partitions: `from` one, `to` the other; and what `old`
                         was before in the record. There is none at any other time

To `slots` a new firmware is a version like any other: the same program, with another counter.
/boot.py calls `check` behind it. A firmware that was not marked as valid makes way at a reset, if
the boot loader can do that, as MicroPython's does. If it cannot, `check` does it.
"""

import machine
from esp32 import Partition  # type: ignore[attr-defined,unused-ignore] # the RP2040 has none

import slots

_plain = slots.store


def check(folder: str = "") -> None:
    """Go to the other partition if the record says so."""
    record = slots.load(folder)
    said = record["firmware"]
    is_new = Partition(Partition.RUNNING).info()[4] == said["to"]  # type: ignore[arg-type,unused-ignore]
    is_wanted = record["state"] == "new"
    if is_new and is_wanted:
        slots.store = _store
        return
    if is_new or is_wanted:
        try:
            if is_wanted:
                # The boot loader has replaced it, or the power was cut before it was chosen.
                record["why"] = "it did not start"
                slots.store(record, folder)
            Partition(said["from" if is_new else "to"]).set_boot()
            machine.reset()
        except OSError as error:  # the flash has lost it, or takes nothing
            if is_wanted:
                slots.back(record, repr(error))
    end(record)
    slots.keep(record, folder)


def _store(record, folder=""):
    """Replace the record; keep a firmware that has proved itself."""
    if record["state"] == "good" and "firmware" in record:
        Partition.mark_app_valid_cancel_rollback()
        record["version"] = record["old"]["version"]  # that of the program, which stays
        end(record)
    _plain(record, folder)


def end(record: dict) -> None:
    """Change a record: the firmware that runs is the only one."""
    record["old"] = record.pop("firmware")["old"]
