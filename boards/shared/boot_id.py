"""Number the boots of a board: each boot has one number more than the last, for all its packs.

The number is kept in a file of a few bytes. If there is no file, it begins at a random number: a
board whose flash was rewritten would repeat its earlier packs if it counted from 1 again. Because
it counts, it also shows boots from which nothing arrived. littlefs appends these few bytes to a
block already in use, so a board that wakes every minute erases at most one block an hour.
"""

import random

PATH = "/boot_id"
_LAST = 1073741823


def next_boot(path: str = PATH) -> int:
    """Return the number of this boot, 1 to 1,073,741,823.

    If the file cannot be written, it is a random number each time.
    """
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
