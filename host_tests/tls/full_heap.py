"""Reconnect in a heap that the application has filled, on MicroPython.

Usage: `full_heap.py HOST PORT CA RESERVE WHEN CONNECTS`. WHEN is "online" or "offline", the state
in which it is filled.

The unix port has a heap of its own for Mbed TLS. The module `tls` that the client gets here takes
from MicroPython's heap what Mbed TLS takes on a board, in the same order and sizes, and leaves the
rest to the real one. The last line is "SEEN connects", and "no memory" if a reconnect failed.
"""

import gc
import io
import sys

import tls as real

OBJECT = 640  # bytes of the socket, which only the collector gives back
TAKEN = (16725, 4437, 1046)  # bytes, in the order in which they are asked for
SHAKING = (500,) * 6  # bytes besides, until the handshake is done
PIECE = 512  # bytes that the application takes at a time


def release(files):
    """Give the memory of these files back."""
    while files:
        files.pop().close()


class Socket(io.IOBase):
    """A TLS socket with its memory."""

    def __init__(self, socket, object, taken, shaking):
        self._socket = socket
        self._object = object
        self._taken = taken
        self._shaking = shaking
        self.write = socket.write

    def readinto(self, into):
        n = self._socket.readinto(into)
        if n:
            release(self._shaking)
        return n

    def ioctl(self, request, argument):
        # To poll it asks the socket: a pollable object has no other way to ask another one.
        return argument if request == 3 else 0

    def close(self):
        self._socket.close()
        release(self._taken)


class Context:
    """An SSLContext whose sockets take memory."""

    def __init__(self, protocol):
        self._context = real.SSLContext(protocol)

    def __setattr__(self, name, value):
        if name == "_context":
            object.__setattr__(self, name, value)
        else:
            setattr(self._context, name, value)

    def load_verify_locations(self, data):
        self._context.load_verify_locations(data)

    def wrap_socket(self, socket, **options):
        try:
            object = bytearray(OBJECT)
            # Files in memory: close() gives their memory back at once, as Mbed TLS does.
            taken = [io.BytesIO(n) for n in TAKEN]
            shaking = [io.BytesIO(n) for n in SHAKING]
        except MemoryError:
            raise OSError(12) from None
        return Socket(self._context.wrap_socket(socket, **options), object, taken, shaking)


class Module:
    SSLContext = Context
    PROTOCOL_TLS_CLIENT = real.PROTOCOL_TLS_CLIENT
    CERT_REQUIRED = real.CERT_REQUIRED
    CERT_OPTIONAL = real.CERT_OPTIONAL


sys.modules["tls"] = Module

from flatmq import Client  # noqa: E402 (after the module that it is to find)
from flatmq.port import drop, load  # noqa: E402
from flatmq.stream_tls import TLS  # noqa: E402

host, port, ca, reserve, when, rounds = sys.argv[1:7]
kept = []


def fill():
    """Take all there is in pieces, and give back every third, so that no large piece is free."""
    while True:
        try:
            kept.append(bytearray(PIECE))
        except MemoryError:
            break
    for i in range(0, len(kept), 3):
        kept[i] = None
    gc.collect()


def main():
    tls = TLS(ca=ca, reserve=reserve == "True")
    client = Client("full-" + reserve + when, host, int(port), tls=tls, retry_ms=50)
    # The table of names grows in steps, for which a full heap has no room: all are in it now.
    load("connecting")
    for name in ("dial", "reasons", "waiting", "stream_tls_errors"):
        load(name, "")
    drop("connecting", "dial", "reasons", "waiting", "stream_tls_errors")
    kept.extend([None] * 2000)
    kept.clear()
    connects = 0
    for i in range(int(rounds)):
        client.start()
        while not client.connected:
            client.poll(100)
            if client.error:
                print("SEEN", connects, client.error.kind, client.error.detail)
                return
        connects += 1
        client.publish(b"full", b"x", 1)
        client.wait(15000)
        if i == 0 and when == "online":
            fill()
        client.disconnect()
        if i == 0 and when == "offline":
            fill()
    print("SEEN", connects)


main()
