"""Run one scenario: `run_aio.py FUNCTION key=value ...`, on CPython or MicroPython."""

from aio_env import main

main()
