"""Judge what a client does below MQTT.

That is the frames that it writes, what it delivers of those that it reads, and how it ends a
WebSocket whose peer breaks a rule. The oracle knows the bytes on the wire and what a strict
decoder makes of them. The oracle for MQTT judges the rest, and learns from this one when a
WebSocket must end.
"""

from collections import Counter

from hostile import drive, strict_frames
from hostile.framed import READ_ERROR
from hostile.oracle import Oracle
from packets.fields import Broken


class Wrong(drive.Stuck):
    """The client did something below MQTT that it should not have done."""


class WebSocketOracle:
    """Watches the link of `framed` in one case. `counts` says what came of the WebSockets."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.counts: Counter[str] = Counter()
        self.found: Wrong | None = None  # the first
        self._begin()

    def _begin(self) -> None:
        self._answer: strict_frames.Answer | None = None
        self._head = 0  # bytes of the answer that were read
        self._is_open = False
        self._ended = False  # the oracle has heard that
        self._server = strict_frames.ServerFrames()
        self._client = strict_frames.ClientFrames()
        self._read = 0
        self._wrote = 0
        self._answered = 0  # pings, each with its pong or with that of a later one
        self._is_free = True  # the network has taken all that it was offered

    def need(self, good: object, what: str) -> None:
        """Raise unless it is so."""
        if not good:
            self.found = Wrong(what)
            raise self.found

    def asked(self, answer: bytes, request: bytes) -> None:
        """The server answers an upgrade."""
        try:
            strict_frames.check_request(request)
        except Broken as e:
            self.need(False, str(e))
        self._answer = strict_frames.judged_answer(answer, request)

    def gave(self, piece: bytes) -> None:
        """The client has read these bytes of the server."""
        answer = self._answer
        assert answer
        if not answer.size or self._head < answer.size:
            n = answer.size - self._head if answer.size else len(piece)
            self._head += len(piece[:n])
            piece = piece[n:]
        if not piece:
            return
        self._server.feed(piece)
        if self._server.is_over and not self._ended:
            self._ended = True
            self.oracle((drive.GONE, int(self._server.closed is not None)))

    def took(self, piece: bytes) -> None:
        """The client has written these bytes."""
        self.need(self._is_open, f"wrote {piece!r} before the WebSocket was open")
        pongs = len(self._client.pongs)
        try:
            self._client.feed(piece)
        except (Broken, UnicodeDecodeError) as e:
            self.need(False, f"wrote {piece!r}: {e}")
        for pong in self._client.pongs[pongs:]:
            left = self._server.pings[self._answered :]
            self.need(pong in left, f"a pong {pong!r}, to be answered was {left}")
            self._answered += left.index(pong) + 1
            self.counts["pongs"] += 1

    def opened(self) -> None:
        """The WebSocket is open, as the client sees it."""
        assert self._answer
        self.need(self._answer.may_open, "opened a WebSocket without a right answer")
        self._is_open = True

    def read(self, piece: bytes) -> None:
        """The client has this payload of what it read."""
        wanted = bytes(self._server.payload[self._read : self._read + len(piece)])
        self.need(piece == wanted, f"read {piece!r}, which is not payload: {wanted!r}")
        self._read += len(piece)

    def wrote(self, piece: bytes) -> None:
        """The WebSocket has taken this payload of what the client writes."""
        out = bytes(self._client.payload[self._wrote :])
        self.need(out == piece, f"took {piece!r}, and {out!r} is out")
        self._wrote += len(piece)

    def refused(self) -> None:
        """The network has not taken all that was offered."""
        self._is_free = False

    def failed(self, error: OSError) -> None:
        """A call of the WebSocket has raised this."""
        if error.errno == READ_ERROR:
            return  # the network has failed
        server = self._server
        self.need("WebSocket" in str(error), f"raised {error!r}")
        self.need(server.is_over or server.maybe, f"raised {error!r} for no reason")
        if not self._ended:  # it saw that a length is too large before all of it was there
            self._ended = True
            self.oracle((drive.GONE, 0))

    def closed(self) -> None:
        """The client has closed the link."""
        if self.found:  # and the client closes because of that
            return
        server, client = self._server, self._client
        if not self._is_open:
            answer = self._answer
            good = answer and answer.must_open and self._head == answer.size
            self.need(not good, "a right answer did not open the WebSocket")
            self.counts["upgrades that failed"] += 1
        elif self._ended:
            codes = server.faults or server.maybe
            if server.closed is not None:
                code = int.from_bytes(server.closed[:2], "big")
                codes = {code if strict_frames.is_code(code) else strict_frames.PROTOCOL_ERROR}
                name = "closed by the peer"
            else:
                name = "closed for a broken rule"
            self.counts[name] += 1
            if client.closed is not None:
                said = int.from_bytes(client.closed[:2], "big")
                bare = client.closed == server.closed == b""
                self.need(said in codes or bare, f"closed with {said}, not {codes}")
            else:
                self.need(not self._is_free, f"closed without a Close frame of {codes}")
        elif client.closed is not None:
            said = int.from_bytes(client.closed[:2], "big")
            self.need(said in server.maybe, f"closed with {said} for no reason")
        self._begin()

    def quiet(self, link) -> None:
        """Nothing moves, though the network takes everything."""
        server, client = self._server, self._client
        self.need(not server.is_over, "a broken rule of the WebSocket is not noticed")
        self.need(link.is_read(), "bytes of the server are not read")
        left = bytes(server.payload[self._read :])
        self.need(not left, f"not delivered: {left!r}")
        self.need(not client.is_cut, "half a frame is out")
        if not server.is_in_control:  # else that alone has to be answered (section 5.5)
            pings, pongs = server.pings[-1:], client.pongs[-1:]
            self.need(pings == pongs, f"no pong for {pings}, but {pongs}")
