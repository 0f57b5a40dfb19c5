"""The two slots of a board that is updated over MQTT: two versions of its program, and a record.

    /a  /b     archives: all modules of a version, its sketch among them
    /slot      the record, which says what runs; replaced in one step
    /app       where the archive that runs is mounted
    /boot.py   calls `boot`, /main.py calls `run`

No update changes those two files, nor this module. So a version that does not even start is
replaced by the one before.
"""

import binascii
import json
import os
import sys
import time

RECORD = "/slot"
MOUNT = "/app"
MAGIC = b"flatmq a1"  # and in two bytes the number of entries, which follow
ENTRY = 10  # bytes: CRC-32 of a path, then in three bytes each where the file begins, and its size
FOLDER = 0xFFFFFF  # the size of a folder
watchdog = None  # a WDT that runs because a new version does
known = None  # the record, from the boot until it is replaced
TRIES = 3  # boots of a new version that do not prove it, after which the old one returns
YEAR = 2026  # a clock that shows an earlier one was not set
CRASHES = 10  # in a row, after which a version that was good once makes way
PAUSE = 3  # s from an exception to the reset, for Ctrl-C; also, a crash at once is no storm


def load(folder: str = "") -> dict:
    """Return the record.

    run       "a" or "b"
    version   of the program in it, a text, and `counter`, by which a later one is known
    state     "good"; "new": it has not proved itself yet
    tries     boots of a new version so far
    crashes   exceptions that ended a good one since it was last connected
    why       what ended the last try: an exception, "watchdog", "no connection", ...
    old       what ran before: run, version, counter; None if there is none
    failed    the version that was given up last: version, counter, why, and in UTC when, if the
              board knew that; None if none was
    unread    is there if the flash could not be read: the rest is a guess, which replaces nothing
    """
    if known:
        return dict(known)
    record = {"run": "a", "version": "", "counter": 0, "state": "good", "tries": 0}
    record.update({"crashes": 0, "why": "", "old": None, "failed": None})
    for _ in range(3):
        try:
            with open(folder + RECORD) as f:
                record.update(json.load(f))
        except OSError as error:
            if error.errno != 2:  # ENOENT: there is none
                record["unread"] = True
                continue
        except (ValueError, TypeError):
            pass
        record.pop("unread", None)
        break
    return record


def store(record: dict, folder: str = "") -> None:
    """Replace the record. OSError if the flash is full or fails: the old one stays then."""
    global known
    new = folder + RECORD + ".new"
    record.pop("unread", None)
    with open(new, "w") as f:
        json.dump(record, f)
    os.rename(new, folder + RECORD)
    known = None


def keep(record: dict, folder: str = "") -> None:
    """Replace the record. If the flash does not take it, it is still `known`.

    A new version makes way then, as nobody would count its tries.
    """
    global known
    try:
        if "unread" not in record:
            store(record, folder)
    except OSError as error:
        if record["state"] == "new":
            back(record, "its try cannot be counted: " + repr(error))
    known = record


def given_up(version: str, counter: int, why: str) -> dict:
    """Return what the record says of a version that is given up now."""
    now = time.gmtime()
    at = ""
    if now[0] >= YEAR:
        at = "{}-{:02d}-{:02d} {:02d}:{:02d}".format(*now)
    return {"version": version, "counter": counter, "why": why, "at": at}


def back(record: dict, why: str) -> None:
    """Change a record to the version before: this one is given up because of `why`."""
    record["failed"] = given_up(record["version"], record["counter"], why)
    record.update(record["old"])
    record.update({"state": "good", "old": None, "tries": 0, "crashes": 0, "why": ""})


def chosen(record: dict, cause: str) -> bool:
    """Change a record to what is to run now. Returns whether it changed.

    `cause` is that of the reset, "" if it says nothing about the program.
    """
    if record["state"] == "new":
        why = record["why"] or cause or "reset"
        if record["tries"] >= TRIES:
            back(record, why)
        else:
            record["tries"] += 1
            record["why"] = ""
        return True
    if record["crashes"] >= CRASHES and record["old"]:
        back(record, record["why"])
        return True
    return False


