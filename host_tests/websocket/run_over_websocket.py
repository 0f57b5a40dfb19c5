"""Run one scenario over WebSocket: as run_scenario.py, whose arguments it takes.

`mask=zero` has the masks that there are over TLS; `ca=FILE` goes over TLS. On CPython or
MicroPython.
"""

import sys

from expectations import expected
from flatmq.setup import tcp
from flatmq.stream_websocket import WebSocket
from scenario_env import Env, start


class _ZeroMask:
    link = staticmethod(tcp)


class OverWebSocket(Env):
    """An Env whose clients go over WebSocket."""

    def __init__(self, options):
        super().__init__(options, expected("mosquitto", "4"))
        self.tls = _ZeroMask if options["mask"] == "zero" else None
        if "ca" in options:
            from flatmq.stream_tls import TLS

            self.tls = TLS(ca=options["ca"])

    def link(self):
        """A link to the broker."""
        return WebSocket(self.host, self.port, tls=self.tls)

    def client(self, name, **options):
        return super().client(name, link=self.link(), **options)


module, function = sys.argv[1:3]
options = dict(argument.split("=", 1) for argument in sys.argv[3:])
start(getattr(__import__(module), function), OverWebSocket(options))
