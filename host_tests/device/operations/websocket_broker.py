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


def _rounds(echo):
    while True:
        yield echo.round(2) and echo.round(2, LONG)


def there_and_back(proof):
    return _rounds(_echo(proof, 2))


def there_and_back_with_a_mask_of_zeros(proof):
    return _rounds(_echo(proof, 2, _ZeroMask))


def ping_and_its_pingresp(proof):
    return _echo(proof, 0).pings()


def idle_poll_that_waits(proof):
    return _echo(proof, 0).waits()
