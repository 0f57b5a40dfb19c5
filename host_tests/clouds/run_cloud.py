"""Run one scenario with clients of docs/clouds.md on either interpreter.

Usage: `run_cloud.py SCENARIO key=value ...`. `folder` has the files of the page.
"""

import os
import sys

import cloud_scenarios

from scenario_env import Env, start


class CloudEnv(Env):
    """An environment whose clients are those of the page, except for their destination."""

    def __init__(self, options):
        Env.__init__(self, options)
        self._folder = options["folder"]
        with open(options["program"]) as file:
            self._program = file.read()

    def block(self):
        """Run the lines of the page; return their names, with a `client` that has not started.

        The name that it expects at the broker is still that of the page.
        """
        os.chdir(self._folder)  # where paths of the page are looked up, as in / on a board
        names = {}
        exec(self._program, names)
        link = names["client"].link
        link.host = self.host
        link.port = self.port
        return names


start(
    getattr(cloud_scenarios, sys.argv[1]),
    CloudEnv(dict(argument.split("=", 1) for argument in sys.argv[2:])),
)
