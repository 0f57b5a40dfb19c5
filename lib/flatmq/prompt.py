"""A prompt of the board over MQTT, for whoever has the key that signs updates.

    prompt = Prompt(client, b"dev/pico-1/", key)
    client.start()
    while True:
        client.poll(20)
        prompt.poll()

`flatmq prompt` types into it. Every line is signed, for one board and one session, with a number
that grows. So nobody without the key can run or repeat one, whatever they publish.

    BASE/prompt/ask  BASE/prompt/in    to the board
    BASE/prompt/out                    from it
"""

import os
from binascii import hexlify

from . import port
from .port import collect, const, load, ticks_add, ticks_diff
from .signed import signed

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client
    from .message import Message

_LARGEST = const(2048)  # bytes of a signed line
_MOST = const(600)  # characters of an answer
_ROOM = const(797)  # bytes of it as a packet,
_AROUND = const(97)  # of which are for its topic
_LEAST = const(60)  # bytes of JSON, of one without text
_MAXIMUM_PACKET_SIZE = const(3)  # of what the broker offers: see `v5.server`
_LONGEST = const(600)  # seconds of a session


class Prompt:
    """The prompt of a board.

    client   not started yet. It needs room for one more subscription, and a `tx_size` of 800
    base     bytes: what the board's topics begin with, such as b"dev/pico-1/"
    key      int: the modulus of the RSA key that signs, whose exponent is 65,537
    names    what code can use; a dict

    ValueError if `tx_size` is too small. One session at a time, of ten minutes at most. `poll`
    runs a line, which blocks the program until it is done: a watchdog that nobody feeds meanwhile
    resets the board.
    """

    def __init__(
        self, client: "Client", base: bytes, key: int, names: "dict[str, Any] | None" = None
    ) -> None:
        client.no_room(_ROOM, 1)
        self._client = client
        self._key = key
        self._to = base[:-1].decode()
        self._ask = base + b"prompt/ask"
        self._out = base + b"prompt/out"
        self._given = {} if names is None else names
        self._names: dict[str, Any] = {}  # of the session
        self._text: Any = None  # a line that comes in, or has come
        self._whole = False
        self._asked = False
        self._answer = ""  # that waits for room
        self._nonce = ""  # of the session
        self._n = 0  # lines that were run in it
        self._end = port.ticks_ms()
        client.subscribe([self._ask, base + b"prompt/in"], self._on_message, 1, True)

    def poll(self) -> None:
        """Run a line that has come, and answer. Allocates nothing if there is none."""
        if self._n and ticks_diff(port.ticks_ms(), self._end) >= 0:
            self._n = 0
            self._nonce = ""
            self._names = {}
        if self._answer:  # there was no room for it
            pass
        elif self._asked:
            if self._n:
                self._say("busy")
            else:  # lines must be signed for this session
                self._nonce = hexlify(os.urandom(8)).decode()
                self._say("", grant=self._nonce)
            self._asked = False  # once there was memory for the answer
        elif self._whole:
            self._take()
        if self._answer:
            c = self._client
            try:
                if c.publish(self._out, self._answer, c.max_qos and 1) is None:
                    return
            except ValueError:  # not even the shortest is small enough
                pass
            self._answer = ""

    def _on_message(self, message: "Message") -> None:
        if message.retain:
            return
        if message.is_topic(self._ask):
            self._asked = True
            return
        if not message.offset:
            self._whole = False
            self._text = bytearray()
        if self._text is not None:
            if len(self._text) + len(message) > _LARGEST:
                self._text = None
                return
            self._text.extend(message.payload)
            self._whole = message.last

    def _say(self, left, **said):
        from json import dumps

        if left:
            said[left] = max(0, ticks_diff(self._end, port.ticks_ms()) // 1000)
        answer = dumps(said)
        most: Any = self._client
        most = (most.five and most.offers[_MAXIMUM_PACKET_SIZE]) or _ROOM
        most = max(_LEAST, min(most, _ROOM) - _AROUND)
        n = _MOST
        while len(answer.encode()) > most:
            said["out"] = said["out"][:n] + " ...\n"
            answer = dumps(said)
            n //= 2
        self._answer = answer

    def _take(self):
        """Run a line, if it is signed for this session and is the next one.

        Without memory it stays until a later `poll`. One that has begun is not run again.
        """
        try:
            said = signed(bytes(self._text), self._key)
            code = said["code"]
            ms = min(said["seconds"], _LONGEST) * 1000
            known = said["to"], said["grant"], said["n"], code.__class__, ms.__class__
            valid = known == (self._to, self._nonce, self._n + 1, str, int)
        except (ValueError, KeyError, TypeError):
            valid = False
        if valid:
            if not self._n:
                self._end = ticks_add(port.ticks_ms(), ms)
                self._names = dict(self._given)
            # The answer if there is no memory for another one.
            self._say("left", n=self._n + 1, out="no memory\n")
            self._n += 1
        self._whole = False
        self._text = None
        if not valid:
            return
        if not code:  # the end
            self._end = port.ticks_ms()
        self._say("left", n=self._n, out=self._run(code))

    def _run(self, code):
        from io import StringIO

        out = StringIO()

        def shown(*values, **options):
            print(*values, file=out, **options)

        self._names["print"] = shown
        try:
            try:
                value = eval(code, self._names)
                if value is not None:
                    shown(repr(value))
            except SyntaxError:
                exec(code, self._names)
        except (Exception, SystemExit) as error:
            load("crash", "").print_exception(error, out)
        collect()
        return out.getvalue()
