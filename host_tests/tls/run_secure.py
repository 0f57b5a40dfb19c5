"""Run one scenario over TLS on either interpreter: `run_secure.py MODULE SCENARIO key=value`.

`tls` are the arguments of TLS in JSON, and `plain` the port without it.
"""

import json
import sys

from expectations import expected
from flatmq.stream_tls import TLS
from scenario_env import Env, start


class SecureEnv(Env):
    """An environment whose clients use TLS, except for those of `plain`."""

    def __init__(self, options):
        super().__init__(options, expected("mosquitto", "4"))
        self.settings = json.loads(options["tls"])
        self.plain_port = int(options["plain"])

    def tls(self):
        """Return a TLS as the test needs it. A path after "@" is read here."""
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
        if "tls" not in options:
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
start(scenario, SecureEnv(dict(argument.split("=", 1) for argument in sys.argv[3:])))
