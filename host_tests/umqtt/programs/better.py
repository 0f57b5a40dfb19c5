"""Improvements on umqtt, and other differences. Each public function is a case."""

import errno
import select
import sys

import desk

from flatmq import port, umqtt
from flatmq.umqtt import MQTTClient, MQTTException
from flatmq.umqtt_robust import MQTTClient as RobustClient

_ROOM = sys.implementation.name == "cpython"
_SLACK_MS = 20000  # what a busy machine may add


def _client(port=desk.PORT, of=MQTTClient, **options):
    client = of("better", desk.HOST, port, **options)
    client.seen = []

    def take(topic, msg):
        client.seen.append(msg)

    client.set_callback(take)
    return client


def _online(timeout=None, of=MQTTClient, clean_session=True, **options):
    client = _client(of=of, **options)
    while True:
        try:
            client.connect(clean_session, timeout)
            return client
        except OSError:
            if timeout is None:
                raise
            # A busy machine took longer.


def _received(c, what=None):
    """Wait until a message has come, or that one; return all that have."""
    while not c.seen or (what is not None and what not in c.seen):
        c.wait_msg()
    return c.seen


def _port(what):
    return int(desk.ask("port", what))


def _timed_out(least_ms, f, *arguments, **options):
    """Return whether a call raises OSError(ETIMEDOUT), and in time."""
    began = port.ticks_ms()
    try:
        f(*arguments, **options)
    except OSError as e:
        ms = port.ticks_diff(port.ticks_ms(), began)
        return e.args[0] == errno.ETIMEDOUT and least_ms <= ms + 50 and ms < least_ms + _SLACK_MS
    return False


def _raised(f, *arguments, **options):
    try:
        return f(*arguments, **options)
    except MQTTException as e:
        return e.args
    except OSError:
        return "OSError"
    except Exception as e:
        return type(e).__name__


def connect_to_a_silent_broker():
    c = _client(_port("silent"))
    return _timed_out(200, c.connect, timeout=0.2)


def calls_to_a_silent_broker():
    returned = []
    for least_ms, call in (
        (200, lambda c: c.publish(b"t", b"1", qos=1)),
        (200, lambda c: c.publish(b"t", b"1", qos=2)),
        (200, lambda c: c.subscribe(b"t")),
        (200, lambda c: c.unsubscribe(b"t")),
        (1000, lambda c: (c.ping(), c.wait_msg())),
        (2200, lambda c: c.wait_msg()),  # 1.2 s until it asks, and 1 s for the answer
    ):
        c = _online(0.2)
        desk.ask("silence")
        returned.append(_timed_out(least_ms, call, c))
    return returned


def publish_a_large_message_to_a_broker_that_reads_nothing():
    c = _online(0.2)
    desk.ask("stall")
    done = _timed_out(200, c.publish, b"t", bytes(10000000 if _ROOM else 100000), qos=1)
    desk.ask("resume")
    c.connect(True, 20)
    c.subscribe(b"t", 1)
    c.publish(b"t", bytes(3000), qos=1)
    _received(c)
    return done, len(c.seen[0])


def a_message_that_timed_out_is_not_sent_later():
    other = _online()
    other.subscribe(b"late/#", 1)
    c = MQTTClient("late", desk.HOST, desk.PORT)
    c.connect()
    c.connect(True, 0.2)
    desk.ask("silence")
    other.connect()
    done = [_timed_out(200, c.publish, b"late/1", b"1", qos=1)]
    c.connect(False, 20)
    c.publish(b"late/2", b"2", qos=2)
    return done, _received(other)


def subscriptions_outlive_a_reconnect():
    c = _online(of=RobustClient)
    c.DELAY = 0
    c.subscribe(b"stays/#", 1)
    desk.ask("cut")
    c.publish(b"stays/1", b"1", qos=1)
    return _received(c)


def a_subscription_made_again_gets_retained_messages_once():
    c = _online()
    c.publish(b"again/1", b"kept", True, 1)
    desk.ask("cut")
    _raised(c.wait_msg)
    c.connect()
    c.subscribe(b"again/#", 1)
    _received(c)
    c.seen.clear()
    c.connect()
    c.subscribe(b"again/#", 1)
    c.publish(b"again/2", b"end", qos=1)
    _received(c, b"end")
    c.publish(b"again/1", b"", True, 1)
    return c.seen


