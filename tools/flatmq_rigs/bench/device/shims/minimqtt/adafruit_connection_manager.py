"""The part of Adafruit's connection manager that MiniMQTT calls, for a plain MicroPython socket.

The real one hands `connect` a host and port, which MicroPython's sockets refuse.
"""


class ConnectionManager:
    def __init__(self, pool):
        self._pool = pool

    def get_socket(self, host, port, proto, session_id=None, timeout=1, **ignored):
        sock = self._pool.Socket()
        sock.connect(host, port)
        sock.settimeout(timeout)
        return sock

    def close_socket(self, sock):
        sock.close()


def get_connection_manager(pool):
    return ConnectionManager(pool)
