"""Mount an image on MicroPython, as a board does after its boot, and work with it.

Arguments: what to do, the image's file, then as each function says.
"""

import os
import sys

import vfs
from flash_chip import Chip

BLOCK = 4096


def mounted(file, program):
    """As the ports' _boot.py does it: program 0 lets MicroPython find out what it is."""
    with open(file, "rb") as stream:
        image = stream.read()
    chip = Chip(len(image) // BLOCK, BLOCK)
    chip.restore(image)
    device = vfs.VfsLfs2(chip, progsize=program) if program else chip
    vfs.mount(device, "/board")
    return chip


def walk(folder):
    """Print every file, its size and its bytes' sum."""
    for name, kind, *_ in sorted(os.ilistdir(folder)):
        path = folder + "/" + name
        if kind == 0x4000:
            walk(path)
        else:
            with open(path, "rb") as file:
                print("file", path, file.read().hex())


def publish(root, port):
    """The client and the sketch's modules, imported from there alone."""
    sys.path[:] = [root, root + "/lib"]
    os.chdir("/")
    import flatmq
    from flatmq import Client

    assert flatmq.__file__ == root + "/lib/flatmq/__init__.mpy", flatmq.__file__
    import helper

    client = Client(helper.DEVICE, "127.0.0.1", int(port))
    client.connect()
    assert client.publish(helper.TOPIC, helper.payload(), qos=1) is not None
    client.wait(10000)
    client.disconnect()
    print("pending", client.pending)


def files(image, program):
    mounted(image, int(program))
    walk("/board")


def run(image, program, port):
    """main.py, as MicroPython runs it; and then something is written, over a restart."""
    chip = mounted(image, int(program))
    publish("/board", port)
    for name in os.listdir("/board/data"):
        with open("/board/data/" + name, "ab") as file:
            file.write(b"more")
    for number in range(50):
        with open("/board/log" + str(number % 3), "w") as file:
            file.write(str(number) * 300)
    vfs.umount("/board")
    vfs.mount(vfs.VfsLfs2(chip, progsize=int(program) or 32), "/board")
    with open("/board/log1") as file:
        assert file.read() == "49" * 300, "not what was written"
    for name in os.listdir("/board/data"):
        with open("/board/data/" + name, "rb") as file:
            content = file.read()
        size = int(name.split(".")[0])
        assert len(content) == size + 4 and content.endswith(b"more"), name
        assert all(content[i] == i & 255 for i in range(size)), name
    print("written")


def rom(image, port):
    """The modules of a ROMFS image."""
    with open(image, "rb") as stream:
        data = stream.read()
    vfs.mount(vfs.VfsRom(memoryview(data)), "/rom")
    walk("/rom")
    publish("/rom", port)


def larger(image, program):
    """An image on a board with one more block of flash."""
    with open(image, "rb") as stream:
        data = stream.read()
    chip = Chip(len(data) // BLOCK + 1, BLOCK)
    chip.restore(data + b"\xff" * BLOCK)
    try:
        vfs.VfsLfs2(chip, progsize=int(program))
    except OSError as error:
        print("refused", error.errno)


def format(image, program):
    """Write the filesystem that MicroPython itself makes of as many blocks."""
    size = os.stat(image)[6]
    chip = Chip(size // BLOCK, BLOCK)
    vfs.VfsLfs2.mkfs(chip, progsize=int(program))
    with open(image, "wb") as stream:
        stream.write(chip.data)


globals()[sys.argv[1]](*sys.argv[2:])
