"""Make the client of an MQTTClient, subscribe, and check arguments. Loaded for each call."""

from . import Client
from .port import MICROPYTHON, const
from .umqtt import MQTTException

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .message import Subscription

    Wait = Callable[[Subscription], None]  # until a request is answered

_BUFFER = const(512)  # as in `umqtt`


def client(c: "Any", on_message: "Any", gate: "Any", why: "Any", *settings: "Any") -> Client:
    """Make the client for the attributes of an MQTTClient, or change the offline client `c`.

    Its link passes what fails before the broker has accepted to `why`, which returns None: see
    `reasons`. ValueError or TypeError for an attribute that breaks its rule.
    """
    (
        client_id, user, password, keepalive, clean_session, timeout,
        topic, msg, qos, retain, server, port, ssl, ssl_params,
    ) = settings  # fmt: skip
    timeout = min(timeout, 999)
    if not user:
        user = password = None
    will = (topic, msg, qos, retain) if topic else None
    if c:  # its link may hold memory that the next one needs
        c.link = None
    link: Any
    if ssl:
        from .umqtt_tls import link as secure

        link = secure(server, port, ssl, ssl_params, why)
    else:
        if MICROPYTHON:
            from .stream_tcp import TCP
        else:
            from .stream_cpython import TCP
        link = TCP(server, port)
        link.why = why
    if c:
        c.reconfigure(client_id, user, password, keepalive, clean_session, timeout, will, link)
        return c
    c = Client(
        client_id,
        user=user,
        password=password,
        keepalive=keepalive,
        clean_session=clean_session,
        timeout=timeout,
        tx_size=_BUFFER,
        rx_size=_BUFFER,
        inflight=4,
        subscriptions=255,
        link=link,
        on_message=on_message,
        chunks=True,
        quiet=True,  # the calls raise
    )
    c.gate = gate
    if will:
        c.set_will(*will)
    return c


def subscribe(c: Client, renewed: "list[Subscription]", wait: "Wait", topic, qos) -> None:
    """Subscribe to a topic filter. MQTTException(0x80) if the broker refuses.

    `renewed` are the subscriptions that connect() has renewed.
    """
    new = found(renewed, topic, qos)
    if not new:
        # Its handler is `on_message` even if memory is too short for what follows.
        new = c.subscribe(topic, c.on_message, qos)  # type: ignore[arg-type]
        new.names = [b""]  # `on_message` gets each message once, even if several filters match
    elif new.id:
        new.granted = None  # a refusal is raised here, and not tried again
    try:
        if new.granted != b"\x80":
            wait(new)
    except:
        c.withdraw(new)
        raise
    if 0x80 in (new.granted or b""):  # None: a callback has subscribed again
        c.withdraw(new)
        raise MQTTException(0x80)


def unsubscribe(c: Client, renewed: "list[Subscription]", wait: "Wait", topic) -> None:
    """End the subscription to a topic filter."""
    found(renewed, topic, None)
    wait(c.unsubscribe(topic))


def found(renewed: "list[Any]", topic: "Any", qos: "int | None") -> "Any":
    """Return the subscription if connect() has already renewed it, else None.

    A second SUBSCRIBE would make the broker send retained messages twice.
    """
    if isinstance(topic, str):
        topic = topic.encode()
    for s in renewed:
        if s.filters == [topic]:
            renewed.remove(s)
            return s if s.qos == qos else None
    return None


def check_will(topic: "bytes | str", qos: int) -> None:
    """Raise AssertionError for a bad topic or QoS of a will."""
    if not 0 <= qos <= 2:
        raise AssertionError(f"qos must be 0 to 2, not {qos!r}")
    if not topic:
        raise AssertionError(f"topic must not be empty: {topic!r}")


def refuse(timeout: "float | None") -> None:
    """Raise ValueError for a timeout that is too short; for None, AssertionError: no callback."""
    if timeout is None:
        raise AssertionError("call set_callback() before subscribe()")
    raise ValueError(f"timeout must be at least 0.001 s, not {timeout!r}")
