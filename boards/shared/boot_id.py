"""Which boot is this? A number for the packs of one boot, one more than that of the boot before.

It is kept in a file of some bytes, and begins anywhere when there is none: counting from 1 a board
whose flash was written anew would repeat the packs of its first life. Counted, and not drawn by
chance at each boot, it also shows a boot of which nothing arrived. littlefs appends so few bytes
to a block that it holds already, so that a board that wakes every minute erases one in an hour
or more.
"""

import random

PATH = "/boot_id"
_LAST = 1073741823


def next_boot(path: str = PATH) -> int:
    """1 to 1,073,741,823. Where the file cannot be written it is a random one each time."""
    try:
        with open(path) as f:
            boot = int(f.read())
        if not 0 < boot <= _LAST:
            raise ValueError(boot)
        boot = boot % _LAST + 1
    except (OSError, ValueError):
        boot = 1 + random.getrandbits(29)
    try:
        with open(path, "w") as f:
            f.write(str(boot))
    except OSError:
        return 1 + random.getrandbits(29)
    return boot
