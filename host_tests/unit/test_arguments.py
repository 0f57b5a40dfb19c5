"""Wrong arguments are named with their rule and value, and leave nothing behind."""

import enum
import io
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from flatmq import Client
from unit.both_versions import VersionBench
from unit.fake_link import FakeLink, fake_clock

LONG = b"x" * 65_536
HOST = "broker.example"


class Huge(io.BytesIO):
    """A file of 256 MB."""

    def seek(self, at: int, whence: int = 0) -> int:
        return 268_435_454


class Text:
    """The text of an exception, at each version if they differ."""

    def __init__(self, at_4: str, at_5: str = "") -> None:
        self.of = {4: at_4, 5: at_5 or at_4}


# Calls of a client that is online, and what they say.
CALLS: list[tuple[Callable[[Any], object], type, str | Text]] = [
    (lambda c: c.publish(b""), ValueError, "topic name b'': must not be empty"),
    (lambda c: c.publish(b"a/+"), ValueError, "topic name b'a/+': wildcards are not allowed"),
    (lambda c: c.publish("a/#"), ValueError, "topic name b'a/#': wildcards are not allowed"),
    (lambda c: c.publish(b"a\0"), ValueError, "topic name b'a\\x00': U+0000 is not allowed"),
    (lambda c: c.publish(b"\xff"), ValueError, "topic name b'\\xff': not UTF-8"),
    (lambda c: c.publish(LONG), ValueError, "topic name must be at most 65535 bytes, not 65536"),
    (lambda c: c.publish(bytearray(LONG)), ValueError, "at most 65535 bytes, not 65536"),
    (lambda c: c.publish(5), TypeError, "must be bytes or str, not int"),
    (lambda c: c.publish(None), TypeError, "must be bytes or str, not NoneType"),
    (lambda c: c.publish(b"t", 5), TypeError, "payload must be bytes or str, not int"),
    (lambda c: c.publish(b"t", 5, 1), TypeError, "payload must be bytes or str, not int"),
    (lambda c: c.publish(b"t", None, 1), TypeError, "must be bytes or str, not NoneType"),
    (lambda c: c.publish(b"t", 1.5), TypeError, "payload must be bytes or str, not float"),
    (lambda c: c.publish(b"t", ["x"]), TypeError, "payload must be bytes or str, not list"),
    (lambda c: c.publish(b"t", b"", 3), ValueError, "qos must be 0 to 2, not 3"),
    (lambda c: c.publish(b"t", b"", -1), ValueError, "qos must be 0 to 2, not -1"),
    (lambda c: c.publish(b"t", b"", "1"), (TypeError, ValueError), "0 to 2, not '1'"),
    (lambda c: c.publish(b"t", b"", 1.0), TypeError, "qos must be 0 to 2, not 1.0"),
    (lambda c: c.publish(b"t", b"", 0.0), TypeError, "qos must be 0 to 2, not 0.0"),
    # As in umqtt, where the third argument is retain.
    (lambda c: c.publish(b"t", b"", True), TypeError, "qos must be 0 to 2, not True"),
    (lambda c: c.publish(b"t", b"", 1, "no"), TypeError, "retain must be True or False, not 'no'"),
    (lambda c: c.publish(b"t", b"", 0, 2), TypeError, "retain must be True or False, not 2"),
    (lambda c: c.poll("x"), TypeError, "unsupported"),
    (lambda c: c.poll(0.5), TypeError, "unsupported"),
    (lambda c: c.poll(None), TypeError, "unsupported"),
    (lambda c: c.poll([]), TypeError, "unsupported"),
    (lambda c: c.wait("x"), TypeError, "timeout_ms must be an int, not 'x'"),
    (lambda c: c.wait(0.5), TypeError, "timeout_ms must be an int, not 0.5"),
    (lambda c: c.connect(None), TypeError, "timeout_ms must be an int, not None"),
    (lambda c: c.disconnect("x"), TypeError, "timeout_ms must be an int, not 'x'"),
    (lambda c: c.publish_wait(b"t", timeout_ms=0.5), TypeError,
     "timeout_ms must be an int, not 0.5"),
    (lambda c: c.publish(b"t", bytes(1021)), ValueError,
     Text("packet must be at most tx_size, 1024 bytes, not 1027", "1024 bytes, not 1028")),
    (lambda c: c.publish(b"t", bytes(1017), 1), ValueError,
     Text("packet must be at most tx_size, 1024 bytes, not 1025", "1024 bytes, not 1026")),
    (lambda c: c.publish_from(b"t/#", b""), ValueError, "topic name"),
    (lambda c: c.publish_from(b"t", 5), TypeError, "source must be a buffer, str or a file, not "),
    (lambda c: c.publish_from(b"t", None), TypeError, "not NoneType"),
    (lambda c: c.publish_from(b"t", array("H", [1])), TypeError, "items of 1 byte, not 2"),
    (lambda c: c.publish_from(b"t", memoryview(array("d", [1]))), TypeError, "byte, not 8"),
    (lambda c: c.publish_from(b"t", b"x", 2), ValueError, "qos must be 0 to 1, not 2"),
    (lambda c: c.publish_from(b"t", b"x", 0, "x"), TypeError, "retain must be True or False, "),
    (lambda c: c.publish_from(b"t", Huge()), ValueError,
     Text("must be 0 to 268435455, not 268435457", "must be 0 to 268435455, not 268435458")),
    (lambda c: c.subscribe(b"", print), ValueError, "topic filter b'': must not be empty"),
    (lambda c: c.subscribe(b"a#", print), ValueError, "b'a#': a wildcard must be a whole level"),
    (lambda c: c.subscribe(b"#/a", print), ValueError, "b'#/a': a wildcard must be a whole level"),
    (lambda c: c.subscribe([b"a", b"b+"], print), ValueError, "topic filter b'b+': a wildcard"),
    (lambda c: c.subscribe(LONG, print), ValueError, "topic filter must be at most 65535 bytes,"),
    (lambda c: c.subscribe([], print), ValueError, "number of topic filters must be 1 to 65535"),
    (lambda c: c.subscribe(5, print), TypeError, "topic filter"),
    (lambda c: c.subscribe([b"a", 5], print), TypeError, "topic filter"),
    (lambda c: c.subscribe(b"a", print, 3), ValueError, "qos must be 0 to 2, not 3"),
    (lambda c: c.subscribe(b"a", print, True), TypeError, "qos must be 0 to 2, not True"),
    (lambda c: c.subscribe(b"a", print, 0, "x"), TypeError, "chunks must be True or False, not"),
    (lambda c: c.subscribe(b"a", None), TypeError, "handler must be callable, not None"),
    (lambda c: c.unsubscribe(b""), ValueError, "topic filter b'': must not be empty"),
    (lambda c: c.unsubscribe([b"a", b"#/b"]), ValueError, "topic filter b'#/b': a wildcard"),
    (lambda c: c.unsubscribe([]), ValueError, "number of topic filters must be 1 to 65535"),
    (lambda c: c.subscribe([b"t"] * 600, print), ValueError,
     "number of topic filters must be at most 506, not 600: see rx_size"),
    (lambda c: c.set_will(b""), ValueError, "will topic b'': must not be empty"),
    (lambda c: c.set_will(b"a/#"), ValueError, "will topic b'a/#': wildcards are not allowed"),
    (lambda c: c.set_will(LONG), ValueError, "will topic must be at most 65535 bytes, not 65536"),
    (lambda c: c.set_will(5), TypeError, "will topic must be bytes or str, not int"),
    (lambda c: c.set_will(b"t", LONG), ValueError, "will payload must be at most 65535 bytes"),
    (lambda c: c.set_will(b"t", 5), TypeError, "will payload must be bytes or str, not int"),
    (lambda c: c.set_will(b"t", b"", 3), ValueError, "will qos must be 0 to 2, not 3"),
    (lambda c: c.set_will(b"t", b"", True), TypeError, "will qos must be 0 to 2, not True"),
    (lambda c: c.set_will(b"t", b"", 0, "x"), TypeError, "will retain must be True or False, not"),
    (lambda c: c.set_credentials(5, b""), TypeError, "user must be bytes or str, not int"),
    (lambda c: c.set_credentials(b"", 5), TypeError, "password must be"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), CALLS, ids=map(str, range(len(CALLS))))
