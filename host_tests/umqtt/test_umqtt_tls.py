"""ssl= and ssl_params of umqtt with flatmq: what connect() returns and raises."""

from __future__ import annotations

import json
import socket

import pytest

from flatmq_tools import broker
from scenario_child import play
from tls.secure_broker import SecureBroker
from umqtt import umqtt_stage

USED = "(0, [(b'secure', 3000)])"
# By the cases of programs/secure.py.
EXPECTED = {
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
ON_CPYTHON = {"params_that_are_no_certificate": "OSError"}


@pytest.mark.parametrize("python", umqtt_stage.PYTHONS)
def test_ssl(python: str) -> None:
    secure = SecureBroker()
    try:
        with socket.create_server((broker.LOOPBACK, 0)) as silent:
            ports = {**secure.ports, "silent": silent.getsockname()[1]}
            lines = play(
                python,
                umqtt_stage.PROGRAMS / "secure.py",
                *(broker.LOOPBACK, "0", str(secure.folder), json.dumps(ports)),
                heap=umqtt_stage.HEAP,
            )
    finally:
        secure.stop()
    expected = EXPECTED | ON_CPYTHON if python == "cpython" else EXPECTED
    assert umqtt_stage.cases(lines) == expected
