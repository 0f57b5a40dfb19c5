"""Every method with its return values and exceptions. Each public function is a case."""

import desk
from umqtt.robust import MQTTClient as RobustClient
from umqtt.simple import MQTTClient, MQTTException


def _client(name="calls", **options):
    client = MQTTClient(name, desk.HOST, desk.PORT, **options)
    client.seen = []

    def take(topic, msg):
        client.seen.append((topic, msg))

    client.set_callback(take)
    return client


def _online(name="calls", clean_session=True, **options):
    client = _client(name, **options)
    client.connect(clean_session)
    return client


def _raised(f, *arguments, **options):
    """Return what a call raises, or returns."""
    try:
        return f(*arguments, **options)
    except Exception as e:
        if isinstance(e, OSError):
            return "OSError"
        return type(e).__name__, e.args[:1] if isinstance(e, MQTTException) else None


def constructor():
    c = MQTTClient("a", "host")
    settings = [c.client_id, c.server, c.port, c.user, c.pswd, c.keepalive, bool(c.ssl)]
    state = [c.sock, c.cb, c.pid, c.lw_topic, c.lw_msg, c.lw_qos]
    p = MQTTClient(b"a", "host", 1, "u", "p", 5, True, {"k": 1})
    placed = [p.client_id, p.server, p.port, p.user, p.pswd, p.keepalive, p.ssl, p.ssl_params]
    n = MQTTClient(client_id="a", server="host", port=2, user=b"u", password=b"p", keepalive=9,
                   ssl=False, ssl_params={})  # fmt: skip
    named = [n.client_id, n.server, n.port, n.user, n.pswd, n.keepalive]
    return settings, state, placed, named, MQTTClient("a", "host", ssl=True).port


def one_exception():
    return issubclass(MQTTException, Exception), MQTTException(5).args


def setters():
    c = _client()
    f = print
    returned = [c.set_callback(f), c.cb is f, c.set_last_will("t", b"m", True, 2)]
    bad = _raised(c.set_last_will, "t", "m", qos=3), _raised(c.set_last_will, "", "m")
    return returned, [c.lw_topic, c.lw_msg, c.lw_retain, c.lw_qos], bad


def connect():
    c = _client(b"bytes", keepalive=600)
    returned = [c.connect()]
    c.disconnect()
    returned.append(bool(c.sock))
    returned += [c.connect(True, 5), c.connect(), c.publish(b"twice", b"1", qos=1)]
    return returned, c.disconnect()


def session_present():
    c = _client("keeper")
    returned = []
    for clean in (True, False, False, True):
        returned.append(c.connect(clean_session=clean))
        c.disconnect()
    return returned


def passwords():
    port = int(desk.ask("port", "users"))
    clients = [
        MQTTClient("a", desk.HOST, port, user="alice", password=p) for p in ("no", "s3cret")
    ]
    return [_raised(c.connect) for c in clients]


def no_broker():
    returned = [_raised(MQTTClient("a", "no.such.host.invalid", 1883).connect)]
    try:
        MQTTClient("a", desk.HOST, int(desk.ask("port", "nothing"))).connect()
    except OSError as e:
        returned.append(e.errno)
    return returned


def ping():
    c = _online()
    returned = [c.ping(), c.wait_msg(), c.ping(), c.ping(), c.wait_msg(), c.wait_msg()]
    c.subscribe(b"p")
    c.ping()
    c.publish(b"p", b"1")
    returned += sorted([str(c.wait_msg()), str(c.wait_msg())])
    return returned


def publish():
    c = _online()
    returned = [c.publish("t/str", "text"), c.publish(b"t/bytes", b"bytes")]
    returned += [c.publish(b"t", bytearray(b"array")), c.publish(b"t", b"")]
    before = c.pid
    returned.append(c.publish(b"t", b"1", qos=1))
    first = c.pid
    returned.append(c.publish(b"t", b"2", False, 1))
    return returned, first != before, c.pid != first, _raised(c.publish, b"t", 5)


def echo():
    c = _online()
    returned = [c.subscribe(b"echo/+", 1)]
    c.publish(b"echo/a", b"0")
    returned.append(c.wait_msg())
    c.publish(b"echo/b", b"1", qos=1)
    returned.append(c.check_msg())
    return returned, c.seen


def messages_one_by_one():
    c = _online()
    c.subscribe(b"many", 1)
    for i in range(5):
        desk.ask("publish", "many", str(i), "1")
    counts = []
    for _ in range(5):
        c.wait_msg()
        counts.append(len(c.seen))
    return counts, [msg for _, msg in c.seen], c.check_msg()


def large_messages():
    c = _online()
    c.subscribe(b"large")
    sent = [
        bytes(range(100)) * (n // 100) + b"." * (n % 100) for n in (507, 508, 509, 1200, 20000)
    ]
    for msg in sent:
        c.publish(b"large", msg)
        c.wait_msg()
    return [msg for _, msg in c.seen] == sent


def subscribe_without_a_callback():
    c = MQTTClient("a", desk.HOST, desk.PORT)
    c.connect()
    return _raised(c.subscribe, b"t")[0]


def unsubscribe():
    c = _online()
    c.subscribe(b"un", 1)
    returned = c.unsubscribe(b"un")
    c.publish(b"un", b"1", qos=1)
    return returned, c.check_msg(), c.seen


def callback_that_raises():
    c = _online()

    def take(topic, msg):
        c.seen.append(msg)
        if msg == b"bad":
            raise ValueError

    c.set_callback(take)
    c.subscribe(b"raises")
    c.publish(b"raises", b"bad")
    c.publish(b"raises", b"good")
    return _raised(c.wait_msg), c.wait_msg() is None, c.seen


def _lost():
    c = _online()
    c.subscribe(b"t")
    desk.ask("cut")
    return c


def calls_when_lost():
    try:
        _lost().wait_msg()
    except OSError as e:
        number = e.args[0]
    return number, _raised(_lost().check_msg), _raised(_lost().publish, b"t", b"1", qos=1)


def connect_when_lost():
    c = _lost()
    returned = _raised(c.wait_msg), c.connect()
    c.subscribe(b"t")
    c.publish(b"t", b"1")
    return returned, c.wait_msg() is None, c.seen


def robust_class():
    c = RobustClient("r", desk.HOST, desk.PORT)
    c.log(True, OSError(1))
    return issubclass(RobustClient, MQTTClient), c.DELAY, c.DEBUG, c.log(False, OSError(1))


def robust_delays():
    c = RobustClient("r", desk.HOST, int(desk.ask("port", "nothing")))
    delays = []

    def delay(i):
        delays.append(i)
        if i == 3:
            c.port = desk.PORT

    c.delay = delay
    return c.reconnect(), delays


def robust_attempts():
    c = RobustClient("r", desk.HOST, desk.PORT)
    c.connect()
    reconnects = []
    c.reconnect = lambda: reconnects.append(1)
    desk.ask("cut")
    return c.check_msg(), c.check_msg(attempts=1), c.check_msg(attempts=0), len(reconnects)


desk.cases(globals())
