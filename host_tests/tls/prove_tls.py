"""Runs one of the operations over sockets by TLS: `prove_tls.py OPERATION HOST PORT CA`, on
MicroPython. The last line is "SEEN asked kept refused", as ../device/proof.py means it."""

import sys

import sockets
from flatmq import Client
from flatmq.stream_tls import TLS
from proof import Proof

name, host, port, ca = sys.argv[1:5]


def client(*arguments, **options):
    """A Client that uses TLS."""
    return Client(*arguments, tls=TLS(ca=ca), **options)


sockets.Client = client
proof = Proof((host, int(port)))
proof.prove(getattr(sockets, name))
print("SEEN", proof.asked, proof.kept, int(proof.refused))
