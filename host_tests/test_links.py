"""A mosquitto that listens for one more link: it runs, and the link's port is its own."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from flatmq_rigs.links import Listening
from flatmq_tools import broker, ports
from flatmq_tools.broker import LOOPBACK, BrokerError
from flatmq_tools.ports import free_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody else listens."""
    with socket.create_server((LOOPBACK, 0)) as other:
        yield other.getsockname()[1]


@pytest.mark.parametrize("link", ["tls", "websocket"])
def test_a_port_that_is_taken_before_mosquitto_binds_it_is_replaced(
    link: str, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = iter([taken])
    monkeypatch.setattr(ports, "free_port", lambda: next(offered, None) or free_port())
    with Listening(link) as listening:
        assert listening.port != taken
        assert listening.broker.status is None
        assert listening.broker.running


@pytest.mark.parametrize("link", ["tls", "websocket"])
def test_a_port_that_was_asked_for_and_is_taken_is_an_error(link: str, taken: int) -> None:
    with pytest.raises(BrokerError, match="ended with status 1"):
        Listening(link, link_port=taken)


def test_the_status_of_a_broker_that_ends_by_itself() -> None:
    """It is known once the process has ended, until a restart."""
    with broker.mosquitto() as running:
        assert running.status is None
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert running.status == -signal.SIGKILL
        running.restart()
        assert running.status is None
