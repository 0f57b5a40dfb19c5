"""The brokers of the tests and of the tools: what they listen on, and what they leave behind."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from conftest import BROKERS, SharedBrokers, kinds
from flatmq_tools import broker as brokers
from flatmq_tools import ports
from flatmq_tools.errors import ToolError


@pytest.mark.parametrize("kind", kinds("shared"))
def test_listens_on_loopback_alone(kind: str, shared_brokers: SharedBrokers) -> None:
    broker = shared_brokers.get(kind, "shared")
    assert broker.host == "127.0.0.1"
    # Another address of this same machine: on Linux all of 127/8 is, so this asks the bind.
    with socket.socket() as probe:
        probe.settimeout(10)
        assert probe.connect_ex(("127.0.0.2", broker.port)) != 0


@pytest.mark.parametrize("kind", kinds("users"))
def test_leaves_nothing_behind(kind: str) -> None:
    with BROKERS[kind]["users"]() as broker:
        folder = broker.folder  # type: ignore[attr-defined]
        assert folder.exists()
        assert broker.running
    assert not folder.exists()
    assert not broker.running


def test_every_listener_is_there_once_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mosquitto that takes its time between them stands for a busy machine."""
    slow = tmp_path / "mosquitto"
    slow.write_text(
        f"#!{sys.executable}\nimport re, socket, sys, time\nopened = []\n"
        "for port in re.findall(r'^listener (\\d+)', open(sys.argv[2]).read(), re.M):\n"
        "    time.sleep(0.3)\n"
        "    opened.append(socket.create_server(('127.0.0.1', int(port))))\n"
        "time.sleep(60)\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("MOSQUITTO", str(slow))
    second = ports.free_port()
    with brokers.mosquitto(extra=f"listener {second} {brokers.LOOPBACK}"):
        assert brokers.Broker(brokers.LOOPBACK, second).running


def test_a_broker_that_runs_already(near: brokers.Broker) -> None:
    found = brokers.external(near.address)
    assert (found.kind, found.port) == ("external", near.port)
    for wrong in ("127.0.0.1:http", "127.0.0.1:0", ":1883", "127.0.0.1:65536"):
        with pytest.raises(ToolError, match="broker must be HOST"):
            brokers.external(wrong)
    with pytest.raises(brokers.BrokerError, match="no broker answers"):
        brokers.external(f"127.0.0.1:{ports.free_port()}")


def test_the_status_of_a_broker_that_ends_by_itself() -> None:
    """It is known once the process has ended, until a restart."""
    with brokers.mosquitto() as running:
        assert running.status is None
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert running.status == -signal.SIGKILL
        running.restart()
        assert running.status is None
