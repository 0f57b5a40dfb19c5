"""The known behaviour of each broker where brokers differ; both interpreters read this file.

The scenarios hold each broker to its rows. docs/brokers.md says it in words.
"""

EXPECTED: "dict[str, dict]" = {
    "mosquitto": {
        # QoS of a delivered message, by (QoS published, QoS subscribed).
        "delivered": {(p, s): min(p, s) for p in range(3) for s in range(3)},
        # CONNACK return code on MQIsdp level 3; None: the connection is closed without one.
        "level 3": 0,
        # CONNACK return code on a wrong password, likewise.
        "refusal": 5,
        # Copies of one message that matches three filters of one client.
        "copies of overlap": 1,
        # Is an UNSUBSCRIBE of a filter that was never subscribed answered?
        "unsuback for unknown": True,
        # Does UNSUBSCRIBE end a subscription that was made on an earlier connection?
        "unsubscribe in a kept session": True,
        # Are SUBSCRIBE and UNSUBSCRIBE that come together always carried out one after another?
        "requests in order": True,
        # CONNACK return code on a keep alive of 0, likewise.
        "keepalive 0": 0,
        # Does a message that was published with DUP reach a subscriber at QoS 0 with DUP: (as
        # it is published, as a retained message)?
        "dup at QoS 0": (False, False),
        # Are messages delivered to "$share/group/filter", and not only the filter granted?
        "shared subscriptions": True,
        # QoS 2 messages it sends while none of the earlier ones is released, of 100.
        "unreleased": 20,
        # Does what waited for a client that was away always come in the order of publishing?
        "order after an outage": True,
        # With its files kept: does a session survive SIGKILL?
        "survives SIGKILL": True,
    },
    "embedded": {
        # It ignores the QoS of the message: delivery is at the QoS of the subscription.
        "delivered": {(p, s): s for p in range(3) for s in range(3)},
        "level 3": None,
        "refusal": None,
        "copies of overlap": 3,
        "unsuback for unknown": False,
        # It is not answered, and the messages go on.
        "unsubscribe in a kept session": False,
        "requests in order": True,
        "keepalive 0": None,
        "dup at QoS 0": (True, True),
        "shared subscriptions": True,
        # Room in flight is free again with PUBREC: without PUBCOMP it goes on and on.
        "unreleased": 100,
        "order after an outage": True,
        "survives SIGKILL": False,
    },
    # But for these it is as mosquitto.
    "aedes": {
        # All that comes in one segment is begun at once.
        "requests in order": False,
        "dup at QoS 0": (True, False),
        "shared subscriptions": False,
        # Room in flight is free again with PUBREC: without PUBCOMP it goes on and on.
        "unreleased": 100,
        "order after an outage": False,
    },
    # It keeps the standard.
    "fake": {},
}

# What differs with clients of MQTT 5, and what only these see.
EXPECTED_5: "dict[str, dict]" = {
    "mosquitto": {
        # Reason code of CONNACK on a wrong password.
        "refusal": 0x87,
        "copies of overlap": 3,
        # Do messages carry the identifiers of their subscriptions?
        "identifiers": True,
        # Does RETAIN keep its value with Retain As Published?
        "retain as published": True,
        # Retained messages that have come after the first and the second SUBSCRIBE to a filter,
        # by Retain Handling.
        "retain handling": [[1, 2], [1, 1], [0, 0]],
        # Does a DISCONNECT with a Session Expiry Interval of 0 end the session?
        "DISCONNECT ends the session": True,
        # Is a session gone when its Session Expiry Interval is over?
        "sessions expire": True,
        # Is a message that waits for a client gone when its Message Expiry Interval is over?
        "messages expire": True,
        # Does a will wait for its Will Delay Interval, and not come if the client is back before?
        "will delay": True,
        # Does a client get nothing of its own on a subscription with No Local?
        "no local": True,
        # Is a client without an identifier given one for a session that is kept?
        "gives identifiers": True,
    },
    "embedded": {
        "identifiers": True,
        "retain as published": False,
        "retain handling": [[1, 1], [1, 1], [1, 1]],
        "DISCONNECT ends the session": False,
        "sessions expire": False,
        "messages expire": True,
        "will delay": True,
        "no local": False,
        # Reason code 0x85, which is a rule of 3.1.1.
        "gives identifiers": False,
    },
    # But for this it is as mosquitto.
    "fake": {"copies of overlap": 1},
}


def expected(kind, version):
    """Return what a broker does with clients of a version: "4", "5", or "None".

    "None" is for those that find the version out. "level" is what these find.
    """
    rows = _rows(EXPECTED, kind)
    rows["level"] = 5 if kind == "mosquitto" else 4
    rows["identifiers"] = False
    if version == "5" or (version == "None" and rows["level"] == 5):
        rows.update(_rows(EXPECTED_5, kind))
    return rows


def _rows(table, kind):
    rows = dict(table["mosquitto"] if kind in ("aedes", "fake") else {})
    rows.update(table[kind])
    return rows
