"""Calls of flatmq.umqtt, over TCP or TLS, with a real broker."""

from flatmq.umqtt import MQTTClient
from flatmq.umqtt_robust import MQTTClient as RobustClient

TOPIC = b"proof/lamp"
PAYLOAD = b"-1500"
OPTIONS = {}  # more arguments of MQTTClient
TIMEOUT = 15  # s until an answer is given up; far above what a loaded machine needs


def _online(proof, of=MQTTClient):
    client = of(b"proof", *proof.broker, **OPTIONS)
    client.connect(True, TIMEOUT)
    return client


def _returning(call):
    """The operation that makes a call, which returns None."""
    while True:
        yield call() is None


def publish_qos0(proof):
    client = _online(proof)
    return _returning(lambda: client.publish(TOPIC, PAYLOAD))


def publish_qos1(proof):
    client = _online(proof)
    return _returning(lambda: client.publish(TOPIC, PAYLOAD, qos=1))


def publish_qos2(proof):
    client = _online(proof)
    return _returning(lambda: client.publish(TOPIC, PAYLOAD, False, 2))


def check_msg(proof):
    return _returning(_online(proof).check_msg)


def ping_and_wait(proof):
    client = _online(proof)
    while True:
        client.ping()
        yield client.wait_msg() is None


def robust_publish_qos0(proof):
    client = _online(proof, RobustClient)
    return _returning(lambda: client.publish(TOPIC, PAYLOAD))


def robust_publish_qos1(proof):
    client = _online(proof, RobustClient)
    return _returning(lambda: client.publish(TOPIC, PAYLOAD, qos=1))


def robust_check_msg(proof):
    return _returning(_online(proof, RobustClient).check_msg)
