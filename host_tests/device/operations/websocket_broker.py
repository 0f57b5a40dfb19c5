"""The main operations over WebSocket, with a broker that listens for it."""

import packets
from flatmq import Client
from flatmq.stream_tcp import TCP
from flatmq.stream_websocket import WebSocket
from sockets import LONG, Echo


class _ZeroMask:
    """Has frames as they are over TLS."""

    link = TCP


def _echo(proof, qos, tls=None):
    link = WebSocket(*proof.broker, tls=tls)
    client = Client(b"proof", link=link, version=packets.version, tx_size=768, rx_size=512)
    return Echo(proof, qos, client)


def _rounds(echo, qos):
    while True:
        yield echo.round(qos) and echo.round(qos, LONG)


def there_and_back_at_qos0(proof):
    return _rounds(_echo(proof, 0), 0)


def there_and_back_at_qos1(proof):
    return _rounds(_echo(proof, 1), 1)


def there_and_back_at_qos2(proof):
    return _rounds(_echo(proof, 2), 2)


def there_and_back_at_qos2_with_a_mask_of_zeros(proof):
    return _rounds(_echo(proof, 2, _ZeroMask), 2)


def ping_and_its_pingresp(proof):
    return _echo(proof, 0).pings()


def idle_poll_that_waits(proof):
    return _echo(proof, 0).waits()
