"""Return values and exceptions, call by call, with umqtt and with flatmq.

There is also what is better with flatmq, or different.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from umqtt import umqtt_stage
from umqtt.umqtt_stage import PROGRAMS

# What both do, by the cases of programs/calls.py.
SAME = {
    "accepted_with_a_password": "0",
    "attributes": "(['a', 'host', 1883, None, None, 0, False], [None, None, 0, None, None, 0])",
    "bad_wills": "(('AssertionError', None), ('AssertionError', None))",
    "callback_that_publishes": "[(b'question', b'why'), (b'answer', b'why')]",
    "callback_that_raises": "(('ValueError', None), False, [b'bad', b'good'])",
    "check_msg_when_lost": "OSError",
    "client_id_as_bytes": "0",
    "connect": "(0, True)",
    "connect_twice": "None",
    "connect_when_lost": "(('OSError', 0), False, [(b't', b'1')])",
    "connect_with_a_timeout": "0",
    "disconnect": "None",
    "echo": "([None, 48, None], [(b'echo/a', b'0'), (b'echo/b', b'1')])",
    "errno_of_no_broker": "111",
    "identifiers": "(True, True)",
    "keepalive": "0",
    "large_messages": "True",
    "messages_one_by_one": "([1, 2, 3, 4, 5], [b'0', b'1', b'2', b'3', b'4'], None)",
    "named_arguments": "['a', 'host', 2, b'u', b'p', 9]",
    "no_broker": "OSError",
    "nothing_there": "(None, None)",
    "one_exception": "(True, (5,))",
    "overlapping_subscriptions": "True",
    "ping": "[None, None, None, None, None, None, '48', 'None']",
    "ports": "(1883, 8883)",
    "positional_arguments": "[b'a', 'host', 1, 'u', 'p', 5, True, {'k': 1}]",
    "publish": "[None, None, None, None, None, None]",
    "publish_when_lost": "OSError",
    "publish_wrong_type": "('TypeError', None)",
    "refused": "('MQTTException', (5,))",
    "retained": "[(b'kept', b'value')]",
    "robust_attempts": "(None, None, None, 3)",
    "robust_class": "(True, 2, False, None)",
    "robust_delays": "(0, [1, 2, 3])",
    "robust_log": "None",
    "session_present": "[0, 0, 1, 0]",
    "set_callback": "(None, True)",
    "set_last_will": "(None, 't', b'm', True, 1)",
    "subscribe_without_a_callback": "AssertionError",
    "unknown_host": "OSError",
    "unsubscribe": "(None, None, [])",
    "wait_msg_when_lost": "-1",
}
# Of these, what the umqtt of the package index does not do yet: umqtt_stage says how to run them.
NEW = {
    "callback_that_raises",
    "connect_when_lost",
    "connect_with_a_timeout",
    "echo",
    "ping",
    "robust_attempts",
    "unsubscribe",
}
# What only flatmq does, by the cases of programs/better.py.
BETTER = {
    "a_callback_may_disconnect": "(48, 'OSError')",
    "a_callback_may_do_everything": "([b'go', b'1', b'xxxx', b'3', b'done'], None)",
    "a_callback_that_reconnects": "[b'1', b'2']",
    "a_malformed_connack": "OSError",
    "a_malformed_packet": "OSError",
    "a_message_that_does_not_fit": "('MemoryError', [b'fits'])",
    "a_message_that_timed_out_is_not_sent_later": "([True], [b'2'])",
    "a_publish_that_a_callback_cuts_off_fails": "('OSError', None)",
    "a_refused_subscription": "([(128,)], [b'echo'])",
    "a_subscription_made_again_gets_retained_messages_once": "[b'kept', b'end', b'']",
    "a_timeout_of_the_socket_does_no_harm": "(None, [b'1'])",
    "acknowledged_after_the_callback": "[b'1', b'1']",
    "an_oserror_of_the_callback_does_not_reconnect": "([b'bad', b'good'], [(False, True)])",
    "an_unsubscribed_topic_stays_so": "[b'2']",
    "attributes_count_at_connect": "(['OSError', (5,), 0], [b'1'])",
    "bad_arguments": "({'ValueError'}, None)",
    "connect_to_a_silent_broker": "True",
    "not_connected": "(10, 1, None)",
    "overlapping_subscriptions_call_back_once_per_packet": "[b'echo']",
    "ping_a_silent_broker": "True",
    "publish_a_large_message_to_a_broker_that_reads_nothing": "(True, 3000)",
    "publish_at_qos_2_to_a_silent_broker": "True",
    "publish_to_a_silent_broker": "True",
    "qos_2": "(True, 48, [b'2', b'end'])",
    "subscribe_at_a_silent_broker": "(True, True)",
    "subscriptions_outlive_a_reconnect": "[b'1']",
    "the_socket_can_be_polled": "([False, True], [b'1'], False)",
    "unsubscribe_at_a_silent_broker": "True",
    "wait_for_a_silent_broker": "True",
}
# A desk has memory enough.
ON_CPYTHON = {
    "a_message_that_does_not_fit": "does not happen",
}


@functools.cache
def _seen(program: str, which: str, python: str) -> dict[str, str]:
    """Return what each case of a program returned."""
    text = (PROGRAMS / f"{program}.py").read_text()
    if which == "flatmq":
        text = text.replace("from umqtt.simple import", "from flatmq.umqtt import")
        text = text.replace("from umqtt.robust import", "from flatmq.umqtt_robust import")
    with tempfile.TemporaryDirectory(prefix="flatmq-umqtt-") as folder:
        source = Path(folder, f"{program}.py")
        source.write_text(text)
        lines = umqtt_stage.run(source, which, python).printed
    cases = [line.split(" ", 2) for line in lines if line.startswith("case ")]
    return {name: result for _, name, result in cases}


@pytest.mark.parametrize("case", [c for c in SAME if c not in NEW or umqtt_stage.is_current()])
def test_umqtt_does_it(case: str) -> None:
    assert _seen("calls", "umqtt", "micropython")[case] == SAME[case]


@pytest.mark.parametrize("python", ["micropython", "cpython"])
@pytest.mark.parametrize("case", SAME)
def test_flatmq_does_the_same(case: str, python: str) -> None:
    assert _seen("calls", "flatmq", python)[case] == SAME[case]


@pytest.mark.parametrize("python", ["micropython", "cpython"])
@pytest.mark.parametrize("case", BETTER)
def test_flatmq_does_better(case: str, python: str) -> None:
    expected = ON_CPYTHON.get(case, BETTER[case]) if python == "cpython" else BETTER[case]
    assert _seen("better", "flatmq", python)[case] == expected


def test_every_case_is_expected() -> None:
    assert set(_seen("calls", "flatmq", "micropython")) == set(SAME)
    assert set(_seen("better", "flatmq", "micropython")) == set(BETTER)
