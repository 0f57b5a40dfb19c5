"""Run a scenario over TLS, WebSocket or both: `run_linked.py MODULE SCENARIO key=value ...`.

Runs on either interpreter. `tls` are the arguments of TLS in JSON, and `plain` the port without
it. `mask` is that of WebSocket frames: "random", or "zero" as over TLS.
"""

import json
import sys

from expectations import expected
from scenario_env import Env, start

if sys.implementation.name == "micropython":
    from flatmq.stream_tcp import TCP
else:
    from flatmq.stream_cpython import TCP


class _ZeroMask:
    link = TCP


class LinkedEnv(Env):
    """An environment whose clients use the link, except for those of `plain`."""

    def __init__(self, options):
        super().__init__(options, expected("mosquitto", "4"))
        self.settings = json.loads(options.get("tls", "null"))
        self.plain_port = int(options.get("plain", "0"))
        self.mask = options.get("mask")

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

    def client(self, name, **options):
        """A client that has not started."""
        if self.mask:
            from flatmq.stream_websocket import WebSocket

            tls = _ZeroMask if self.mask == "zero" else self.tls()
            options["link"] = WebSocket(self.host, self.port, tls=tls)
        elif "tls" not in options:
            options["tls"] = self.tls()
        return super().client(name, **options)

    def plain(self, name, **options):
        """A client without TLS, that is connected."""
        secure = self.port
        self.port = self.plain_port
        try:
            return self.online(name, tls=None, **options)
        finally:
            self.port = secure


module, function = sys.argv[1:3]
scenario = getattr(__import__(module), function)
start(scenario, LinkedEnv(dict(argument.split("=", 1) for argument in sys.argv[3:])))
