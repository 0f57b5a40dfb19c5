"""What may be told to `format("mqtt")`, and what does it mean? Needs no Spark.

Each option has a name of ours; the names that Apache Bahir's source had for it are taken too, as
are those of its options that have no meaning here.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from flatmq.wire import is_filter

from .. import trust

QOS = 1
PORT = 1883
TLS_PORT = 8883
KEEP_ALIVE = 60  # s
TIMEOUT = 30  # s
LOG_LIMIT = 4 << 30  # bytes
QUIET = 2_000  # ms
FOREVER = 0xFFFFFFFF  # of sessionExpiry
MOST = (1 << 63) - 1


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that it cannot have; the text says which,
    the value, what it may be, and for an unknown one the nearest name."""


class Tls(NamedTuple):
    """How TLS is spoken: files in PEM, None for the system's authorities and no certificate."""

    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    key_password: str | None
    ciphers: str | None
    pins: tuple[bytes, ...] = ()
    """SHA-256 of public keys, one of which the broker must have."""


@dataclass(frozen=True)
class Settings:
    """The options of one source."""

    host: str | None
    """None: nothing is received, what the log has is read (`read` only)."""
    port: int
    filters: tuple[str, ...]
    qos: int
    client_id: str
    """"": by the log's identity"""
    clean_session: bool
    username: str | None
    password: str | None = field(repr=False)
    folder: Path
    """Of the log."""
    keep_alive: int
    """s"""
    timeout: int
    """s"""
    session_expiry: int | None
    """s for which the broker keeps the session, in MQTT 5; None: forever"""
    version: int
    """4 for MQTT 3.1.1, 3 for 3.1, 5 for MQTT 5"""
    tls: Tls | None = field(repr=False)
    max_offsets: int | None
    """Messages in a batch; None: all that there are."""
    min_partitions: int
    """0: as many as the processors can use."""
    log_limit: int
    """bytes"""
    quiet: int
    """ms without a message after which `read` has received all."""
    remarks: tuple[str, ...]
    """On options that were given and have no meaning here."""


# Name, aliases (those of Bahir among them), what it is.
OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "brokerUrl": (("path",), "tcp://host:port, or ssl:// (mqtt:// and mqtts:// too)"),
    "host": ((), "of the broker, in place of brokerUrl"),
    "port": ((), f"of the broker: 1 to 65535; {PORT}, with TLS {TLS_PORT}"),
    "filters": (
        ("topic", "filter"),
        'a topic filter, or several: "a/#,b/+", or a JSON array where one has a comma',
    ),
    "qos": ((), f"0, 1 or 2, at the most; {QOS}"),
    "clientId": ((), "1 to 65,535 bytes, its own for each query; by the log"),
    "cleanSession": ((), "true: the broker keeps nothing while the query is away; false"),
    "username": (("user",), "for the broker"),
    "password": ((), "for the broker"),
    "localStorage": (
        ("log",),
        "folder of the log, on the machine of the driver; one in the home folder",
    ),
    "logLimit": ((), f"bytes of the log, above which nothing is received; {LOG_LIMIT}"),
    "keepAlive": ((), f"s, 0 to 65,535, 0 turns it off; {KEEP_ALIVE}"),
    "connectionTimeout": ((), f"s, 0 to 65,535, 0 for the longest; {TIMEOUT}"),
    "mqttVersion": ((), "5, 4 or 3.1.1, 3 or 3.1, 0 for the default; 4"),
    "sessionExpiry": (
        (),
        "s for which the broker keeps messages while the query is away, with mqttVersion 5: 0 to "
        f"{FOREVER}, which is forever; forever",
    ),
    "maxOffsetsPerTrigger": (("maxRowsPerTrigger",), "messages in a batch at the most; all"),
    "minPartitions": ((), "parts in which a batch is read at the least; by its size"),
    "quietMs": ((), f"`read` ends when nothing came for so many ms; {QUIET}"),
    "tls": (("ssl",), "true or false; by brokerUrl"),
    "caFile": (("ssl.trust.store",), "PEM of the authorities; the system's"),
    "certFile": (("ssl.key.store",), "PEM of our certificate"),
    "keyFile": ((), "PEM of its key, where that is not in certFile"),
    "keyPassword": (("ssl.key.store.password",), "of the key"),
    "ciphers": (("ssl.ciphers",), "as OpenSSL names them"),
    "pin": ((), "SHA-256 of the broker's public key in Base64; several separated by commas"),
}

_PLAIN = "tells how Bahir's client works, and there is nothing like it here"
WITHOUT_MEANING = {
    "persistence": "messages are kept in localStorage, always",
    "maxInflight": "limits what a client publishes, and the source publishes nothing",
    "autoReconnect": "the source reconnects always",
    "ssl.protocol": "TLS 1.2 or later is spoken, always",
    "ssl.key.store.type": "certFile is PEM",
    "ssl.key.store.provider": _PLAIN,
    "ssl.trust.store.type": "caFile is PEM",
    "ssl.trust.store.password": "caFile is PEM and has none",
    "ssl.trust.store.provider": _PLAIN,
    "ssl.key.manager": _PLAIN,
    "ssl.trust.manager": _PLAIN,
}

