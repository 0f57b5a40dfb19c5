"""ssl= and ssl_params of umqtt with flatmq: what connect() returns and raises."""

from __future__ import annotations

import functools
import json
import socket

import pytest

from conftest import interpreter_command
from flatmq_tools import broker, interpreter
from scenario_child import converse
from tls.secure_broker import PYTHONS, SecureBroker
from umqtt import umqtt_stage

USED = "(0, [(b'secure', 3000)])"
# By the cases of programs/secure.py.
EXPECTED = {
    "a_broker_that_does_not_answer": "True",
    "context": USED,
    "context_and_a_port_without_tls": "OSError",
    "context_and_an_old_certificate": "ValueError",
    "context_and_another_name": "ValueError",
    "context_of_another_authority": "ValueError",
    "context_with_a_certificate": USED,
    "context_without_a_certificate": "OSError",
    "params_of_another_authority": "ValueError",
    "params_that_are_no_certificate": "ValueError",
    "params_that_are_put_right": (
        f"['TypeError', 'ValueError', 'ValueError', 'TypeError', True, {USED}]"
    ),
    "params_that_are_unknown": "TypeError",
    "params_that_verify": USED,
    "params_with_a_certificate": f"({USED}, 'OSError')",
    "params_with_another_name": "ValueError",
    "params_with_the_name": USED,
    "params_without_an_authority": "ValueError",
    "the_text_of_a_certificate": "True",
    "true_verifies_nothing": f"({USED}, {USED})",
}
# Python has ssl.SSLError for a file that is no certificate.
ON_CPYTHON = {"params_that_are_no_certificate": "OSError"}


@functools.cache
def _seen(python: str) -> dict[str, str]:
    """Return what each case returned."""
    secure = SecureBroker()
    try:
        with socket.create_server((broker.LOOPBACK, 0)) as silent:
            ports = {**secure.ports, "silent": silent.getsockname()[1]}
            program = umqtt_stage.PROGRAMS / "secure.py"
            lines = converse(
                [
                    *interpreter_command(python, umqtt_stage.HEAP),
                    *(str(program), broker.LOOPBACK, "0", str(secure.folder), json.dumps(ports)),
                ],
                interpreter.environment(*umqtt_stage.folders("flatmq", python), program.parent),
                umqtt_stage.DEADLINE,
                lambda words: None,
            )
    finally:
        secure.stop()
    cases = [line.split(" ", 2) for line in lines if line.startswith("case ")]
    return {name: result for _, name, result in cases}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("case", EXPECTED)
def test_ssl(case: str, python: str) -> None:
    expected = ON_CPYTHON.get(case, EXPECTED[case]) if python == "cpython" else EXPECTED[case]
    assert _seen(python)[case] == expected


@pytest.mark.parametrize("python", PYTHONS)
def test_every_case_is_expected(python: str) -> None:
    assert set(_seen(python)) == set(EXPECTED)
