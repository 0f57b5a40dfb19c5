"""Mixes of topics, as they are received. Runs on MicroPython and on CPython."""

EIGHT = tuple(
    [b"sensors/pico-%d/temp%d" % (board, sensor) for board in (1, 2, 3, 4) for sensor in (1, 2)]
)
_TWO = EIGHT[:2]  # those of packets.py
FOUR = tuple([b"sensors/pico-%d/+" % board for board in (1, 2, 3, 4)])
_SHUFFLED = "1715017153331601023730270435253574107317457227160557641144074511"
# What is subscribed to, and the topics that messages go to, over and over.
TOPICS = {
    "one": (_TWO[:1], _TWO[:1]),
    "plus": (FOUR[:1], _TWO),
    "eight": (FOUR, EIGHT),
    "random": (FOUR, tuple([EIGHT[int(i)] for i in _SHUFFLED])),
}