class Archive:
    """A file system that is one file: what MicroPython needs of it to import modules."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "rb") as f:
            head = f.read(len(MAGIC) + 2)
            n = head[-2] << 8 | head[-1] if head[:-2] == MAGIC else 0
            self._entries = f.read(n * ENTRY)
        if not n or len(self._entries) < n * ENTRY:
            raise OSError(22)

    def mount(self, *_) -> None:
        """Do nothing: `vfs.mount` calls it."""

    umount = chdir = mount

    def _found(self, path):
        """Return where the file begins, and its size. OSError if there is none."""
        key = binascii.crc32(path.lstrip("/").encode()).to_bytes(4, "big")
        at = self._entries.find(key)
        while at >= 0 and at % ENTRY:
            at = self._entries.find(key, at + 1)
        if at < 0:
            raise OSError(2)
        e = self._entries
        return (
            e[at + 4] << 16 | e[at + 5] << 8 | e[at + 6],
            e[at + 7] << 16 | e[at + 8] << 8 | e[at + 9],
        )

    def stat(self, path: str) -> tuple:
        """Return what `os.stat` does, with the kind and the size alone. OSError."""
        size = self._found(path)[1]
        kind = 0x4000 if size == FOLDER else 0x8000
        return kind, 0, 0, 0, 0, 0, 0 if size == FOLDER else size, 0, 0, 0

    def open(self, path: str, mode: str):
        """Return the archive, at the beginning of the file. It does not end where that ends."""
        start = self._found(path)[0]
        f = open(self._path, mode)  # noqa: SIM115
        f.seek(start)
        return f


def boot(folder: str = "") -> dict:
    """Choose what runs, and have modules come from there. Called by /boot.py."""
    global known, watchdog
    import machine

    known = record = load(folder)
    if chosen(record, "watchdog" if _by_watchdog(machine) else ""):
        keep(record, folder)
    if record["state"] == "new":
        # If nothing feeds it, the board resets. `ota.Updates` does, and so does a station.
        watchdog = machine.WDT(timeout=8300 if sys.platform == "rp2" else 120000)
    try:
        mount(folder + "/" + record["run"])
    except OSError as error:
        if not record["old"]:  # maybe the record is lost, and this is not what ran
            other = "a" if record["run"] == "b" else "b"
            record["old"] = {"run": other, "version": "", "counter": 0}
        back(record, "its file cannot be read: " + repr(error))
        try:
            mount(folder + "/" + record["run"])
        except OSError:  # maybe the flash can be read later
            time.sleep(PAUSE)
            machine.reset()
        keep(record, folder)
    return record


def _by_watchdog(machine):
    """Return whether the watchdog ran out."""
    if machine.reset_cause() != getattr(machine, "WDT_RESET", -1):
        return False
    if sys.platform != "rp2":
        return True
    # There every reset is one by the watchdog. The Pico SDK leaves a number in a register of it
    # if it has run out; see crashes_part.py.
    rp2350 = machine.mem32[0x40000000] >> 12 & 0xFFFF == 4
    return machine.mem32[(0x400D8000 if rp2350 else 0x40058000) + 0x1C] == 0x6AB73121


def mount(path: str) -> None:
    """Have modules come from an archive, after those of the firmware."""
    import vfs

    for left in (2, 1, 0):
        try:
            archive = Archive(path)
            break
        except OSError:
            if not left:
                raise
    vfs.mount(archive, MOUNT)
    sys.path[:] = [MOUNT, ".frozen", "/lib"]


def run(folder: str = "", main: str = "main") -> None:
    """Run the sketch. Called by /main.py. An exception is kept for a report, and resets the board.

    Ctrl-C ends it as ever.
    """
    try:
        __import__(main)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        _crashed(error, folder)
        import machine

        machine.reset()


def _crashed(error, folder):
    try:
        sys.print_exception(error)
        record = load(folder)
        if not record["why"]:
            record["why"] = repr(error)[:120]
        if record["state"] == "good":
            record["crashes"] += 1
        if "unread" not in record and (record["state"] == "new" or record["crashes"] <= CRASHES):
            store(record, folder)
        from flatmq import crash

        crash.version = record["version"]
        crash.keep(error)
    except Exception as e:  # nothing may keep the board from its reset
        sys.print_exception(e)
    time.sleep(PAUSE)