_SCHEMES = {"tcp": False, "mqtt": False, "ssl": True, "tls": True, "mqtts": True}
VERSIONS = {"0": 4, "5": 5, "5.0": 5, "4": 4, "3.1.1": 4, "3": 3, "3.1": 3}
"""The version in CONNECT, by what mqttVersion may be."""
_YES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_BY_NAME = {alias.lower(): name for name, (more, _) in OPTIONS.items() for alias in (name, *more)}
_SPELT = {alias.lower(): alias for name, (more, _) in OPTIONS.items() for alias in (name, *more)}
_UNUSED = {name.lower(): name for name in WITHOUT_MEANING}


def with_defaults(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """The options that are given, and those of `defaults`, by our names, that are given under none
    of their names."""
    told = {_BY_NAME.get(name.lower()) for name in given}
    return {**{name: value for name, value in defaults.items() if name not in told}, **given}


def of_trust(how: trust.Trust | None) -> dict[str, str]:
    """The options that say the same."""
    if how is None:
        return {}
    files = {"caFile": how.ca, "certFile": how.cert, "keyFile": how.key}
    told = {name: str(file) for name, file in files.items() if file}
    if how.pins:
        told["pin"] = ",".join(base64.b64encode(pin).decode() for pin in how.pins)
    return {"tls": "true", **told}


def parse(given: Mapping[str, str], *, streaming: bool = True) -> Settings:
    """The settings that these options make; upper and lower case are the same in their names.

    `streaming` False is for `read`, which needs no broker where localStorage names a log.
    OptionError.
    """
    told: dict[str, str] = {}
    names: dict[str, str] = {}
    remarks = []
    for key, value in given.items():
        low = key.lower()
        if low in _UNUSED:
            remarks.append(
                f"{_UNUSED[low]} = {value!r}: no effect, {WITHOUT_MEANING[_UNUSED[low]]}"
            )
            continue
        if low not in _BY_NAME:
            raise OptionError(_unknown(key))
        name = _BY_NAME[low]
        if told.get(name, value) != value:
            raise OptionError(
                f"{names[name]} and {_SPELT[low]}: two values for one option, {name}"
            )
        told[name] = value
        names[name] = _SPELT[low]
    return _Told(told, names).settings(streaming, tuple(remarks))


def _unknown(key: str) -> str:
    known = {**_SPELT, **_UNUSED}
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(OPTIONS)}"
    return f"{key}: no such option; {hint}"