def a_subscription_that_waits_for_another_is_made():
    c = _client(_port("scripted"))
    c.connect()
    c.subscribe(b"first")
    c.subscribe(b"second")
    desk.ask("withhold", "SUBACK")
    c.connect()
    c.check_msg()
    desk.ask("end")  # on two requests: from now on they leave one at a time
    _raised(c.wait_msg)
    c.connect()
    c.subscribe(b"second")
    c.publish(b"second", b"echo")
    c.wait_msg()
    return c.seen


def an_unsubscribed_topic_stays_so():
    c = _online()
    c.subscribe(b"gone/#", 1)
    c.unsubscribe("gone/#")
    c.connect()
    c.subscribe(b"here")
    c.publish(b"gone/1", b"1", qos=1)
    c.publish(b"here", b"2")
    c.wait_msg()
    return c.seen


def qos_2():
    c = _online()
    c.subscribe(b"two", 2)
    returned = c.publish(b"two", b"2", qos=2)
    while not c.seen:
        returned = c.wait_msg()
    c.publish(b"two", b"end")
    op = c.wait_msg()
    return returned in (None, 0x34), op, c.seen


def overlapping_subscriptions_call_back_once_per_packet():
    port = _port("scripted")
    c = _client(port)
    c.connect()
    c.subscribe(b"a/#")
    c.subscribe(b"a/+")
    c.publish(b"a/b", b"echo")
    c.wait_msg()
    return c.seen


def a_refused_subscription():
    c = _client(_port("scripted"))
    c.connect()
    returned = [_raised(c.subscribe, b"forbidden")]
    c.subscribe(b"t")
    c.publish(b"t", b"echo")
    c.wait_msg()
    return returned, c.seen


def malformed_packets():
    c = _client(_port("scripted"))
    c.connect()
    c.publish(b"t", b"garbage")
    return _raised(c.wait_msg), _raised(_client(_port("garbage")).connect)


def not_connected():
    c = _client()
    calls = [c.ping, c.wait_msg, c.check_msg]
    calls += [lambda: c.publish(b"t", b"1"), lambda: c.subscribe(b"t")]
    returned = [_raised(f) for f in calls]
    returned.append(c.disconnect())
    c.connect()
    c.disconnect()
    c.disconnect()
    returned += [_raised(f) for f in calls]
    c.connect()
    return returned.count("OSError"), returned.count(None), c.publish(b"t", b"1", qos=1)


def bad_arguments():
    c = _online()
    returned = [
        _raised(c.publish, b"a/#", b"1"),
        _raised(c.publish, b"", b"1"),
        _raised(c.publish, b"t", b"1", qos=3),
        _raised(c.subscribe, b"a#"),
        _raised(c.subscribe, b"t", 3),
        _raised(c.connect, timeout=0),
        _raised(_client(keepalive=70000).connect),
    ]
    return set(returned), c.publish(b"t", b"1", qos=1)


def attributes_count_at_connect():
    c = _client(_port("nothing"))
    returned = [_raised(c.connect)]
    c.port = _port("users")
    returned.append(_raised(c.connect))
    c.user = "alice"
    c.pswd = "s3cret"
    c.keepalive = 30
    returned.append(c.connect())
    c.subscribe(b"t")
    c.publish(b"t", b"1")
    c.wait_msg()
    return returned, c.seen


def a_callback_may_do_everything():
    c = _online()
    seen = []

    def take(topic, msg):
        seen.append(msg)
        if msg == b"go":
            c.subscribe(b"more/#", 1)
            c.publish(b"more/1", b"1", qos=2)
            c.publish(b"more/2", b"x" * 2000, qos=1)
            c.ping()
            c.publish(b"more/3", b"3")
            while b"3" not in seen:
                c.wait_msg()
            c.unsubscribe(b"more/#")
            seen.append(b"done")

    c.set_callback(take)
    c.subscribe(b"do", 1)
    c.publish(b"do", b"go")
    c.wait_msg()
    c.ping()
    return [msg[:4] for msg in seen], c.publish(b"t", b"1", qos=1)


def a_callback_may_disconnect():
    c = _online()
    c.set_callback(lambda topic, msg: c.disconnect())
    c.subscribe(b"stop", 1)
    c.publish(b"stop", b"")
    return _raised(c.wait_msg), _raised(c.check_msg)


def a_callback_that_reconnects():
    c = _online()
    c.subscribe(b"re", 1)

    def take(topic, msg):
        c.seen.append(msg)
        if msg == b"1":
            c.connect()

    c.set_callback(take)
    c.publish(b"re", b"1")
    c.wait_msg()
    c.publish(b"re", b"2")
    return _received(c, b"2")


