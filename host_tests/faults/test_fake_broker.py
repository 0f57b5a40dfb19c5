"""The fake broker takes what comes in the order in which it came."""

import socket
import time

import peer
from faults.fake_broker import FakeBroker

# MQTT 3.1.1, no clean session, keep alive 0, client identifier "c".
CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01c"
PINGREQ = b"\xc0\x00"
TIMES = 50
PATIENCE = 30.0  # seconds for an answer


def test_a_connection_that_is_gone_does_not_end_its_successor() -> None:
    broker = FakeBroker()
    where = (broker.host, broker.port)
    try:
        for count in range(TIMES):
            gone = socket.create_connection(where, PATIENCE)
            successor = socket.create_connection(where, PATIENCE)
            while sum(c.client_id is None for c in broker.connections) < 2:
                time.sleep(0)  # until both are accepted
            with broker.lock:  # it can act on none of this before all has come
                gone.sendall(CONNECT)
                gone.close()
                successor.sendall(CONNECT)
            with successor:
                answer = b""
                while len(answer) < 4:
                    answer += successor.recv(4 - len(answer))
                assert answer == peer.connack(present=True)
                successor.sendall(PINGREQ)
                assert successor.recv(2) == peer.PINGRESP, f"after {count}"
    finally:
        broker.stop()
    assert broker.complaints == []
