"""Run an operation of ../device over TLS, on MicroPython.

Usage: `prove_tls.py MODULE OPERATION STEPS HOST PORT CA`. As with run_operation.py there, STEPS 0
asks whether it allocates ("SEEN asked kept refused"), and another number by how much the heap
grows ("SEEN bytes").
"""

import ssl
import sys

import nodelay  # noqa: F401 (before the client)
import sockets
import umqtt_calls
from flatmq import Client
from flatmq.stream_tls import TLS
from proof import report

module, name, steps, host, port, ca = sys.argv[1:7]


def client(*arguments, **options):
    """A Client that uses TLS."""
    return Client(*arguments, tls=TLS(ca=ca), **options)


sockets.Client = client
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.verify_mode = ssl.CERT_REQUIRED
with open(ca, "rb") as file:
    context.load_verify_locations(cadata=file.read())
umqtt_calls.OPTIONS["ssl"] = context
broker = host, int(port)
report(getattr(__import__(module), name), int(steps), broker)
