"""A board whose flash is a folder of this machine. One life of it, until it resets.

board_process.py FOLDER [PIECES]: it is reset by chance after so many pieces. Prints why it ended.
"""

import sys

sys.path.insert(0, sys.argv[1] + "/lib")

from fake_machine import Reset

import slots

CHANCE = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def chance():
    """Have a reset come in the middle of things."""
    from flatmq.ota import fetch

    take = fetch.Sink.take
    seen = [0]

    def taken(self, message):
        take(self, message)
        seen[0] += message.last
        if seen[0] == CHANCE:
            raise Reset

    fetch.Sink.take = taken


slots.PAUSE = 0
slots.boot(sys.argv[1])
if CHANCE:
    chance()
try:
    slots.run(sys.argv[1])
except Reset:
    print("@reset")
else:
    print("@ended")
