"""Run an operation of ../device over TLS, on MicroPython.

Usage: `prove_tls.py MODULE OPERATION STEPS HOST PORT CA`. As with run_operation.py there, STEPS 0
asks whether it allocates ("SEEN asked kept refused"), and another number by how much the heap
grows ("SEEN bytes").
"""

import ssl
import sys

module, name, steps, host, port, ca = sys.argv[1:7]
if module != "umqtt_calls":  # these sometimes allocate 32 bytes if an answer comes at once
    import nodelay  # noqa: F401 (before the client)

import sockets  # noqa: E402
import umqtt_calls  # noqa: E402
from flatmq import Client  # noqa: E402
from flatmq.stream_tls import TLS  # noqa: E402
from proof import report  # noqa: E402


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