def a_publish_that_a_callback_cuts_off_fails():
    c = _client(_port("scripted"))  # which does not send PUBACK
    c.connect()
    c.subscribe(b"t")
    c.set_callback(lambda topic, msg: c.connect())
    c.publish(b"t", b"echo")
    return _raised(c.publish, b"t", b"1", qos=1), c.publish(b"t", b"2")


def an_oserror_of_the_callback_does_not_reconnect():
    c = _online(of=RobustClient)
    log = []
    c.log = lambda in_reconnect, e: log.append((in_reconnect, type(e) is OSError))

    def take(topic, msg):
        c.seen.append(msg)
        if msg == b"bad":
            raise OSError(5)

    c.set_callback(take)
    c.subscribe(b"raises", 1)
    c.publish(b"raises", b"bad")
    c.publish(b"raises", b"good")
    c.wait_msg()
    return c.seen, log


def robust_goes_on_after_a_refusal():
    c = _client(_port("users"), of=RobustClient)
    returned = [_raised(c.connect), _raised(c.publish, b"t", b"1")]
    c.user = "alice"
    c.pswd = "s3cret"
    returned.append(_raised(c.publish, b"t", b"1", qos=1))
    return returned


def acknowledged_after_the_callback():
    c = _online(clean_session=False)
    d = MQTTClient("other", desk.HOST, desk.PORT)
    d.set_callback(print)
    d.connect()

    def take(topic, msg):
        c.seen.append(msg)
        if len(c.seen) == 1:
            raise KeyboardInterrupt

    c.set_callback(take)
    c.subscribe(b"power", 1)
    d.publish(b"power", b"1", qos=1)
    try:
        c.wait_msg()
    except KeyboardInterrupt:
        desk.ask("cut")  # before anything acknowledges it, as when the power fails
    c.connect(False)
    while len(c.seen) < 2:
        c.wait_msg()
    c.connect(True)
    return c.seen


def the_socket_can_be_polled():
    c = _online()
    c.subscribe(b"t")
    poller = select.poll()
    poller.register(c.sock, select.POLLIN)
    returned = [bool(poller.poll(0))]
    desk.ask("publish", "t", "1")
    returned.append(bool(poller.poll(_SLACK_MS)))
    while c.check_msg() is None:
        pass
    return returned, c.seen, bool(poller.poll(0))


def a_timeout_of_the_socket_does_no_harm():
    c = _online()
    c.sock.setblocking(True)
    c.subscribe(b"t", 1)
    c.sock.settimeout(100)
    returned = c.check_msg()
    c.sock.settimeout(100)
    c.publish(b"t", b"1", qos=1)
    while not c.seen:
        c.check_msg()
    return returned, c.seen


def a_subclass_may_call_what_it_overrides():
    class Own(MQTTClient):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.calls = []

        def subscribe(self, topic, qos=0):
            self.calls.append("subscribe")
            return super().subscribe(topic, qos)

        def unsubscribe(self, topic):
            self.calls.append("unsubscribe")
            return super().unsubscribe(topic)

        def set_last_will(self, topic, msg, retain=False, qos=0):
            self.calls.append("set_last_will")
            return super().set_last_will(topic, msg, retain, qos)

    c = _client(of=Own)
    returned = [c.set_last_will(b"own/will", b"gone"), c.connect()]
    returned.append(c.subscribe(b"own", qos=1))
    c.publish(b"own", b"1")
    _received(c)
    return c.calls, returned, c.unsubscribe(b"own"), c.seen


def a_call_that_finds_no_memory_changes_nothing():
    c = _online()
    c.subscribe(b"full/kept")
    load = umqtt.load

    def without_memory(*name):
        raise MemoryError

    umqtt.load = without_memory
    returned = [
        _raised(c.subscribe, b"full/more"),
        _raised(c.unsubscribe, b"full/kept"),
        _raised(c.set_last_will, b"full/will", b"gone"),
        c.lw_topic,
    ]
    c.publish(b"full/more", b"1", qos=1)
    c.publish(b"full/kept", b"2", qos=1)
    _received(c)
    returned.append(c.connect())  # with the same attributes: nothing is loaded
    c.user = "alice"
    returned.append(_raised(c.connect))
    umqtt.load = load
    c.connect()
    c.publish(b"full/kept", b"3", qos=1)
    return returned, _received(c, b"3")


def a_message_that_does_not_fit():
    if _ROOM:
        return "does not happen"
    c = _online()
    c.subscribe(b"big/#", 1)
    desk.ask("large", "big/1", "400000")
    desk.ask("publish", "big/2", "fits", "1")
    raised = _raised(c.wait_msg)
    c.wait_msg()
    return raised, c.seen


desk.cases(globals())
