"""`machine` of an emulated board, as far as it is asked for."""

import socket
import time

desk = None
reset_ms = 0  # until a reset takes place


class Desk:
    """The process that the board is plugged into, which can do what an interpreter cannot."""

    def __init__(self, port):
        self._file = socket.socket()
        self._file.connect(socket.getaddrinfo("127.0.0.1", port)[0][-1])

    def ask(self, words, answer=b"done\n"):
        """Have something done; return when it is.

        The end of an earlier answer may come first, that Ctrl-C kept from being read.
        """
        self._file.write(words + "\n")
        while self._file.readline() != answer:
            pass


def reset():
    """As if the power had been cut: nothing is closed, nothing flushed.

    It returns only where the desk swallows it.
    """
    time.sleep_ms(reset_ms)
    desk.ask("reset", b"swallowed\n")


def bootloader():
    """Show its boot drive, if it is a board that has one, and be nothing else from then on."""
    desk.ask("bootloader")
    while True:
        pass
