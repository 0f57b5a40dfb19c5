"""No secret is in the text of an error, in what a client prints, or in its repr."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from brokers.scram import METHOD
from flatmq import Client, MQTTError, aio, umqtt
from flatmq.sas import SAS
from flatmq.stream_tls import TLS
from flatmq.stream_websocket import WebSocket
from flatmq_tools import address, trust
from packets import build
from packets.properties import Id, properties
from unit.fake_link import Bench, Clock, raises
from v5.clients5 import Bench5

SECRET = "s3cret-of-all"
TEXT = SECRET.encode()
CA = b"an authority"


class Holder:
    """Something that shows the secret, and that is nothing that the library takes."""

    def __repr__(self) -> str:
        return SECRET


# Values with the secret, most of which are not what is expected.
SHAPES: dict[str, Any] = {
    "str": SECRET,
    "bytes": TEXT,
    "list": [SECRET],
    "tuple": (SECRET, SECRET),
    "pair": (METHOD, SECRET),
    "dict": {"key": TEXT},
    "object": Holder(),
    "U+0000": SECRET + "\0",
    "no UTF-8": b"\xff" + TEXT,
    "a surrogate": SECRET + "\ud800",
    "too long": SECRET * 6000,
    "URL": f"mqtts://user:{SECRET}@broker.example:8883/",
    "path": f"mqtt?token={SECRET}",
}
# All that takes a secret.
TAKES: dict[str, Callable[[Any], object]] = {
    "Client password": lambda value: Client(b"c", "h", user="u", password=value),
    "Client5 password": lambda value: Client(b"c", "h", user="u", password=value, version=5),
    "Client tls": lambda value: Client(b"c", "h", tls=value),
    "Client host": lambda value: Client(b"c", value if "@" in str(value) else "h"),
    "auth": lambda value: Client(b"c", "h", version=5, auth=value),
    "auth function": lambda value: Client(b"c", "h", version=5, auth=(METHOD, value)),
    "set_credentials": lambda value: Client(b"c", "h").set_credentials("u", value),
    "set_credentials at 5": lambda value: Client(b"c", "h", version=5).set_credentials("u", value),
    "aio": lambda value: aio.Client(b"c", "h", user="u", password=value),
    "umqtt": lambda value: umqtt.MQTTClient(b"c", "h", user="u", password=value),
    "umqtt key": lambda value: umqtt.MQTTClient(b"c", "h", ssl=True, ssl_params={"key": value}),
    "TLS ca": lambda value: TLS(ca=value),
    "TLS cert": lambda value: TLS(ca=CA, cert=value, key=value),
    "TLS key": lambda value: TLS(ca=CA, cert=CA, key=value),
    "TLS key alone": lambda value: TLS(ca=CA, key=value),
    "WebSocket path": lambda value: WebSocket(
        "h", path=f"?{value}" if value == str(value) else value
    ),
    "WebSocket tls": lambda value: WebSocket("h", tls=value),
    "SAS": lambda value: SAS("hub", value),
    "address": lambda value: address.address(str(value) if "@" in str(value) else "h:x"),
    "key_password": lambda value: trust.Trust(key_password=value),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", TAKES)
def test_arguments(what: str, shape: str, capsys: pytest.CaptureFixture) -> None:
    try:
        said = repr(TAKES[what](SHAPES[shape]))
    except Exception as error:
        said = "".join(traceback.format_exception(error)) + repr(error)
    assert SECRET not in said + "".join(capsys.readouterr())


def _auth_later(clock: Clock, asked: Callable[..., Any]) -> Bench:
    """The function is at fault when the broker has answered."""
    bench = Bench5(clock, auth=(METHOD, lambda data: asked(data) if data else b""))
    bench.greet()
    fields = [(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, b"x")]
    bench.feed(build.ending("AUTH", 0x18, properties(fields)))
    return bench


ASKS = {
    "password": lambda clock, asked: Bench(clock, user=b"u", password=asked),
    "password at 5": lambda clock, asked: Bench5(clock, user=b"u", password=asked),
    "auth": lambda clock, asked: Bench5(clock, auth=(METHOD, asked)),
    "auth later": _auth_later,
}


ANSWERS: dict[str, Callable[..., Any]] = {
    **{e.__name__: raises(e(SECRET)) for e in (ValueError, KeyError, OSError, LookupError)},
    **{
        shape: lambda *_, shape=shape: SHAPES[shape]
        for shape in ("list", "object", "a surrogate", "too long")
    },
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("asks", ASKS)
def test_functions(asks: str, answer: str, clock: Clock, capsys: pytest.CaptureFixture) -> None:
    """The error says whose function it was, or what it has returned, and the client goes on."""
    bench = ASKS[asks](clock, ANSWERS[answer])
    bench.client.start()
    for _ in range(5):
        clock.now += 50
        bench.client.poll()
    error = bench.client.error
    assert isinstance(error, MQTTError)
    assert asks.split(maxsplit=1)[0] in str(error)
    said = f"{error!r} {error} {bench.client!r} {capsys.readouterr()}"
    said += "".join(traceback.format_exception(error))
    assert SECRET not in said


def test_a_reason_that_the_function_gives_is_shown(clock: Clock) -> None:
    def asked() -> bytes:
        raise MQTTError("resource", "the clock is not set")

    bench = Bench(clock, user=b"u", password=asked)
    bench.client.start()
    for _ in range(5):
        bench.client.poll()
    assert str(bench.client.error) == "resource: the clock is not set"
