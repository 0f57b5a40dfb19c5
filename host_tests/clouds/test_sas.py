"""SAS tokens are those of another implementation, on both interpreters."""

import base64
import datetime
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from conftest import PYTHONS, library, printed
from flatmq_rigs import webassembly

NARROW = "micropython, 32 bits"  # as a board, where a time is more than a small int
EACH = (*PYTHONS, NARROW)

# Prints, as JSON, what each of a list of expressions is at a time in UTC.
PROGRAM = """
import json
from flatmq import MQTTError, sas
from flatmq.sas import SAS

class Clock:
    def gmtime(self):
        return now

sas.time = Clock()
found = []
for now, text in json.loads({tasks!r}):
    try:
        found.append(eval(text))
    except (ValueError, TypeError, MQTTError) as error:
        found.append([type(error).__name__, str(error), getattr(error, "kind", None)])
print(json.dumps(found))
"""

NOW = (2026, 11, 22, 14, 5, 9, 6, 326, 0)
HUB = "contoso.azure-devices.net"


def run(python: str, *tasks: tuple[tuple[int, ...], str]) -> list[Any]:
    program = PROGRAM.format(tasks=json.dumps(tasks))
    if python == NARROW:
        if webassembly.find() is None:
            pytest.fail(webassembly.MISSING)
        found = json.loads("".join(webassembly.run([program], {"/lib": library(python)})))
        assert isinstance(found, list)
        return found
    found = json.loads(printed(python, "192k", "-c", program, folders=[library(python)]))
    assert isinstance(found, list)
    return found


def expected(uri: str, key: bytes, expiry: int, policy: str | None = None) -> str:
    """The token by the standard library's HMAC and quoting."""
    encoded = quote(uri, safe="")
    digest = hmac.new(key, f"{encoded}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(digest), safe="")
    more = f"&skn={quote(policy, safe='')}" if policy else ""
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expiry}{more}"


def unix(now: tuple[int, ...]) -> int:
    return int(datetime.datetime(*now[:6], tzinfo=datetime.timezone.utc).timestamp())


KEYS = [bytes(range(n)) for n in (1, 2, 32, 63, 64, 65, 100)]
URIS = [
    f"{HUB}/devices/pico-1",
    f"{HUB}/devices/a.b_c~d:e%f+g*h?i!j(k)l,m=n@o$p'q#r",
    f"{HUB}/devices/Zähler",
]


@pytest.mark.parametrize("python", EACH)
def test_tokens_for_keys_and_resources(python: str) -> None:
    cases = [(uri, key) for uri in URIS for key in KEYS]
    found = run(
        python,
        *((NOW, f"SAS({uri!r}, {base64.b64encode(key).decode()!r})()") for uri, key in cases),
    )
    assert found == [expected(uri, key, unix(NOW) + 3600) for uri, key in cases]
    assert any("%2B" in token for token in found)  # a signature with what must be encoded


@pytest.mark.parametrize("python", EACH)
def test_the_expiry_in_each_month_and_on_leap_days(python: str) -> None:
    times = [
        *((2026, month, 1, 0, 0, 0, 0, 0, 0) for month in range(1, 13)),
        (2026, 12, 31, 23, 59, 59, 0, 0, 0),
        (2028, 2, 28, 23, 59, 59, 0, 0, 0),
        (2028, 2, 29, 12, 0, 0, 0, 0, 0),
        (2028, 3, 1, 0, 0, 0, 0, 0, 0),
        (2040, 6, 15, 1, 2, 3, 0, 0, 0),  # past 31 bits
    ]
    policy = (NOW, f"SAS({HUB!r}, b'c2VjcmV0', 'iot hub', 1)()")
    token, *found = run(python, policy, *((now, "SAS('x', 'c2VjcmV0')()") for now in times))
    assert token == expected(HUB, b"secret", unix(NOW) + 60, "iot hub")
    assert [int(parse_qs(each)["se"][0]) for each in found] == [unix(now) + 3600 for now in times]


@pytest.mark.parametrize("python", EACH)
def test_a_clock_that_was_not_set(python: str) -> None:
    years = (1970, 2000, 2021, 2025)
    tasks = [((year, 1, 2, 0, 0, 0, 0, 0, 0), "SAS('x', 'c2VjcmV0')()") for year in years]
    for year, (kind, text, cause) in zip(years, run(python, *tasks), strict=True):
        assert (kind, cause) == ("MQTTError", "resource")
        assert f"this clock shows {year}-01-02: set it first, with ntptime.settime()" in text


# The binascii of the port with 32 bits is in Python, and raises errors of its own.
@pytest.mark.parametrize("python", PYTHONS)
def test_an_error_names_the_argument_and_hides_the_key(python: str) -> None:
    tasks = {
        "SAS('', 'c2VjcmV0')": "resource_uri must be str and not empty, not ''",
        "SAS(b'x', 'c2VjcmV0')": "resource_uri must be str and not empty, not b'x'",
        "SAS('x', 'c2VjcmV')": "key must be base64, as the portal shows it",
        "SAS('x', '')": "key must be base64, as the portal shows it",
        "SAS('x', None)": "key must be str or bytes",
        "SAS('x', 'c2VjcmV0', '')": "policy must be None or str and not empty, not ''",
        "SAS('x', 'c2VjcmV0', None, 0)": "minutes must be 1 to 525600, not 0",
        "SAS('x', 'c2VjcmV0', minutes=525601)": "minutes must be 1 to 525600, not 525601",
        "SAS('x', 'c2VjcmV0', minutes=1.5)": "minutes must be 1 to 525600, not 1.5",
    }
    found = run(python, *((NOW, text) for text in tasks))
    assert [text for _, text, _ in found] == list(tasks.values())
    assert {kind for kind, _, _ in found} == {"ValueError", "TypeError"}
