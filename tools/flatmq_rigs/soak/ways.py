"""Links other than TCP, for the device.

They are loaded only for these links: their names and code would take memory of a heap that is
small on purpose.
"""


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


def needed(link):
    """The modules that a connection which fails over this link needs besides."""
    names = ["stream_websocket_upgrade"] if link.startswith("websocket") else []
    return names + ["stream_tls_errors"] if link.endswith("tls") else names  # noqa: RUF005
