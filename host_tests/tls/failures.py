"""The failures of TLS, and what the client says of each.

`python host_tests/tls/failures.py` prints a table in Markdown of both interpreters, and `--results
FILE` puts it into a document.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    ROOT = Path(__file__).parents[2]
    sys.path[:0] = [str(ROOT / name) for name in ("host_tests", "tools", "lib")]

from conftest import PYTHONS
from flatmq_rigs import results
from tls.secure_broker import SecureBroker


class Failure(NamedTuple):
    """A mistake, and a part of the text that the client `says`.

    `tls` are arguments for `SecureBroker.arguments`.
    """

    name: str
    tls: dict[str, Any]
    says: str
    listener: str = "broker"
    kind: str = "tls"
    only: str = ""  # the one interpreter on which it is a mistake


HEAD = """## When TLS fails

`python host_tests/tls/failures.py --results docs/results.md`: what `client.error` says for each
mistake, after the host and the port."""

CA: dict[str, Any] = {"ca": "ca.der"}
FAILURES = (
    Failure("authority that is not known", {"ca": "other.der"}, "unknown authority"),
    Failure("certificate for another name", CA, "is not for 127.0.0.1", "named"),
    Failure("certificate that has expired", CA, "has expired by this clock (", "expired"),
    Failure("certificate that is not valid yet", CA, "not valid yet by this clock (", "future"),
    Failure("another public key than the pin", {"pin": "pin of ca"}, "is not in pin: its SHA-256"),
    Failure("no client certificate", CA, "it needs a client certificate", "mutual"),
    Failure("no client certificate, TLS 1.2", CA, "it needs a client certificate", "older"),
    Failure("key of another certificate", {**CA, "cert": "client.der", "key": "stranger.key.der"},
            "key must be the key of cert", "mutual"),
    Failure("client certificate of another authority",
            {**CA, "cert": "stranger.der", "key": "stranger.key.der"},
            "the broker must trust the authority", "mutual"),
    Failure("client certificate of another authority, TLS 1.2",
            {**CA, "cert": "stranger.der", "key": "stranger.key.der"},
            "the broker must trust the authority", "older"),
    Failure("client certificate that has expired", {**CA, "cert": "old.der", "key": "old.key.der"},
            "cert must be valid today", "mutual"),
    Failure("port without TLS", CA, "use the port that has TLS", "plain"),
    Failure("TLS 1.3 only", CA, "allow TLS 1.2", "modern", only="micropython"),
    Failure("no such file", {"ca": "nowhere.der"}, "file in ca cannot be read"),
    Failure("file that is no certificate", {"ca": "broken.der"}, "ca must be an X.509"),
    Failure("key that is no key", {**CA, "cert": "client.der", "key": "broken.der"},
            "cert and key must be", "mutual"),
)  # fmt: skip


def said(broker: SecureBroker, python: str, failure: Failure) -> tuple[int, str, str]:
    """Return after how many tries connect() gives up, and the kind and the detail of its error."""
    printed = broker.run(
        python, "secure_scenarios.connect_raises", failure.tls, listener=failure.listener
    )
    tries, kind, *detail = printed["raised"]
    return int(tries), kind, " ".join(detail)


def main() -> int:
    """Print the table, or put it into a document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--results", type=Path, help="The document, for example docs/results.md.")
    document = parser.parse_args().results
    broker = SecureBroker()
    rows = []
    try:
        for failure in FAILURES:
            for python in PYTHONS:
                _, kind, detail = said(broker, python, failure)
                shown = detail.replace(str(broker.folder) + "/", "").replace("|", "\\|")
                shown = re.sub(r"^TLS 127\.0\.0\.1:\d+: ", "", shown)
                rows.append((failure.name, python, kind, shown))
    finally:
        broker.stop()
    table = results.table(("mistake", "interpreter", "`kind`", "`detail`"), rows)
    if document:
        results.write(document, "tls-failures", f"{HEAD}\n\n{table}")
    else:
        print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
