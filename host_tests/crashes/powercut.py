"""Cut the power at each write to the flash while crashes are kept and published, on MicroPython.

A board crashes twice, and connects after that; there the power is also cut after each number of
turns. Prints the writes without a cut, the cuts of the first kind, and what
was broken in all runs: records that nobody could read, crashes that were kept and never arrived,
ones that arrived more than twice, and files that stayed.
"""

import json
import sys

import vfs
from flash_chip import STOP, TORN, Chip, PowerCut
from model_broker import Broker

import flatmq.port
from flatmq import Client, crash

PATH = "/f/crash.json"
FLASH = Chip(16)
vfs.VfsLfs2.mkfs(FLASH)
EMPTY = FLASH.image()
broken = [0] * 4


class World:
    """The board's flash and its broker, and the crashes that `keep` has kept."""

    def __init__(self, cut_at, how):
        FLASH.restore(EMPTY)
        FLASH.power_on(cut_at, how)
        self.broker = Broker()
        flatmq.port.ticks_ms = self.broker.ticks_ms
        self.kept = []
        self.cuts = 0

    def boot(self, task, *arguments):
        """Do a task with the flash mounted, and again after a power cut."""
        while True:
            self.broker.plug()
            crash._kept = crash._reporter = None  # as at each start
            vfs.mount(vfs.VfsLfs2(FLASH), "/f")
            try:  # noqa: SIM105 (there is no contextlib on a board)
                task(*arguments)
            except PowerCut:
                pass
            vfs.umount("/f")
            if not FLASH.dead:
                return
            self.cuts += 1
            FLASH.power_on()

    def crash(self, text):
        try:
            raise ValueError(text)
        except ValueError as error:
            if crash.keep(error, PATH):
                self.kept.append(text)

    def publish(self, turns=200):
        client = Client(b"b", link=self.broker, keepalive=0, clean_session=False)
        crashes = crash.Crashes(client, b"dev/b/crash", path=PATH)
        client.start()
        for _ in range(turns):
            client.poll(1)
            crashes.poll()

    def check(self):
        came = []
        for _, _, payload in self.broker.taken:
            try:
                record = json.loads(payload)
                came.append((record["trace"].rsplit(" ", 1)[1], record["count"]))
            except (ValueError, KeyError, IndexError):
                broken[0] += 1
        last = came[-1] if came else None
        broken[1] += last is None or last[0] != self.kept[-1] or last[1] < len(set(self.kept))
        for each in came:
            broken[2] += came.count(each) > 2
        vfs.mount(vfs.VfsLfs2(FLASH), "/f")
        try:
            with open(PATH):
                broken[3] += 1
        except OSError:
            pass
        vfs.umount("/f")


def run(cut_at, how=STOP, turns=0):
    """Return how many writes there were, and whether the power was cut.

    With `turns`, it is also cut after so many turns of the program that publishes.
    """
    world = World(cut_at, how)
    for text in ("one", "two"):
        world.boot(world.crash, text)
    if turns:
        world.boot(world.publish, turns)
    world.boot(world.publish)
    writes = FLASH.writes
    world.check()
    return writes, world.cuts


writes, cuts = run(0)
cuts += sum(run(at, how)[1] for at in range(1, writes + 1) for how in (STOP, TORN))
for turns in range(1, 40):
    run(0, STOP, turns)
print("SEEN", writes, cuts, *broken)
sys.exit()
