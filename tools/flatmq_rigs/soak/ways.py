"""Links other than TCP, for the device. Loaded for these alone: their names and their code would
take memory of a heap that is small on purpose."""

from flatmq.unload import unload


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
    """Load and let go of what a failed handshake loads on top of other losses: what is kept of
    that is kept now."""
    __import__("flatmq.refused")
    __import__("flatmq.stream_tls_errors")
    unload("stream_tls_errors", "refused")
