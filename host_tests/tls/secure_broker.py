"""A mosquitto with a listener for each way to have TLS, and how to run a scenario against it."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import HERE, interpreter_command, library
from flatmq_tools import broker, interpreter, ports
from scenario_child import converse
from tls import certificates

HEAP = "320k"  # of MicroPython, for the client, the scenario and its compiler
DEADLINE = 120  # seconds until a scenario is ended from outside; it gives up by itself before
_TRIES = 5  # a port that was free may be taken before mosquitto binds it
PYTHONS = ("cpython", "micropython")

# What each listener adds to its certificate.
_LISTENERS = {
    "broker": "",
    "expired": "",
    "future": "",
    "named": "",
    "own": "",
    "mutual": "require_certificate true\ncafile {folder}/ca.pem",
    "older": "require_certificate true\ncafile {folder}/ca.pem\ntls_version tlsv1.2",
    "modern": "tls_version tlsv1.3",
}
_runs = itertools.count()


class SecureBroker:
    """mosquitto on loopback.

    `ports` has the port of each listener, "plain" without TLS; `pins` the pin of each
    certificate in `folder`.
    """

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="flatmq-tls-")
        self.folder = Path(self._made.name)
        self.pins = certificates.write(self.folder)
        self.ports: dict[str, int] = {}
        for left in reversed(range(_TRIES)):
            try:
                self.broker = self._started()
                break
            except broker.BrokerError:
                if not left:
                    raise
        self.ports["plain"] = self.broker.port

    def _started(self) -> broker.Broker:
        # Else what comes behind the session tickets of TLS 1.3 waits 40 ms for an acknowledgement.
        lines = ["set_tcp_nodelay true"]
        for name, extra in _LISTENERS.items():
            self.ports[name] = ports.free_port()
            holder = self.folder / (name if name in self.pins else "broker")
            lines += [
                f"listener {self.ports[name]} {broker.LOOPBACK}",
                f"certfile {holder}.pem",
                f"keyfile {holder}.key.pem",
                extra.format(folder=self.folder),
            ]
        return broker.mosquitto(extra="\n".join(lines))

    def stop(self) -> None:
        """End it and remove its files."""
        self.broker.stop()
        self._made.cleanup()

    def path(self, name: str) -> str:
        """The path of a file of the folder."""
        return str(self.folder / name)

    def trusting(self, **more: Any) -> dict[str, Any]:
        """The arguments of a TLS that trusts the authority."""
        return {"ca": self.path("ca.der"), **more}

    def run(
        self,
        python: str,
        scenario: str,
        tls: dict[str, Any] | None,
        *,
        listener: str = "broker",
        host: str = "127.0.0.1",
        port: int = 0,
        option: str = "",
        carry_out: Callable[[list[str]], str | None] | None = None,
    ) -> list[str]:
        """Run a scenario of secure_scenarios.py; return the lines that it printed.

        In `tls` paths that begin with "@" are read, and given as bytes.
        """
        return converse(
            [
                *interpreter_command(python, HEAP),
                str(Path(__file__).with_name("run_secure.py")),
                scenario,
                f"host={host}",
                f"port={port or self.ports[listener]}",
                f"plain={self.ports['plain']}",
                f"token=tls{next(_runs)}",
                f"option={option}",
                f"tls={json.dumps(tls)}",
            ],
            interpreter.environment(library(python), HERE, Path(__file__).parent),
            DEADLINE,
            carry_out or (lambda words: None),
        )
