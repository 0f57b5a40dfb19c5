"""Brokers that are set up as those of docs/clouds.md, and how to run a scenario against them."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import HERE, interpreter_command, library
from flatmq import Client
from flatmq_rigs.certificates import Issued
from flatmq_tools import broker, interpreter, ports
from scenario_child import converse

from . import page
from .fronts import Hub, NameCheck

HEAP = "320k"  # of MicroPython, for the client, the scenario and its compiler
DEADLINE = 120  # seconds until a scenario is ended from outside; it gives up by itself before
PATIENCE = 30  # seconds that anything else may take
PYTHONS = ("cpython", "micropython")
USERS = {"pico": "secret"}  # as on the page
NAME = "pico-1"
KEY = b"secret of pico-1"  # of the device at the hub
_TRIES = 5  # a port that was free may be taken before mosquitto binds it

HOSTS = {
    page.AWS: "ID-ats.iot.eu-west-1.amazonaws.com",
    page.AZURE: "contoso.azure-devices.net",
    page.GRID: "contoso.westeurope-1.ts.eventgrid.azure.net",
    page.PASSWORDS: "ID.s1.eu.hivemq.cloud",
    page.HOME: "192.168.1.10",
}

# Who shows neither certificate nor user name is the test, and may do everything.
_RULES = "topic readwrite #\npattern readwrite dev/%u/#\npattern readwrite devices/#\n"
_CERTIFIED = "require_certificate true\ncafile {folder}/ca.pem"
# TLS 1.2 only; `tls_version tlsv1.2` of mosquitto allows later ones.
_OPENSSL = """\
openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = default
[default]
MaxProtocol = TLSv1.2
"""


class Other:
    """Somebody else at a broker, who hears everything. `heard` has (topic, payload)."""

    def __init__(self, at: broker.Broker, **options: Any) -> None:
        self.heard: list[tuple[bytes, bytes]] = []
        self.client = Client(b"somebody", at.host, at.port, **options)
        listening = self.client.subscribe(
            b"#", lambda m: self.heard.append((m.topic, m.payload)), qos=1
        )
        self.client.connect(PATIENCE * 1000)
        self.until(lambda: listening.granted is not None)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, self.heard
            self.client.poll(20)

    def payloads(self, topic: str) -> list[bytes]:
        """Return what was published to a topic, in order."""
        return [payload for where, payload in self.heard if where == topic.encode()]

    def send(self, topic: str, payload: str) -> None:
        """Publish, and wait until the broker has it."""
        self.client.publish(topic, payload, qos=1)
        assert self.client.wait(PATIENCE * 1000)

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()


class Services:
    """`folder` has the files of the page in tls/, as on a board.

    `ports` has the port of each section, through what stands before its broker; `behind` the
    one of the broker itself.
    """

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clouds-")))
        self.tls = self.folder / "tls"
        self.tls.mkdir()
        self._write()
        (self.folder / "openssl.cnf").write_text(_OPENSSL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OPENSSL_CONF", str(self.folder / "openssl.cnf"))
            self.open, self.closed, self.behind = self._brokers(stack)
        self.ports = dict(self.behind)
        self.checks: dict[str, NameCheck] = {}
        for section in (page.AWS, page.GRID, page.PASSWORDS):
            check = NameCheck(self.behind[section], HOSTS[section])
            stack.callback(check.close)
            self.checks[section] = check
            self.ports[section] = check.port

    def _write(self) -> None:
        ca = Issued("Authority of the clouds", authority=True)
        ca.write(self.tls, "ca")
        ca.write(self.folder, "ca")
        for section, host in HOSTS.items():
            # Boards of the bench connect to loopback by its address.
            leaf = Issued("a broker", ca, hosts=[host, broker.LOOPBACK])
            leaf.write(self.folder, section.split()[0] + section.split()[-1])
        client = Issued(NAME, ca)
        client.write(self.folder, "client")
        (self.tls / "cert.der").write_bytes((self.folder / "client.der").read_bytes())
        (self.tls / "key.der").write_bytes((self.folder / "client.key.der").read_bytes())

    def holder(self, section: str) -> Path:
        """The path of a service's certificate and key, without their endings."""
        return self.folder / (section.split(maxsplit=1)[0] + section.rsplit(maxsplit=1)[-1])

    def _listener(self, section: str, extra: str = "") -> tuple[int, str]:
        port, holder = ports.free_port(), self.holder(section)
        lines = [
            f"listener {port} {broker.LOOPBACK}",
            f"certfile {holder}.pem\nkeyfile {holder}.key.pem",
            extra.format(folder=self.folder),
        ]
        return port, "\n".join(lines)

    def _brokers(
        self, stack: contextlib.ExitStack
    ) -> tuple[broker.Broker, broker.Broker, dict[str, int]]:
        rules = self.folder / "rules"
        rules.write_text(_RULES)
        for left in reversed(range(_TRIES)):
            aws, aws_lines = self._listener(
                page.AWS, _CERTIFIED + "\nuse_identity_as_username true"
            )
            grid, grid_lines = self._listener(page.GRID, _CERTIFIED)
            cloud, cloud_lines = self._listener(page.PASSWORDS)
            home, home_lines = self._listener(page.HOME)
            try:
                anyone = broker.mosquitto(
                    extra="\n".join(
                        ("set_tcp_nodelay true", f"acl_file {rules}", aws_lines, grid_lines)
                    )
                )
                stack.callback(anyone.stop)
                known = broker.mosquitto(
                    users=USERS, extra="\n".join(("set_tcp_nodelay true", cloud_lines, home_lines))
                )
                stack.callback(known.stop)
            except broker.BrokerError:
                if not left:
                    raise
            else:
                ports = {page.AWS: aws, page.GRID: grid, page.PASSWORDS: cloud, page.HOME: home}
                return anyone, known, ports
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def hub(self, target: broker.Broker) -> Iterator[Hub]:
        """The stand-in for the hub, before that broker."""
        hub = Hub(target.port, HOSTS[page.AZURE], NAME, KEY, self.holder(page.AZURE))
        self.ports[page.AZURE] = hub.port
        try:
            yield hub
        finally:
            hub.close()

    def run(
        self,
        python: str,
        scenario: str,
        section: str,
        option: object = "",
        *,
        program: str = "",
        port: int = 0,
        carry_out: Callable[[list[str]], str | None] | None = None,
    ) -> list[str]:
        """Run a scenario of cloud_scenarios.py with a section's lines, or `program`.

        Returns what it printed.
        """
        file = self.folder / "program.py"
        file.write_text(program or page.program(section))
        return converse(
            [
                *interpreter_command(python, HEAP),
                str(Path(__file__).with_name("run_cloud.py")),
                scenario,
                f"program={file}",
                f"folder={self.folder}",
                f"host={broker.LOOPBACK}",
                f"port={port or self.ports[section]}",
                "token=cloud",
                f"option={option}",
            ],
            interpreter.environment(library(python), HERE, Path(__file__).parent),
            DEADLINE,
            carry_out or (lambda words: None),
        )
