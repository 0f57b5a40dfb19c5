"""Run one scenario over TLS on either interpreter: `run_secure.py SCENARIO key=value ...`."""

import json
import sys

import secure_scenarios

from flatmq.stream_tls import TLS
from scenario_env import Env, start


class SecureEnv(Env):
    """An environment whose clients use TLS, except for those of `plain`."""

    def __init__(self, options):
        Env.__init__(self, options)
        self.settings = json.loads(options["tls"])
        self.plain_port = int(options["plain"])

    def tls(self, **more):
        """Return a TLS as the test needs it. A path after "@" is read here."""
        given = dict(self.settings)
        given.update(more)
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
        return Env.client(self, name, **options)

    def plain(self, name, **options):
        """A client without TLS, that is connected."""
        secure = self.port
        self.port = self.plain_port
        try:
            return self.online(name, tls=None, **options)
        finally:
            self.port = secure


scenario = getattr(secure_scenarios, sys.argv[1])
start(scenario, SecureEnv(dict(argument.split("=", 1) for argument in sys.argv[2:])))