def test_a_wrong_argument_is_named(
    call: Callable, error: type, text: str | Text, bench: VersionBench
) -> None:
    with pytest.raises(error) as caught:
        call(bench.client)
    wanted = text.of[bench.version] if isinstance(text, Text) else text
    assert wanted in str(caught.value)
    assert bench.client.pending == 0
    bench.client.publish(b"t", b"after")
    bench.client.poll()
    assert [p.payload for p in bench.published()] == [b"after"], "it leaves nothing behind"


def test_no_more_subscriptions_than_there_are_places_for(make: Callable) -> None:
    client = make(subscriptions=1).client
    client.subscribe(b"a", print)
    with pytest.raises(ValueError, match="subscriptions must be at most 1"):
        client.subscribe(b"b", print)


def test_a_topic_buffer_that_changes_is_checked_again(bench: VersionBench) -> None:
    topic = bytearray(b"t")
    bench.client.publish(topic)
    topic[0] = ord("#")
    with pytest.raises(ValueError, match="topic name"):
        bench.client.publish(topic)


@pytest.mark.parametrize("most", [0, 1])
def test_a_qos_that_the_broker_does_not_have_is_refused(most: int, make: Callable) -> None:
    bench = make(max_qos=most)
    client = bench.client
    bench.online()
    calls = [
        lambda: client.publish(b"t", b"x", most + 1),
        lambda: client.publish_from(b"t", b"x", most + 1),
        lambda: client.set_will(b"t", b"", most + 1),
    ]
    if bench.version == 4:  # at 5 the broker grants less
        calls.append(lambda: client.subscribe(b"t", print, most + 1))
    for call in calls:
        with pytest.raises(ValueError, match=f"qos must be 0 to {most}, not {most + 1}"):
            call()
    assert client.pending == 0
    client.publish(b"t", b"y", most)
    bench.drain()
    assert len(bench.sent()) == 1


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"port": "1883"}, "port must be 1 to 65535, not '1883'"),
    ({"port": 0}, "port must be 1 to 65535, not 0"),
    ({"port": 65_536}, "port must be 1 to 65535, not 65536"),
    ({"host": 5}, "host must be"),
    ({"version": 6}, "version must be 3 to 5, not 6"),
    ({"version": 2}, "version must be 3 to 5, not 2"),
    ({"version": 5.5}, "version must be"),
    ({"keepalive": 65_536}, "keepalive must be 0 to 65535, not 65536"),
    ({"keepalive": -1}, "keepalive must be 0 to 65535, not -1"),
    ({"keepalive": "60"}, "keepalive must be 0 to 65535, not '60'"),
    ({"keepalive": None}, "keepalive must be 0 to 65535, not None"),
    ({"tx_size": 15}, "tx_size must be 16 to"),
    ({"tx_size": "1024"}, "tx_size must be 16 to"),
    ({"rx_size": 63}, "rx_size must be 64 to"),
    ({"inflight": 0}, "inflight must be 1 to 255, not 0"),
    ({"inflight": 256}, "inflight must be 1 to 255, not 256"),
    ({"inflight": "8"}, "inflight must be 1 to 255, not '8'"),
    ({"subscriptions": 256}, "subscriptions must be 0 to 255, not 256"),
    ({"subscriptions": -1}, "subscriptions must be 0 to 255, not -1"),
    ({"incoming": 0}, "incoming must be 1 to 65535, not 0"),
    ({"incoming": 65_536}, "incoming must be 1 to 65535, not 65536"),
    ({"timeout": 0}, "timeout must be 1 to 999, not 0"),
    ({"timeout": 10_000}, "timeout must be 1 to 999, not 10000"),
    ({"retry_max_ms": 0}, "retry_max_ms must be 1 to"),
    ({"retry_ms": 0}, "retry_ms must be 1 to 60000, not 0"),
    ({"retry_ms": 60_001}, "retry_ms must be 1 to 60000, not 60001"),
    ({"give_up": -1}, "give_up must be 0 to"),
    ({"give_up": "5"}, "give_up must be 0 to"),
    ({"give_up": None}, "give_up must be 0 to"),
    ({"max_qos": -1}, "max_qos must be 0 to 2, not -1"),
    ({"max_qos": 3}, "max_qos must be 0 to 2, not 3"),
    ({"client_id": 5}, "client_id must be bytes or str, not int"),
    ({"client_id": b"\xff"}, "client_id b'\\xff': not UTF-8"),
    ({"client_id": b"\xed\xa0\x80"}, "client_id b'\\xed\\xa0\\x80': not UTF-8"),
    ({"client_id": "a\0b"}, "client_id b'a\\x00b': U+0000 is not allowed"),
    ({"client_id": LONG}, "client_id must be at most 65535 bytes, not 65536"),
    ({"client_id": "x" * 65_535 + "é"}, "client_id must be at most 65535 bytes, not 65537"),
    ({"client_id": b"", "clean_session": False}, "client_id length must be 1 to 65535, not 0"),
    ({"client_id": b"", "version": 3}, "client_id length must be 1 to 23, not 0"),
    ({"client_id": b"x" * 24, "version": 3}, "client_id length must be 1 to 23, not 24"),
    ({"user": 5}, "user must be bytes or str, not int"),
    ({"user": b"\0"}, "user b'\\x00': U+0000 is not allowed"),
    ({"user": LONG}, "user must be at most 65535 bytes, not 65536"),
    ({"user": b"u", "password": 5}, "password must be"),
    ({"user": b"u", "password": LONG}, "password must be at most 65535 bytes, not"),
    ({"password": b"p"}, "password needs a user"),
    ({"tls": ""}, "tls must be a TLS, not str"),
    ({"link": 1}, "link must be a link, not int"),
    ({"link": object()}, "link must be a link, not object"),
    ({"clean_session": "no"}, "clean_session must be True or False, not 'no'"),
    ({"clean_session": None}, "clean_session must be True or False, not None"),
    ({"chunks": "x"}, "chunks must be True or False, not 'x'"),
    ({"release": 5}, "release must be True or False, not 5"),
    ({"quiet": "no"}, "quiet must be True or False, not 'no'"),
]


