"""ssl= and ssl_params with brokers of all kinds. Each public function is a case."""

import errno
import json
import ssl
import sys

import desk

from flatmq.umqtt import MQTTClient

FOLDER = sys.argv[3]
PORTS = json.loads(sys.argv[4])
# Python reads a client's certificate from PEM files only, MicroPython as it was built.
SUFFIX = ".pem" if sys.implementation.name == "cpython" else ".der"


def _path(name):
    return f"{FOLDER}/{name}"


def _content(name):
    with open(_path(name), "rb") as file:
        return file.read()


def _context(ca="ca.der"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=_content(ca))
    return context


def _verifying(**more):
    params = {"cert_reqs": ssl.CERT_REQUIRED, "cadata": _content("ca.der")}
    params.update(more)
    return params


def _used(client):
    """Return what connect() returns or raises; then use the connection."""
    try:
        returned = client.connect()
    except ValueError as e:  # that of CPython for a certificate is OSError, too
        return "ValueError", str(e)
    except OSError:
        return "OSError"
    except TypeError:
        return "TypeError"
    seen = []
    client.set_callback(lambda topic, msg: seen.append((topic, len(msg))))
    client.subscribe(b"secure", 1)
    client.publish(b"secure", b"x" * 20000, qos=1)
    while not seen:
        client.wait_msg()
    client.disconnect()
    return returned, seen


def _client(listener, context, **params):
    return MQTTClient("secure", desk.HOST, PORTS[listener], ssl=context, ssl_params=params)


def _failed(listener, context, **params):
    result = _used(_client(listener, context, **params))
    return result if isinstance(result, str) else result[0]


def context():
    return _used(_client("broker", _context()))


def contexts_that_do_not_fit():
    return [
        _failed(listener, _context(ca))
        for listener, ca in (("broker", "other.der"), ("named", "ca.der"), ("expired", "ca.der"))
    ]


def context_with_a_certificate():
    context = _context()
    context.load_cert_chain(_path("client" + SUFFIX), _path("client.key" + SUFFIX))
    return _used(_client("mutual", context)), _used(_client("mutual", _context()))


def context_and_a_port_without_tls():
    return _used(_client("plain", _context()))


def true_verifies_nothing():
    return _used(_client("expired", True)), _used(_client("broker", True, cadata=b"none"))


def params_that_verify():
    return _used(_client("broker", True, **_verifying(server_hostname="localhost")))


def params_that_do_not_fit():
    return [
        _failed("broker", True, **params)
        for params in (
            _verifying(cadata=_content("other.der")),
            _verifying(server_hostname="broker.example"),
            {"cert_reqs": ssl.CERT_REQUIRED},
            {"colour": "red"},
        )
    ]


def params_with_the_name():
    return _used(_client("named", True, **_verifying(server_hostname="broker.example")))


def params_with_a_certificate():
    own = {"key": _path("client.key.der"), "cert": _content("client.der")}
    return _used(_client("mutual", True, **own)), _used(_client("mutual", True))


def params_that_are_no_certificate():
    return _failed("broker", True, **_verifying(cadata=b"none"))


def the_text_of_a_certificate():
    error = _used(_client("broker", True, **_verifying(cadata=_content("other.der"))))[1]
    return "certificate" in error


def params_that_are_put_right():
    client = _client("broker", True, colour="red")
    returned = [_used(client)]
    client.ssl_params = _verifying(cadata=_content("other.der"))
    returned.append(_used(client)[0])
    try:
        client.publish(b"t", b"1")
    except ValueError:
        returned.append("ValueError")
    client.ssl_params = {"colour": "red"}
    returned.append(_used(client))
    try:
        client.publish(b"t", b"1")
    except OSError as e:
        returned.append(e.errno == errno.ENOTCONN)
    client.ssl_params = _verifying()
    returned.append(_used(client))
    return returned


def a_broker_that_does_not_answer():
    client = _client("silent", _context())
    try:
        return client.connect(timeout=0.3)
    except OSError as e:
        return e.errno == errno.ETIMEDOUT


desk.cases(globals())
