"""A port that is held is nobody else's by chance, and its server's at any time."""

import contextlib
import socket
import sys

import pytest

from flatmq_tools import broker as brokers
from flatmq_tools.ports import LOOPBACK, HeldPort, free_port


def test_a_port_that_is_taken_is_left_to_the_server_to_refuse() -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            HeldPort(taken)
        with contextlib.suppress(brokers.BrokerError), brokers.mosquitto(port=taken):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="there a port is only chosen")
@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_a_broker_that_is_dead_keeps_its_ports(kind: str) -> None:
    second = free_port()
    more = {"extra": f"listener {second} {LOOPBACK}"} if kind == "mosquitto" else {}
    with getattr(brokers, kind)(**more) as broker:
        broker.kill()
        for port in [broker.port, *([second] if more else [])]:
            with socket.socket() as thief, pytest.raises(OSError, match="in use"):
                thief.bind((LOOPBACK, port))
        broker.restart()
        assert broker.running
    with socket.socket() as next_one:
        next_one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        next_one.bind((LOOPBACK, broker.port))