@pytest.mark.parametrize(("options", "text"), OPTIONS, ids=lambda value: str(value)[:30])
def test_a_wrong_option_is_named(options: dict, text: str) -> None:
    given = {"client_id": b"unit", "host": HOST, **options}
    if not options.keys() & {"host", "port"}:
        del given["host"]
    with fake_clock() as clock, pytest.raises((TypeError, ValueError)) as caught:
        Client(**(given if "host" in given else {"link": FakeLink(clock), **given}))
    assert text in str(caught.value)


def test_what_follows_the_port_must_be_named() -> None:
    with pytest.raises(TypeError, match="arguments after port must be named, not b'user'"):
        Client(b"unit", HOST, 1883, b"user", b"secret")  # type: ignore[misc]


def test_an_int_of_another_class_is_a_qos_and_1_is_a_flag(bench: VersionBench) -> None:
    qos = enum.IntEnum("qos", {"ONCE": 1}).ONCE
    bench.client.publish(b"t", b"x", qos, 1)
    bench.client.poll()
    assert [(p.qos, p.retain) for p in bench.published()] == [(1, True)]


def test_the_longest_fields_of_connect_and_no_identifier_with_a_clean_session(
    make: Callable,
) -> None:
    most = b"x" * 65_535
    bench = make(client_id=most, user=most, password=most, clean_session=False)
    bench.client.set_will(most, most, 2, True)
    assert bench.greet().body.count(most) == 5
    nobody = make(client_id=b"")
    assert nobody.greet().body.endswith(b"\0\0")
