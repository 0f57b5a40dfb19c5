"""Run one scenario: `run_scenario.py MODULE FUNCTION key=value ...`, on CPython or MicroPython.

Written in what both have in common; test_scenarios.py starts it.
"""

import sys

from expectations import expected
from scenario_env import Env, start

module, function = sys.argv[1:3]
options = dict(argument.split("=", 1) for argument in sys.argv[3:])
rows = expected(options["kind"], options["version"])
start(getattr(__import__(module), function), Env(options, rows))
