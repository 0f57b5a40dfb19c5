"""`machine` of an emulated board, as far as it is asked for."""

import socket

desk = None


class Desk:
    """The process that the board is plugged into, which can do what an interpreter cannot."""

    def __init__(self, port):
        self._file = socket.socket()
        self._file.connect(socket.getaddrinfo("127.0.0.1", port)[0][-1])

    def ask(self, words):
        """Has something done; returns when it is."""
        self._file.write(words + "\n")
        self._file.readline()


def reset():
    """As if the power had been cut: nothing is closed, nothing flushed."""
    desk.ask("reset")
    while True:
        pass


def bootloader():
    """Shows its boot drive, if it is a board that has one, and is nothing else from then on."""
    desk.ask("bootloader")
    while True:
        pass
