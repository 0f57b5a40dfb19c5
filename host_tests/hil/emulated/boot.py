"""The program that an emulated board runs before its REPL.

    boot.py FLASH BLOCKS DESK MODE SSID PASSWORD RADIO MS RESET_MS

Gives the interpreter what it lacks of a board: a littlefs at "/" in the file FLASH, `machine` and
`network`. DESK is the port of the desk side (emulated_board.py). MODE "raw" is a soft reset by
mpremote, which does not run main.py.
"""

import os
import sys
import time

import machine_of_board
import network_of_board
import vfs

flash, blocks, desk, mode, ssid, password, radio, ms, reset_ms = sys.argv[1:10]
BLOCK = 4096


class Flash:
    def __init__(self, path, blocks):
        self._file = open(path, "r+b")  # noqa: SIM115 (for as long as the board runs)
        self._blocks = blocks

    def readblocks(self, block, buf, offset=0):
        self._file.seek(block * BLOCK + offset)
        self._file.readinto(buf)

    def writeblocks(self, block, buf, offset=0):
        self._file.seek(block * BLOCK + offset)
        self._file.write(buf)

    def ioctl(self, op, value):
        return {4: self._blocks, 5: BLOCK, 6: 0}.get(op)


def mounted(device):
    """The file system on it; made when there is none, as boards do."""
    try:
        return vfs.VfsLfs2(device)
    except OSError:
        vfs.VfsLfs2.mkfs(device)
        return vfs.VfsLfs2(device)


machine_of_board.desk = network_of_board.desk = machine_of_board.Desk(int(desk))
machine_of_board.reset_ms = int(reset_ms)
network_of_board.known = (ssid, password)
sys.modules["machine"] = machine_of_board
if radio == "radio":
    sys.modules["network"] = network_of_board
filesystem = mounted(Flash(flash, int(blocks)))
vfs.umount("/")
vfs.mount(filesystem, "/")
sys.path[:] = ["", ".frozen", "/lib"]
time.sleep_ms(int(ms))
machine_of_board.desk.ask("up")
if mode != "raw" and "main.py" in os.listdir("/"):
    try:
        with open("/main.py") as main:
            source = main.read()
        exec(source)
    except (Exception, KeyboardInterrupt) as error:
        sys.print_exception(error)
