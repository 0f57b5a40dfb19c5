"""The child process of `broker.embedded()`: `python -m flatmq_tools.embedded_broker FILE.toml`.

Runs rumqttd, as iotcore packs it, until standard input closes, which it does when the parent
stops this process or has died.
"""

from __future__ import annotations

import logging
import os
import sys
import threading

from iotcore.iotcore import IotCoreBroker


def _exit_with_parent() -> None:
    """End this process, whatever its threads do, once standard input is at its end."""
    try:
        sys.stdin.buffer.read()
    finally:
        os._exit(0)


def main() -> None:
    """Serve until the parent goes; the broker has no stop of its own."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # rumqttd reports each packet it routes as an error span.
    logging.getLogger("rumqttd").setLevel(logging.CRITICAL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    IotCoreBroker(config_path=sys.argv[1]).run_forever()


if __name__ == "__main__":
    main()
