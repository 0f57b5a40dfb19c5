"""The interpreter's work of publishing over a WebSocket, over the link in memory."""

import memory
import work

OPERATIONS = (("publish", work.TURNS), ("publish_burst", work.TURNS * work.BURST))

memory.Sockets(None)  # the port to WebAssembly has none, and none is used


class Masked(work.Flatmq):
    """flatmq over a WebSocket that is open from the start. It only publishes."""

    name = "websocket"

    def __init__(self):
        work.Common.__init__(self)
        self.stream, self.client = self._opened()

    def _opened(self):
        from flatmq import Client
        from flatmq.stream_websocket import WebSocket, websocket

        stream = memory.Stream(8192)

        class Open(WebSocket):
            def connect(self):
                s = self._link.stream()
                self._mask = websocket(self._ring).readinto
                self._read = s.readinto
                self._write = s.write

            def stream(self):
                return self

        client = Client(b"work", link=Open("host", link=memory.Link(stream)))
        stream.feed(b"\x82\4" + memory.CONNACK)
        client.start()
        while not client.connected:
            client.poll()
            if client.error:
                raise client.error
        stream.taken()
        return stream, client

    def take(self, n):
        if len(self.stream.taken()) < n + 6:  # with the header of a frame at least
            raise RuntimeError("not written")
