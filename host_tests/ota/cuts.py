"""Cut the power at writes of an update, on MicroPython.

cuts.py KEY MANIFEST OLD NEW FIRST STEP [ROLLBACK]: files, of the key its modulus in hex. Every
STEP-th write from FIRST on, and the last one, is cut, both ways, each in its own run. The last
line says how many writes an update has, how many cuts came, and after how many of them the old
version ran first, and the new. With ROLLBACK the versions are firmware, whose boot loader has that
(1) or not (0).
"""

import hashlib
import sys

import fake_esp32
import fakes
import vfs
from fake_machine import Reset, machine
from flash_chip import STOP, TORN, Chip, PowerCut

import slots
from flatmq.ota import Updates

TURNS = 2000
BLOCKS = 64
PIECE = 4096


class Client(fakes.Client):
    """A client whose broker has the manifest, and a desk that answers."""

    def __init__(self):
        self.waiting = [(b"dev/b/ota/manifest", MANIFEST)]

    def publish(self, topic, payload, qos, retain=False):
        if topic == b"dev/b/ota/get":
            at = int.from_bytes(payload[8:], "big")
            self.waiting.append((b"dev/b/ota/piece", bytes(payload) + NEW[at : at + PIECE]))
        return 1

    def poll(self):
        if self.waiting:
            self.handler(fakes.Message(*self.waiting.pop(0)))


def life(chip):
    """Boot and run until the board resets or loses power, or the new version has proved itself.

    Returns whether it has.
    """
    vfs.mount(vfs.VfsLfs2(chip), "/f")
    try:
        version = FLASH.version() if FLASH else None
        slots.known = None
        record = slots.boot("/f")
        vfs.umount("/app")
        if "firmware" in record:
            slots_esp32.check("/f")
        if chip.dead:  # `boot` has taken it for a flash that fails
            raise PowerCut
        if not FLASH:
            version = record["version"]
            with open("/f/" + record["run"], "rb") as f:
                found = hashlib.sha256(f.read()).digest()
            if found != HASHES[version]:
                raise AssertionError("neither: " + str(record))
        RAN.append(version)
        client = Client()
        updates = Updates(client, b"dev/b/", "toy", KEY, reset=machine.reset, folder="/f")
        for _ in range(TURNS):
            client.poll()
            updates.poll()
            if chip.dead:  # `with` has made an OSError of it
                raise PowerCut
            if version == "2" and slots.load("/f")["state"] == "good":
                return True
        raise AssertionError(updates.state + updates.why)
    except Reset:
        return False
    finally:
        chip.dead = True
        vfs.umount("/f")


class Flash(fake_esp32.Flash):
    """The OTA partitions of a board whose filesystem is on `chip`. The power is cut for both."""

    def __init__(self, chip):
        super().__init__(OLD, (OLD, NEW), rollback=sys.argv[7] == "1")
        self._chip = chip
        self._first = bytes(self.parts["ota_0"]), bytes(self.parts["ota_1"])
        self.cut = self._cut
        sys.modules["esp32"] = self.module()

    def restore(self):
        self.parts["ota_0"][:], self.parts["ota_1"][:] = self._first
        self.chosen, self.state = "ota_0", "valid"

    def version(self):
        """Boot; return the version that runs."""
        return "1" if self.boot() == OLD else "2"

    def _cut(self):
        if self._chip._cut():
            raise PowerCut


def run(chip, image, cut_at, how):
    """Update from the old version to the new one, with a cut. Returns what ran first after it."""
    chip.restore(image)
    if FLASH:
        FLASH.restore()
    chip.power_on(cut_at, how)
    was_cut = False
    for _ in range(12):
        try:
            if life(chip):
                return RAN[0]
        except (PowerCut, OSError):
            if was_cut or chip.writes < cut_at:
                raise
            was_cut = True
            RAN.clear()
            chip.power_on()
            continue
        if was_cut:
            chip.power_on()
        else:
            chip.dead = False  # it goes on to count
    raise AssertionError("it does not come to the new version")


def main(chip):
    vfs.VfsLfs2.mkfs(chip)
    vfs.mount(vfs.VfsLfs2(chip), "/f")
    with open("/f/a", "wb") as f:
        f.write(OLD)
    slots.store({"run": "a", "version": "1", "counter": 1}, "/f")
    vfs.umount("/f")
    image = chip.image()
    first, step = int(sys.argv[5]), int(sys.argv[6])
    chip.restore(image)
    chip.power_on()
    while not life(chip):
        chip.dead = False
    writes = chip.writes
    seen = {"1": 0, "2": 0}
    cuts = 0
    for cut_at in list(range(first, writes, step)) + [writes]:  # noqa: RUF005 (for MicroPython)
        for how in (STOP, TORN):
            ran = run(chip, image, cut_at, how)
            cuts += 1
            if ran:
                seen[ran] += 1
    print(writes, cuts, seen["1"], seen["2"])


def content(name):
    with open(name, "rb") as f:
        return f.read()


KEY, MANIFEST, OLD, NEW = (content(name) for name in sys.argv[1:5])
KEY = int(KEY, 16)
HASHES = {"1": hashlib.sha256(OLD).digest(), "2": hashlib.sha256(NEW).digest()}
RAN = []
FLASH = None
chip = Chip(BLOCKS)
if len(sys.argv) > 7:
    FLASH = Flash(chip)
    import slots_esp32
main(chip)
