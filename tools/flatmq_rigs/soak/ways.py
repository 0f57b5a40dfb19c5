"""Links other than TCP, for the device.

They are loaded only for these links: their names and code would take memory of a heap that is
small on purpose.
"""

from flatmq.port import drop


def arguments(link, host, port, ca):
    """The arguments of a client that say which way it goes to the broker."""
    tls = None
    if ca:
        from flatmq.stream_tls import TLS

        tls = TLS(ca=ca)
    if link.startswith("websocket"):
        from flatmq.stream_websocket import WebSocket

        return {"link": WebSocket(host, port, tls=tls)}
    return {"host": host, "port": port, "tls": tls}


def warm_up():
    """Load and unload what a failed handshake loads in addition to other losses.

    What is kept of that is kept from now on.
    """
    __import__("flatmq.stream_tls_errors")
    drop("stream_tls_errors")
