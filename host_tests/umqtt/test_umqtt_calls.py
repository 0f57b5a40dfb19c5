"""Return values and exceptions, call by call, which are those of umqtt.

There is also what is better with flatmq, or different, what ssl= and ssl_params do, and what calls
take from the heap.
"""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from brokers.fake import FakeBroker
from conftest import PYTHONS, library
from device import on_device
from flatmq import Client, umqtt, umqtt_rare
from flatmq.message import Message, Subscription
from flatmq.umqtt import MQTTClient, MQTTException
from flatmq_tools import broker
from scenario_child import play
from side_by_side import side_by_side
from tls.secure_broker import SecureBroker
from umqtt import umqtt_stage
from umqtt.umqtt_stage import PROGRAMS

# What umqtt does, too, by the cases of programs/calls.py.
SAME = {
    "callback_that_raises": "(('ValueError', None), False, [b'bad', b'good'])",
    "calls_when_lost": "(-1, 'OSError', 'OSError')",
    "connect": "([0, True, 0, 0, None], None)",
    "connect_when_lost": "(('OSError', 0), False, [(b't', b'1')])",
    "constructor": (
        "(['a', 'host', 1883, None, None, 0, False], [None, None, 0, None, None, 0], "
        "[b'a', 'host', 1, 'u', 'p', 5, True, {'k': 1}], ['a', 'host', 2, b'u', b'p', 9], 8883)"
    ),
    "echo": "([None, 48, None], [(b'echo/a', b'0'), (b'echo/b', b'1')])",
    "large_messages": "True",
    "messages_one_by_one": "([1, 2, 3, 4, 5], [b'0', b'1', b'2', b'3', b'4'], None)",
    "no_broker": "['OSError', 111]",
    "one_exception": "(True, (5,))",
    "passwords": "[('MQTTException', (5,)), 0]",
    "ping": "[None, None, None, None, None, None, '48', 'None']",
    "publish": "([None, None, None, None, None, None], True, True, ('TypeError', None))",
    "robust_attempts": "(None, None, None, 3)",
    "robust_class": "(True, 2, False, None)",
    "robust_delays": "(0, [1, 2, 3])",
    "session_present": "[0, 0, 1, 0]",
    "setters": (
        "([None, True, None], ['t', b'm', True, 2], "
        "(('AssertionError', None), ('AssertionError', None)))"
    ),
    "subscribe_without_a_callback": "AssertionError",
    "unsubscribe": "(None, None, [])",
}
# What only flatmq does, by the cases of programs/better.py.
BETTER = {
    "a_call_that_finds_no_memory_changes_nothing": (
        "(['MemoryError', 'MemoryError', 'MemoryError', None, 0, 'MemoryError'], [b'2', b'3'])"
    ),
    "a_callback_may_disconnect": "(48, 'OSError')",
    "a_callback_may_do_everything": "([b'go', b'1', b'xxxx', b'3', b'done'], None)",
    "a_callback_that_reconnects": "[b'1', b'2']",
    "a_message_that_does_not_fit": "('MemoryError', [b'fits'])",
    "a_message_that_timed_out_is_not_sent_later": "([True], [b'2'])",
    "a_publish_that_a_callback_cuts_off_fails": "('OSError', None)",
    "a_refused_subscription": "([(128,)], [b'echo'])",
    "a_subclass_may_call_what_it_overrides": (
        "(['set_last_will', 'subscribe', 'unsubscribe'], [None, 0, None], None, [b'1'])"
    ),
    "a_subscription_made_again_gets_retained_messages_once": "[b'kept', b'end', b'']",
    "a_subscription_that_waits_for_another_is_made": "[b'echo']",
    "a_timeout_of_the_socket_does_no_harm": "(None, [b'1'])",
    "acknowledged_after_the_callback": "[b'1', b'1']",
    "an_oserror_of_the_callback_does_not_reconnect": "([b'bad', b'good'], [(False, True)])",
    "an_unsubscribed_topic_stays_so": "[b'2']",
    "attributes_count_at_connect": "(['OSError', (5,), 0], [b'1'])",
    "bad_arguments": "({'ValueError'}, None)",
    "calls_to_a_silent_broker": "[True, True, True, True, True, True]",
    "connect_to_a_silent_broker": "True",
    "malformed_packets": "('OSError', 'OSError')",
    "not_connected": "(10, 1, None)",
    "overlapping_subscriptions_call_back_once_per_packet": "[b'echo']",
    "publish_a_large_message_to_a_broker_that_reads_nothing": "(True, 3000)",
    "qos_2": "(True, 48, [b'2', b'end'])",
    "robust_goes_on_after_a_refusal": "[(5,), (5,), None]",
    "subscriptions_outlive_a_reconnect": "[b'1']",
    "the_socket_can_be_polled": "([False, True], [b'1'], False)",
}
# A desk has memory enough.
ON_CPYTHON = {"a_message_that_does_not_fit": "does not happen"}