class _Told:
    """What was told, by our names, and the names under which it was."""

    def __init__(self, told: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._told = told
        self._names = names

    def _bad(self, name: str, allowed: str) -> OptionError:
        value = "***" if name.lower().endswith("password") else repr(self._told[name])
        return OptionError(f"{self._names[name]} = {value}: {allowed}")

    def _number(self, name: str, default: int, low: int, high: int) -> int:
        text = self._told.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"\s*[+-]?\d{1,20}\s*", text) or not low <= int(text) <= high:
            raise self._bad(name, f"a whole number from {low} to {high}")
        return int(text)

    def _flag(self, name: str, default: bool) -> bool:
        text = self._told.get(name)
        if text is None:
            return default
        if text.strip().lower() not in _YES:
            raise self._bad(name, "true or false")
        return _YES[text.strip().lower()]

    def _file(self, name: str) -> str | None:
        path = self._told.get(name)
        if path is None:
            return None
        try:
            with Path(path).open("rb") as file:
                head = file.read(1 << 16)
        except OSError as error:
            raise self._bad(name, f"cannot be read: {error.strerror}") from error
        if b"-----BEGIN " not in head:
            raise self._bad(
                name,
                "not a file in PEM; of a Java key store `keytool -importkeystore -deststoretype "
                "PKCS12` and then `openssl pkcs12 -nodes` make one",
            )
        return path

    def _pins(self) -> tuple[bytes, ...]:
        if "pin" not in self._told:
            return ()
        try:
            return trust.pins(self._told["pin"], self._names["pin"])
        except trust.TrustError as error:
            raise OptionError(str(error)) from error

    def _filters(self) -> tuple[str, ...]:
        text = self._told.get("filters")
        if text is None:
            return ()
        if text.lstrip().startswith("["):
            try:
                found = json.loads(text)
            except ValueError as error:
                raise self._bad("filters", f"not a JSON array: {error}") from error
        else:
            found = [one.strip() for one in text.split(",")]
        for one in found:
            raw = one.encode() if isinstance(one, str) else b""
            if len(raw) > 65535 or not is_filter(raw, 0, len(raw)):
                raise self._bad(
                    "filters",
                    f'{one!r} is no topic filter: 1 to 65,535 bytes, "+" and "#" as a whole '
                    'level, "#" as the last',
                )
        if not found:
            raise self._bad("filters", "at least one topic filter")
        return tuple(found)

    def _address(self) -> tuple[str | None, int, bool, str | None, str | None]:
        """Host, port, whether TLS, and the user and password that are in the URL."""
        url = self._told.get("brokerUrl")
        if url is None:
            tls = self._flag("tls", False)
            port = self._number("port", TLS_PORT if tls else PORT, 1, 65535)
            host = self._told.get("host")
            if host is not None and not re.fullmatch(r"[^\s/:]+|[0-9A-Fa-f:.%]+", host):
                raise self._bad("host", "a name or an address, without scheme and port")
            return host, port, tls, None, None
        for name in ("host", "port"):
            if name in self._told:
                raise OptionError(
                    f"{self._names['brokerUrl']} and {self._names[name]}: give one of them"
                )
        wanted = "tcp://host:port or ssl://host:port, with a port of 1 to 65535"
        try:
            parts = urlsplit(url if "://" in url else f"tcp://{url}")
            port_told = parts.port
        except ValueError as error:
            raise self._bad("brokerUrl", wanted) from error
        if parts.scheme in ("ws", "wss"):
            raise self._bad("brokerUrl", f"MQTT over WebSocket is not spoken; {wanted}")
        if parts.scheme not in _SCHEMES or not parts.hostname or parts.path.strip("/"):
            raise self._bad("brokerUrl", wanted)
        if port_told == 0 or parts.query or parts.fragment:
            raise self._bad("brokerUrl", wanted)
        tls = self._flag("tls", _SCHEMES[parts.scheme])
        if _SCHEMES[parts.scheme] and not tls:
            raise self._bad("tls", f"the URL says {parts.scheme}://")
        user = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else unquote(parts.password)
        return parts.hostname, port_told or (TLS_PORT if tls else PORT), tls, user, password

    def settings(self, streaming: bool, remarks: tuple[str, ...]) -> Settings:
        host, port, tls, user, password = self._address()
        filters = self._filters()
        if host is None and (streaming or "localStorage" not in self._told):
            raise OptionError("brokerUrl is missing: tcp://host:port, or the option host")
        if host is not None and not filters:
            raise OptionError("topic is missing: a topic filter, or filters for several")
        user = self._told.get("username", user)
        password = self._told.get("password", password)
        if password is not None and user is None:
            raise OptionError("username is missing: MQTT has no password without one")
        version = self._told.get("mqttVersion", "4").strip()
        if version not in VERSIONS:
            raise self._bad("mqttVersion", "5, 4 (3.1.1), 3 (3.1) or 0 (the default, 4)")
        client_id = self._told.get("clientId", "")
        most = 23 if VERSIONS[version] == 3 else 65535
        if "clientId" in self._told and not 1 <= len(client_id.encode()) <= most:
            raise self._bad("clientId", f"1 to {most} bytes")
        tls_files = Tls(
            self._file("caFile"),
            self._file("certFile"),
            self._file("keyFile"),
            self._told.get("keyPassword"),
            self._told.get("ciphers"),
            self._pins(),
        )
        if not tls:
            for name in ("caFile", "certFile", "keyFile", "keyPassword", "ciphers", "pin"):
                if name in self._told:
                    raise OptionError(f"{self._names[name]}: needs TLS: ssl:// or tls = true")
        if tls_files.key_file and not tls_files.cert_file:
            raise OptionError("certFile is missing: keyFile is given")
        max_offsets = self._number("maxOffsetsPerTrigger", 0, 1, MOST)
        return Settings(
            host=host,
            port=port,
            filters=filters,
            qos=self._number("qos", QOS, 0, 2),
            client_id=client_id,
            clean_session=self._flag("cleanSession", False),
            username=user,
            password=password,
            folder=self._folder(host, port, user, filters, client_id),
            keep_alive=self._number("keepAlive", KEEP_ALIVE, 0, 65535),
            timeout=self._number("connectionTimeout", TIMEOUT, 0, 65535) or 65535,
            session_expiry=self._expiry(VERSIONS[version]),
            version=VERSIONS[version],
            tls=tls_files if tls else None,
            max_offsets=max_offsets or None,
            min_partitions=self._number("minPartitions", 0, 1, 10_000),
            log_limit=self._number("logLimit", LOG_LIMIT, 1 << 20, MOST),
            quiet=self._number("quietMs", QUIET, 1, 86_400_000),
            remarks=remarks,
        )

    def _expiry(self, version: int) -> int | None:
        if "sessionExpiry" not in self._told:
            return None
        if version != 5:
            raise self._bad("sessionExpiry", "needs mqttVersion 5")
        if self._flag("cleanSession", False):
            raise self._bad("sessionExpiry", "with cleanSession the broker keeps nothing")
        return self._number("sessionExpiry", FOREVER, 0, FOREVER)

    def _folder(self, *known: object) -> Path:
        told = self._told.get("localStorage")
        if told is not None:
            folder = Path(told.removeprefix("file://"))
            if "://" in str(told).removeprefix("file://") or not told:
                raise self._bad("localStorage", "a folder on the machine of the driver")
            return folder.expanduser().absolute()
        # The same in each run, or what the broker and the log keep for the query would be lost.
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        name = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
        return state / "flatmq" / "mqtt" / name
