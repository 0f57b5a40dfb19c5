"""Run cases whose bytes travel in the records of TLS, through `flatmq.stream_tls`.

Both ends are in this process, on a real connection on loopback. The client reads and writes just
as without TLS, so every event must be the same. Runs on CPython and on MicroPython.
"""

import os
import select
import socket
import ssl
import sys
from binascii import crc32

from flatmq.stream_tls import TLS
from flatmq.stream_tls_settings import contents
from hostile import drive
from hostile.server_frames import Chance

AUTHORITY = "/authority.der"  # files of the folder that certificates are in
CHAIN = "/broker."
KEY = "/broker.key."
MOST_STEPS = 20000  # until a handshake is done, or bytes are through
SOON = 200  # steps in which one end goes on at once, because the other one has something to do
WAIT = 5  # ms that one of them waits for bytes that are on their way

TCP = 6  # IPPROTO_TCP and TCP_NODELAY, which MicroPython does not name
NODELAY = 1

MICROPYTHON = sys.implementation.name == "micropython"


def patiently(wait):
    """Yield for each try of something, and then wait for what is on its way."""
    for i in range(MOST_STEPS):
        yield
        wait(WAIT if i > SOON else 0)


class Far:
    """The broker's ends of TLS connections: it listens, and has the one that was made last."""

    def __init__(self, folder):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if MICROPYTHON:
            self.context.load_cert_chain(
                contents(folder + CHAIN + "der"), contents(folder + KEY + "der")
            )
        else:
            self.context.load_cert_chain(folder + CHAIN + "pem", folder + KEY + "pem")
        self.port = 0
        self.listener = self._listening()
        self.listener.listen(1)
        self.sock = self.stream = self.ready = None
        self.into = bytearray(1024)

    def _listening(self):
        """Return a socket on a port that is free: MicroPython cannot say which it was given."""
        for _ in range(MOST_STEPS):
            number = os.urandom(2)
            self.port = 20000 + ((number[0] << 8 | number[1]) >> 3)
            found = socket.socket()
            try:
                found.bind(socket.getaddrinfo("127.0.0.1", self.port)[0][-1])
                return found
            except OSError:
                found.close()
        raise drive.Stuck("no port is free")

    def accept(self):
        """Take the connection that a client has begun."""
        self.sock, _ = self.listener.accept()
        self.sock.setblocking(False)
        # Else each record but the first waits 40 ms for an acknowledgement.
        self.sock.setsockopt(TCP, NODELAY, 1)
        stream = self.context.wrap_socket(
            self.sock, server_side=True, do_handshake_on_connect=False
        )
        if not MICROPYTHON:
            from flatmq.stream_tls_cpython import Stream

            stream = Stream(stream)
        self.stream = stream
        self.ready = select.poll()
        self.ready.register(self.sock if MICROPYTHON else stream.sock, select.POLLIN)

    def close(self):
        """Close the connection."""
        if self.sock:
            stream = self.stream if MICROPYTHON else self.stream.sock
            self.sock = self.stream = self.ready = None
            stream.close()

    def read(self):
        """Return what the client has sent, b"" if nothing is there."""
        n = self.stream.readinto(self.into)
        return bytes(self.into[:n]) if n else b""

    def wait(self, ms):
        """Return when there is something to read, or after `ms` milliseconds."""
        self.ready.poll(ms)

    def stop(self):
        """Close everything."""
        self.close()
        self.listener.close()


class Link(drive.Link):
    """The link of `drive`, whose bytes go through TLS."""

    def __init__(self, note, far, chance, folder):
        drive.Link.__init__(self, note)
        self.far = far
        self.chance = chance
        self.tls = TLS(ca=folder + AUTHORITY).link("127.0.0.1", far.port)
        self.tls.resolve()
        self.near = None

    def connect(self):
        drive.Link.connect(self)
        self.tls.connect()
        self.far.accept()
        # A byte there and one back: then the handshake is done on both sides.
        wrote = heard = answered = None
        one = bytearray(1)
        for _ in patiently(lambda ms: self.tls.wait(ms, False)):
            self.near = self.near or self.tls.stream()
            if self.near and not wrote:
                wrote = self.near.write(b"?", 0, 1)
            heard = heard or self.far.read()
            if heard and not answered:
                answered = self.far.stream.write(b"!", 0, 1)
            if answered and self.near.readinto(one):
                return
        raise drive.Stuck("the handshake does not end")

    def close(self):
        drive.Link.close(self)
        self.near = None
        self.tls.close()
        self.far.close()

    def give(self, data):
        drive.Link.give(self, data)
        at = 0
        while at < len(data):
            n = 1 + self.chance.pick(len(data) - at)
            self.through(self.far.stream.write, data[at : at + n])
            at += n

    def take(self, n):
        wanted = drive.Link.take(self, n)
        into = bytearray(n)
        got = b""
        for _ in patiently(lambda ms: self.tls.wait(ms, False)):
            size = self.near.readinto(memoryview(into)[: n - len(got)])
            got += bytes(into[: size or 0])
            if len(got) == n:
                break
        if got != wanted:
            raise drive.Stuck(f"read {got}, and {wanted} was sent")
        return wanted

    def carry(self, piece):
        self.through(self.near.write, piece)
        got = b""
        for _ in patiently(self.far.wait):
            got += self.far.read()
            if len(got) >= len(piece):
                break
        if got != piece:
            raise drive.Stuck(f"sent {got}, and {piece} was written")

    def through(self, write, piece):
        """Write all of these bytes."""
        done = 0
        for _ in range(MOST_STEPS):
            done += write(piece, done, len(piece) - done) or 0
            if done == len(piece):
                return
        raise drive.Stuck("TLS does not take what is written")


def run(data, note, marked=None, folder=""):
    """Run a case, as `drive.run` does, over TLS with the certificates in a folder."""
    far = Far(folder)
    chance = Chance(crc32(data, 2))

    def make(options, note):
        return drive.Driver(options, note, Link(note, far, chance, folder))

    try:
        drive.run(data, note, marked, make)
    finally:
        far.stop()