def _seen(program: Path, python: str) -> dict[str, str]:
    """Return what each case of a program returned."""
    return umqtt_stage.cases(umqtt_stage.run(program, python).printed)


USED = "(0, [(b'secure', 20000)])"
# What ssl= and ssl_params do, by the cases of programs/secure.py.
SECURE = {
    "a_broker_that_does_not_answer": "True",
    "context": USED,
    "context_and_a_port_without_tls": "OSError",
    "context_with_a_certificate": f"({USED}, 'OSError')",
    "contexts_that_do_not_fit": "['ValueError', 'ValueError', 'ValueError']",
    "params_that_are_no_certificate": "ValueError",
    "params_that_are_put_right": (
        f"['TypeError', 'ValueError', 'ValueError', 'TypeError', True, {USED}]"
    ),
    "params_that_do_not_fit": "['ValueError', 'ValueError', 'ValueError', 'TypeError']",
    "params_that_verify": USED,
    "params_with_a_certificate": f"({USED}, 'OSError')",
    "params_with_the_name": USED,
    "the_text_of_a_certificate": "True",
    "true_verifies_nothing": f"({USED}, {USED})",
}
# Python has ssl.SSLError for a file that is no certificate.
SECURE_ON_CPYTHON = {"params_that_are_no_certificate": "OSError"}


def same(python: str, folder: Path) -> None:
    text = (PROGRAMS / "calls.py").read_text()
    text = text.replace("from umqtt.simple import", "from flatmq.umqtt import")
    program = folder / f"calls_{python}.py"
    program.write_text(text.replace("from umqtt.robust import", "from flatmq.umqtt_robust import"))
    assert _seen(program, python) == SAME


def better(python: str, folder: Path) -> None:
    seen = _seen(PROGRAMS / "better.py", python)
    assert seen == (BETTER | ON_CPYTHON if python == "cpython" else BETTER)


def secure(python: str, folder: Path) -> None:
    broker_of_all = SecureBroker()
    try:
        with socket.create_server((broker.LOOPBACK, 0)) as silent:
            ports = {**broker_of_all.ports, "silent": silent.getsockname()[1]}
            lines = play(
                python,
                PROGRAMS / "secure.py",
                *(broker.LOOPBACK, "0", str(broker_of_all.folder), json.dumps(ports)),
                heap=umqtt_stage.HEAP,
            )
    finally:
        broker_of_all.stop()
    expected = SECURE | SECURE_ON_CPYTHON if python == "cpython" else SECURE
    assert umqtt_stage.cases(lines) == expected


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple, Future[None]]]:
    folder = tmp_path_factory.mktemp("programs")
    library("micropython")  # compiled before the threads need it
    with side_by_side(request, test_flatmq, lambda case: case[0](case[1], folder)) as futures:
        yield futures


@pytest.mark.parametrize(
    "case",
    [(check, python) for check in (better, same, secure) for python in PYTHONS],
    ids=lambda case: f"{case[0].__name__}-{case[1]}",
)
def test_flatmq(case: tuple, runs: dict[tuple, Future[None]]) -> None:
    runs[case].result()


# The heap


