"""Run one scenario: `run_scenario.py MODULE FUNCTION key=value ...`, on CPython or MicroPython.

With `tls`, which are the arguments of TLS in JSON, or `mask`, which is that of WebSocket frames,
"random", or "zero" as over TLS, it runs over these. `plain` is then the port without TLS.
"""

import json
import sys

from expectations import expected
from scenario_env import Env, start


class _ZeroMask:
    def link(self, host, port):
        if sys.implementation.name == "micropython":
            from flatmq.stream_tcp import TCP
        else:
            from flatmq.stream_cpython import TCP
        return TCP(host, port)


class LinkedEnv(Env):
    """An environment whose clients use the link, except for those of `plain`."""

    def __init__(self, options):
        kind, version = options.get("kind", "mosquitto"), options.get("version", "4")
        super().__init__(options, expected(kind, version))
        self.settings = json.loads(options.get("tls", "null"))
        self.plain_port = int(options.get("plain", "0"))
        self.mask = options.get("mask")
        self.clients = []

    def tls(self):
        """Return a TLS as the test needs it. A path after "@" is read here."""
        if self.settings is None:
            return None
        from flatmq.stream_tls import TLS

        given = dict(self.settings)
        for name in ("ca", "cert", "key"):
            value = given.get(name)
            if value and value[0] == "@":
                with open(value[1:], "rb") as file:
                    given[name] = file.read()
        if isinstance(given.get("pin"), list):
            given["pin"] = tuple(given["pin"])
        return TLS(**given)

    def client(self, name, *kind, **options):
        """A client that has not started."""
        if self.mask:
            from flatmq.stream_websocket import WebSocket

            tls = _ZeroMask() if self.mask == "zero" else self.tls()
            options["link"] = WebSocket(self.host, self.port, tls=tls)
        elif "tls" not in options:
            options["tls"] = self.tls()
        self.clients.append(super().client(name, *kind, **options))
        return self.clients[-1]

    def plain(self, name, **options):
        """A client without TLS, that is connected."""
        secure = self.port
        self.port = self.plain_port
        try:
            return self.online(name, tls=None, **options)
        finally:
            self.port = secure


def run(env):
    """Run the scenario, and disconnect the clients that it leaves."""
    module, function = sys.argv[1:3]
    getattr(__import__(module), function)(env)
    for client in env.clients:
        client.disconnect()


start(run, LinkedEnv(dict(argument.split("=", 1) for argument in sys.argv[3:])))
