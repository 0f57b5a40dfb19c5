"""A mosquitto with a listener for each way to have TLS, and how to run a scenario against it."""

import tempfile
from pathlib import Path
from typing import Any

from flatmq_rigs.certificates import CLIENT, SERVER, Issued
from flatmq_rigs.certificates import HERE as LOOPBACK_NAMES
from flatmq_tools import broker, ports
from scenario_child import linked

_TRIES = 5  # a port that was free may be taken before mosquitto binds it

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
    "chained": "",
}


def _issued(folder: Path) -> dict[str, str]:
    """Write all certificates into a folder; return the pin of each."""
    ca = Issued("Test Root", authority=True)
    middle = Issued("Test Intermediate", ca, authority=True)
    other = Issued("Another Root", authority=True)
    issued = {
        "ca": ca,
        "other": other,
        "broker": Issued("localhost", ca, hosts=LOOPBACK_NAMES),
        "expired": Issued("localhost", ca, hosts=LOOPBACK_NAMES, days=(-30, -1)),
        "future": Issued("localhost", ca, hosts=LOOPBACK_NAMES, days=(10, 30)),
        "own": Issued("localhost", hosts=LOOPBACK_NAMES, authority=True),
        "named": Issued("broker.example", ca, hosts=["broker.example"]),
        "chained": Issued("broker", middle, hosts=LOOPBACK_NAMES, usage=SERVER),
        "client": Issued("board", ca, usage=CLIENT),
        "rsa": Issued("board-2", ca, usage=CLIENT, kind="RSA 2048"),
        "stranger": Issued("board", other),
        "old": Issued("board", ca, usage=CLIENT, days=(-30, -1)),
    }
    for name, each in issued.items():
        each.write(folder, name)
    (folder / "broken.der").write_bytes(b"no certificate")
    (folder / "chained.pem").write_bytes(issued["chained"].pem + middle.pem)
    (folder / "chain.pem").write_bytes(middle.pem + ca.pem)
    return {name: each.pin for name, each in issued.items()}


class SecureBroker:
    """mosquitto on loopback.

    `ports` has the port of each listener, "plain" without TLS; `pins` the pin of each
    certificate in `folder`.
    """

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="flatmq-tls-")
        self.folder = Path(self._made.name)
        self.pins = _issued(self.folder)
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

    def arguments(self, tls: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of TLS with the folder's paths and pins.

        "ca.der" is a file of the folder, "@ca.der" its bytes, and "pin of broker" a pin.
        """
        found = dict(tls)
        for name in {"ca", "cert", "key"} & tls.keys():
            at = "@" if tls[name].startswith("@") else ""
            found[name] = at + self.path(tls[name].removeprefix("@"))
        if "pin" in tls:
            pins = [self.pins[each.removeprefix("pin of ")] for each in tls["pin"].split(", ")]
            found["pin"] = pins if len(pins) > 1 else pins[0]
        return found

    def run(
        self,
        python: str,
        scenario: str,
        tls: dict[str, Any],
        *,
        listener: str = "broker",
        host: str = "127.0.0.1",
        port: int = 0,
        option: str = "",
    ) -> dict[str, list[str]]:
        """Run a scenario, "module.function", with `arguments` of TLS.

        Returns the words of each line "@WORD ..." that it printed, by the first one.
        """
        heard = linked(
            python,
            scenario,
            self.arguments(tls),
            host=host,
            port=port or self.ports[listener],
            plain=self.ports["plain"],
            option=option,
        )
        return {words[0][1:]: words[1:] for words in heard}