@pytest.mark.parametrize("name", on_device.operations("umqtt_calls"))
def test_a_call_allocates_nothing(name: str, near: broker.Broker) -> None:
    assert on_device.proof("umqtt_calls", name, near) == on_device.NOTHING


@pytest.mark.parametrize("call", ["subscribe", "unsubscribe"])
def test_a_call_on_a_connection_that_was_reset_waits_for_no_other(call: str) -> None:
    waits = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = MQTTClient("unit", *server.getsockname())
        client.set_callback(print)
        accepted: Future[socket.socket] = Future()

        def greet() -> None:
            peer, _ = server.accept()
            peer.recv(100)
            peer.sendall(b"\x20\2\0\0")
            accepted.set_result(peer)

        thread = threading.Thread(target=greet)
        thread.start()
        client.connect()
        thread.join()
        peer = accepted.result()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        inner = client._client
        wait = inner.link.wait
        inner.link.wait = lambda *given: (waits.append(inner.connected), wait(*given))
        with pytest.raises(OSError, match=r"closed|reset|Broken pipe"):
            getattr(client, call)(b"t")
    assert all(waits), "it waited for the next try to connect"


def subscribed(where: broker.Broker, qos: int = 1) -> tuple[MQTTClient, list[bytes]]:
    """Return a client that is subscribed to "a", and the list of what its callback gets."""
    client = MQTTClient("unit", where.host, where.port, keepalive=60)
    taken: list[bytes] = []
    client.set_callback(lambda _, msg: taken.append(msg))
    client.connect(False, timeout=2)
    client.subscribe(b"a", qos)
    return client, taken


def wait_for(client: MQTTClient, count: int) -> None:
    """Have that many messages wait for the callback."""
    while len(client._queue) < 3 * count:
        client._client.poll(10)


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker() as running:
        yield running


def test_without_memory_a_message_waits(running: broker.Broker) -> None:
    """Each call says so, until there is some; a large message is lost, as there may never be."""
    client, taken = subscribed(running)
    right = client._keep
    short = [MemoryError()]

    def keep(message: Message) -> None:
        if short:
            raise short.pop()
        right(message)

    client._keep = keep  # type: ignore[method-assign]
    client.publish(b"a", b"1")
    with pytest.raises(MemoryError, match="it waits"):
        client.wait_msg()
    waits: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client._client.link, "wait", lambda ms, out: waits.append(ms))
        assert client.wait_msg() is not None
    assert waits == []  # the message is there: nothing is to come in before
    short.append(MemoryError())
    client.publish(b"a", b"2" * 1000)
    with pytest.raises(MemoryError, match="it is lost"):
        client.wait_msg()
    client.publish(b"a", b"3")
    client.wait_msg()
    assert taken == [b"1", b"3"]


