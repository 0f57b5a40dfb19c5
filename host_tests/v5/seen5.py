"""The known behaviour of each broker at MQTT 5, where they differ from the standard.

test_brokers_seen.py holds every row against the broker itself, with packets that no client wrote.
docs/brokers.md says it in words. None is a connection that is closed without a reason.
"""

from __future__ import annotations

from typing import Any

SEEN: dict[str, dict[str, Any]] = {
    "mosquitto": {
        # Properties of a CONNACK when nothing was asked for, by identifier.
        "connack": {0x22: 10, 0x21: 20},
        # The same with a keep alive of 0.
        "keep alive 0": {0x22: 10, 0x21: 20, 0x13: 65535},
        # Bytes of an assigned client identifier.
        "assigned": 41,
        # Reason code of the CONNACK for a CONNECT that breaks a rule.
        "broken connects": {
            "a property twice": None,
            "Receive Maximum 0": None,
            "the reserved flag": None,
            "an unknown property": None,
            "a property of CONNACK": None,
        },
        # ... and for an authentication method that it does not know.
        "unknown method": 0x8C,
        # Reason code of the DISCONNECT for a PUBLISH whose topic name is x/+; 0 if it is taken.
        "wildcard in a name": 0x82,
        # ... and for a topic filter with # before its end.
        "broken filter": 0x81,
        # ... and for an alias of 0, for one above the maximum, and for one without a topic name.
        "alias": (0x81, 0x94, 0x82),
        # ... and for a DISCONNECT with an expiry, where CONNECT had none.
        "late expiry": 0x82,
        # Reason codes of PUBREC, of the QoS 2 messages beyond its Receive Maximum.
        "beyond Receive Maximum": {0, 0x97},
        # Reason codes of UNSUBACK, of a filter that is not subscribed; None is no answer.
        "unsuback": b"\x11",
        # Reason codes of PUBACK and PUBREC when no subscription matches.
        "nobody hears": (0x10, 0),
        # Answer to a PUBREL that nothing waits for.
        "stray PUBREL": "70020063",
        # Sessions that are there at the next connection, by (Clean Start of the one before,
        # expiry asked for, DISCONNECT sent).
        "session": {(start, 100, bye): 1 for start in (0, 1) for bye in (0, 1)},
        # QoS of a delivered message, by (QoS published, QoS subscribed).
        "delivered": {(p, s): min(p, s) for p in range(3) for s in range(3)},
        # Whether No Local keeps a client's own message from it.
        "no local": True,
        # Whether SUBSCRIBE brings the retained message, with Retain Handling 2, 1, 1, 0, 0.
        "retained": [False, False, False, True, True],
        # Messages at QoS 1 that it sends unacknowledged to a client whose Receive Maximum is 3.
        "in flight": 3,
        # What comes of five messages too large for the client and five that are not, if the
        # client's Receive Maximum is 3.
        "after too large": [],
    },
    "embedded": {
        "connack": {0x22: 4096},
        "keep alive 0": None,
        "assigned": 39,
        "broken connects": {
            "a property twice": 0,
            "Receive Maximum 0": 0,
            "the reserved flag": 0,
            "an unknown property": None,
            "a property of CONNACK": None,
        },
        "unknown method": 0,
        "wildcard in a name": 0,
        "broken filter": 0,
        "alias": (0x94, 0x94, 0x82),
        "late expiry": None,
        "beyond Receive Maximum": {0},
        "unsuback": None,
        "nobody hears": (0, 0),
        "stray PUBREL": "",
        # The expiry does not matter, nor how the connection ended, but how it began.
        "session": {(0, expiry, bye): 1 for expiry in (None, 0, 100) for bye in (0, 1)},
        "delivered": {(p, s): s for p in range(3) for s in range(3)},
        "no local": False,
        "retained": [True, False, False, False, False],
        "in flight": 6,
        "after too large": [b"large"] * 5 + [b"small"] * 5,
    },
}
