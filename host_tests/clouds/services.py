"""Brokers that are set up as those of docs/clouds.md, and how to run a scenario against them."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certs.answering import answering
from flatmq_rigs.certificates import Issued
from flatmq_tools import broker, ports
from scenario_child import play

from . import page
from .fronts import Hub, NameCheck

HEAP = "320k"  # of MicroPython, for the client, the scenario and its compiler
USERS = {"pico": "secret"}  # as on the page
NAME = "pico-1"
KEY = b"secret of pico-1"  # of the device at the hub
_QUICK = "set_tcp_nodelay true"
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
            self.checks[section] = check
            address = stack.enter_context(answering(check.serve))
            self.ports[section] = int(address.rpartition(":")[2])

    def _write(self) -> None:
        ca = Issued("Authority of the clouds", authority=True)
        ca.write(self.tls, "ca")
        ca.write(self.folder, "ca")
        for section, host in HOSTS.items():
            # Boards of the bench connect to loopback by its address.
            leaf = Issued("a broker", ca, hosts=[host, broker.LOOPBACK])
            leaf.write(self.folder, self.holder(section).name)
        client = Issued(NAME, ca)
        client.write(self.folder, "client")
        (self.tls / "cert.der").write_bytes((self.folder / "client.der").read_bytes())
        (self.tls / "key.der").write_bytes((self.folder / "client.key.der").read_bytes())

    def holder(self, section: str) -> Path:
        """The path of a service's certificate and key, without their endings."""
        return self.folder / (section.split(maxsplit=1)[0] + section.rsplit(maxsplit=1)[-1])

    def _listener(self, port: int, section: str, extra: str = "") -> str:
        holder = self.holder(section)
        lines = (
            f"listener {port} {broker.LOOPBACK}\ncertfile {holder}.pem\nkeyfile {holder}.key.pem"
        )
        return f"{lines}\n{extra.format(folder=self.folder)}"

    def _brokers(
        self, stack: contextlib.ExitStack
    ) -> tuple[broker.Broker, broker.Broker, dict[str, int]]:
        rules = self.folder / "rules"
        rules.write_text(_RULES)
        by_certificate = {page.AWS: f"{_CERTIFIED}\nuse_identity_as_username true",
                          page.GRID: _CERTIFIED}  # fmt: skip
        for left in reversed(range(_TRIES)):
            at = {each: ports.free_port() for each in HOSTS if each != page.AZURE}
            certified = [self._listener(at[each], each, by_certificate[each])
                         for each in by_certificate]  # fmt: skip
            others = [self._listener(at[each], each) for each in at if each not in by_certificate]
            try:
                anyone = broker.mosquitto(
                    extra="\n".join([_QUICK, f"acl_file {rules}", *certified])
                )
                stack.callback(anyone.stop)
                known = broker.mosquitto(users=USERS, extra="\n".join([_QUICK, *others]))
                stack.callback(known.stop)
            except broker.BrokerError:
                if not left:
                    raise
            else:
                return anyone, known, at
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def hub(self, target: broker.Broker) -> Iterator[Hub]:
        """The stand-in for the hub, before that broker."""
        hub = Hub(target.port, HOSTS[page.AZURE], NAME, KEY, self.holder(page.AZURE))
        with answering(hub.serve) as address, contextlib.closing(hub):
            self.ports[page.AZURE] = int(address.rpartition(":")[2])
            yield hub

    def run(
        self,
        python: str,
        scenario: str,
        section: str,
        option: object = "",
        *,
        program: str = "",
        port: int = 0,
        carry_out: Callable[[list[str]], str | None] = lambda words: None,
    ) -> list[str]:
        """Run a scenario of cloud_scenarios.py with a section's lines, or `program`.

        Returns what it printed.
        """
        file = self.folder / "program.py"
        file.write_text(program or page.program(section))
        return play(
            python,
            Path(__file__).with_name("run_cloud.py"),
            scenario,
            heap=HEAP,
            carry_out=carry_out,
            program=file,
            folder=self.folder,
            host=broker.LOOPBACK,
            port=port or self.ports[section],
            token="cloud",
            option=option,
        )


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    with contextlib.ExitStack() as stack:
        yield Services(stack)