@pytest.mark.parametrize("call", ["check_msg", "wait_msg", "publish"])
def test_a_message_whose_callback_finds_no_memory_comes_again(
    call: str, running: broker.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is acknowledged once the callback has had it, and stays before the others.

    There is no memory to load code, either.
    """

    def no_memory(*name: str) -> None:
        raise MemoryError

    client, taken = subscribed(running)
    short = [MemoryError(), MemoryError()]

    def callback(topic: bytes, msg: bytes) -> None:
        if short:
            raise short.pop()
        taken.append(msg)

    client.set_callback(callback)
    inner = client._client
    for msg in (b"1", b"2"):
        inner.publish(b"a", msg, 1)
    wait_for(client, 2)
    monkeypatch.setattr(umqtt, "load", no_memory)
    for _ in range(2):
        with pytest.raises(MemoryError):
            client.publish(b"b", b"", qos=1) if call == "publish" else getattr(client, call)()
        assert (taken, len(inner.acks) > 0, len(client._queue)) == ([], True, 6)
    assert (client.wait_msg(), client.wait_msg()) == (0x32, 0x32)
    assert (taken, bytes(inner.acks)) == ([b"1", b"2"], b"")
    assert inner.stats.received == 2


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_waits_for_the_callback_outlives_disconnect(qos: int) -> None:
    """At QoS 2 the broker would send it again, and the client take it for a second one."""
    with broker.mosquitto() as near:
        client, taken = subscribed(near, qos)
        client._client.publish(b"a", b"1", qos)
        wait_for(client, 1)
        client.disconnect()
        client.connect(False)
        client.publish(b"a", b"2", qos=qos)
        while b"2" not in taken:
            client.wait_msg()
        assert taken[0] == b"1"
        assert qos == 1 or taken == [b"1", b"2"]


@pytest.mark.parametrize(("call", "sent"), [
    ("subscribe", ["PUBACK", "SUBSCRIBE"]),
    ("unsubscribe", ["PUBACK", "UNSUBSCRIBE"]),
    ("ping", ["PUBACK", "PINGREQ"]),
    ("disconnect", ["DISCONNECT"]),
])  # fmt: skip
def test_a_packet_leaves_while_a_message_waits_for_the_callback(
    call: str, sent: list[str], fake: FakeBroker
) -> None:
    """Its acknowledgement, which is sent after the callback, keeps back whatever follows it.

    DISCONNECT leaves without it. Otherwise the broker would publish the will.
    """
    client, taken = subscribed(fake)
    fake.publish(b"a", b"1", 1)
    wait_for(client, 1)
    getattr(client, call)(*[b"b"] * call.endswith("subscribe"))
    assert fake.until(lambda: [p.name for p in fake.received][2:] == sent, 5)
    assert taken == [b"1"] * (call != "disconnect")


def test_a_callback_that_has_received_others_is_not_called_again_without_memory(
    running: broker.Broker,
) -> None:
    client, taken = subscribed(running)

    def callback(topic: bytes, msg: bytes) -> None:
        taken.append(msg)
        if msg == b"1":
            client.publish(b"b", b"", qos=1)
            raise MemoryError

    client.set_callback(callback)
    for msg in (b"1", b"2", b"3"):
        client._client.publish(b"a", msg, 1)
    wait_for(client, 3)
    with pytest.raises(MemoryError):
        client.wait_msg()
    client.publish(b"b", b"", qos=1)
    assert (taken, client._queue) == ([b"1", b"2", b"3"], [])


def test_a_callback_may_make_the_subscription_that_is_being_made() -> None:
    client = Client(b"unit", "localhost", on_message=print)

    def wait(first: Subscription) -> None:
        """Stand for the wait for SUBACK, in which a callback subscribes."""
        umqtt_rare.subscribe(client, [], lambda second: None, b"a", 1)
        assert first.granted is None

    umqtt_rare.subscribe(client, [], wait, b"a", 1)
    assert [s.filters for s in client.subscriptions] == [[b"a"]]


@pytest.mark.parametrize("again", [False, True])
def test_a_subscription_that_is_refused_when_connect_renews_it(
    again: bool, fake: FakeBroker
) -> None:
    """It is tried again, unless the program subscribes again, and learns of it."""
    client, taken = subscribed(fake)
    fake.forbidden = b"a"
    client.connect()
    if again:
        with pytest.raises(MQTTException):
            client.subscribe(b"a", 1)
        return
    client.ping()
    assert client.wait_msg() is None
    fake.forbidden = None
    fake.publish(b"a", b"1", 0, 1)  # which comes with the subscription
    while not taken:
        client.check_msg()
    assert taken == [b"1"]


def test_a_subscription_that_was_made_without_memory_for_the_rest(running: broker.Broker) -> None:
    """Its messages go to the callback as topic and payload."""
    client, _ = subscribed(running)
    taken: list[tuple[bytes, bytes]] = []
    client.set_callback(lambda topic, msg: taken.append((topic, msg)))
    right = client._client.subscribe

    def subscribe(*given: object) -> None:
        right(*given)
        raise MemoryError

    client._client.subscribe = subscribe
    with pytest.raises(MemoryError):
        client.subscribe(b"b", 1)
    client.publish(b"b", b"1", qos=1)  # the broker has the subscription by then
    if not taken:
        client.wait_msg()
    assert taken == [(b"b", b"1")]
