"""Start a sketch as a board does: `run_board.py ROOT FAKES BOARD [deaf]`.

ROOT is a folder with what is on the board, and becomes its file system; FAKES are the modules
that a board's firmware has. Python for the bench, before the sketch starts, is in /setup.
A deaf one takes no lines from the test: its standard input is the sketch's.
"""

import os
import sys

import vfs

root, fakes, board = sys.argv[1:4]
deaf = sys.argv[4:] == ["deaf"]
root = vfs.VfsPosix(root)
fakes = vfs.VfsPosix(fakes)
vfs.umount("/")
vfs.mount(root, "/")
vfs.mount(fakes, "/fakes")
os.chdir("/")
sys.path[:] = ["/fakes", ".frozen", "/lib", "/"]

import bench  # noqa: E402

bench.esp32 = board.startswith("esp32")
if board.startswith("pico_2"):
    bench.mem32[0x40000000] = bench.RP2350
with open("/setup") as f:
    exec(f.read(), bench.__dict__)
if not deaf:
    bench.listen()
with open("/main.py") as f:
    source = f.read()
exec(source, {"__name__": "__main__", "__file__": "/main.py"})
