"""Starts a sketch as a board does: `run_board.py ROOT FAKES BOARD SETUP`.

ROOT is a folder with what is on the board, and becomes its file system; FAKES are the modules
that a board's firmware has. SETUP is Python for the bench, before the sketch starts.
"""

import os
import sys

import vfs

root, fakes, board, setup = sys.argv[1:5]
root = vfs.VfsPosix(root)
fakes = vfs.VfsPosix(fakes)
vfs.umount("/")
vfs.mount(root, "/")
vfs.mount(fakes, "/fakes")
os.chdir("/")
sys.path[:] = ["/fakes", ".frozen", "/lib", "/"]

import bench  # noqa: E402

bench.esp32 = board.startswith("esp32")
exec(setup, bench.__dict__)
bench.listen()
with open("/main.py") as f:
    source = f.read()
exec(source, {"__name__": "__main__", "__file__": "/main.py"})
