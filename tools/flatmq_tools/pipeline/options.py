"""The options of `format("mqtt")` and their meaning. Needs no Spark.

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

from flatmq.rare.setup import checked_name
from flatmq.wire import is_filter

from .. import trust

QOS = 1
PORT = 1883
TLS_PORT = 8883
KEEP_ALIVE = 60  # s
TIMEOUT = 30  # s
LOG_LIMIT = 4 << 30  # bytes
QUIET = 2_000  # ms
PATIENCE = 120  # s
FOREVER = 0xFFFFFFFF  # of sessionExpiry
MOST = (1 << 63) - 1


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that is not allowed.

    The text names the option, the value and what is allowed; for an unknown option, the
    nearest name.
    """


class Tls(NamedTuple):
    """The files for TLS, in PEM; None for the system's authorities and no certificate."""

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


@dataclass(frozen=True)
class SinkSettings:
    """The options of one sink: what `writeStream.format("mqtt")` has."""

    host: str
    port: int
    topic: str | None
    """The topic name of all rows; None: each row has one in its column topic."""
    qos: int
    """Of rows without a column qos, or with null in it."""
    retain: bool
    """The same for the column retain."""
    client_id: str
    """"": made for each connection"""
    username: str | None
    password: str | None = field(repr=False)
    keep_alive: int
    """s"""
    timeout: int
    """s"""
    patience: int
    """s without a connection or an acknowledgement after which a batch fails; 0: never"""
    version: int
    """4 for MQTT 3.1.1, 3 for 3.1, 5 for MQTT 5"""
    tls: Tls | None = field(repr=False)
    skip: bool
    """Whether a batch goes on without the rows that cannot be published."""
    bad_rows: Path | None
    """The folder in which these are kept; None: they are only counted and reported."""
    remarks: tuple[str, ...]
    """On options that were given and have no meaning here."""


# Name, aliases (those of Bahir among them), what it is.
OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "brokerUrl": (("path",), "tcp://host:port, or ssl:// (mqtt:// and mqtts:// too)"),
    "host": ((), "of the broker, instead of brokerUrl"),
    "port": ((), f"of the broker: 1 to 65535; {PORT}, with TLS {TLS_PORT}"),
    "filters": (
        ("topic", "filter"),
        'a topic filter, or several: "a/#,b/+", or a JSON array where one has a comma',
    ),
    "qos": ((), f"maximum QoS: 0, 1 or 2; {QOS}"),
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
    "maxOffsetsPerTrigger": (("maxRowsPerTrigger",), "maximum messages in a batch; all"),
    "minPartitions": ((), "minimum parts in which a batch is read; by its size"),
    "quietMs": ((), f"`read` ends when nothing came for so many ms; {QUIET}"),
    "tls": (("ssl",), "true or false; by brokerUrl"),
    "caFile": (("ssl.trust.store",), "PEM of the authorities; the system's"),
    "certFile": (("ssl.key.store",), "PEM of our certificate"),
    "keyFile": ((), "PEM of its key, where that is not in certFile"),
    "keyPassword": (("ssl.key.store.password",), "of the key"),
    "ciphers": (("ssl.ciphers",), "as OpenSSL names them"),
    "pin": ((), "SHA-256 of the broker's public key in Base64; several separated by commas"),
}

_PLAIN = "configures Bahir's client, and there is nothing like it here"
WITHOUT_MEANING = {
    "persistence": "messages are kept in localStorage, always",
    "maxInflight": "limits what a client publishes, and the source publishes nothing",
    "autoReconnect": "the source reconnects always",
    "ssl.protocol": "TLS 1.2 or later is always used",
    "ssl.key.store.type": "certFile is PEM",
    "ssl.key.store.provider": _PLAIN,
    "ssl.trust.store.type": "caFile is PEM",
    "ssl.trust.store.password": "caFile is PEM and has none",
    "ssl.trust.store.provider": _PLAIN,
    "ssl.key.manager": _PLAIN,
    "ssl.trust.manager": _PLAIN,
}

# Of these the sink has its own.
_SOURCE_ONLY = (
    "filters", "cleanSession", "localStorage", "logLimit", "sessionExpiry",
    "maxOffsetsPerTrigger", "minPartitions", "quietMs",
)  # fmt: skip
SINK_OPTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    **{name: told for name, told in OPTIONS.items() if name not in _SOURCE_ONLY},
    "topic": ((), "the topic name of all rows; by default the column topic has it"),
    "qos": ((), f"0, 1 or 2, for rows without a column qos; {QOS}"),
    "retain": ((), "true or false, for rows without a column retain; false"),
    "clientId": (
        (),
        "beginning of the client ids, one for each part of a batch; made for each connection",
    ),
    "patience": (
        (),
        "s without a connection or an acknowledgement after which a batch fails, 0 to 65,535, 0 "
        f"for never; {PATIENCE}",
    ),
    "onBadRow": (
        (),
        "skip: a row that cannot be published is reported, and the others are published; fail: "
        "the query ends, after the others are published; skip",
    ),
    "badRows": ((), "with onBadRow = skip: a folder of the driver's machine that keeps them"),
}
# Spark hands the sink options of its own; those of Bahir's sink may stand in a program.
_OF_SPARK = ("checkpointlocation", "queryname")
_NOT_OF_SINK = ("persistence", "localStorage", "cleanSession", "maxInflight", "autoReconnect")

_SCHEMES = {"tcp": False, "mqtt": False, "ssl": True, "tls": True, "mqtts": True}
VERSIONS = {"0": 4, "5": 5, "5.0": 5, "4": 4, "3.1.1": 4, "3": 3, "3.1": 3}
"""The version in CONNECT, by what mqttVersion may be."""
_YES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class _Names:
    """The names that options may be given under, in upper or lower case."""

    def __init__(self, options: Mapping[str, tuple[tuple[str, ...], str]]) -> None:
        self.ours = list(options)
        pairs = [(alias, name) for name, (more, _) in options.items() for alias in (name, *more)]
        self.by_name = {alias.lower(): name for alias, name in pairs}
        self.spelt = {alias.lower(): alias for alias, _ in pairs}


_SOURCE = _Names(OPTIONS)
_SINK = _Names(SINK_OPTIONS)
_UNUSED = {name.lower(): f"no effect, {why}" for name, why in WITHOUT_MEANING.items()}
_UNUSED_BY_SINK = {
    name.lower(): "no effect on the sink"
    for name in (*_NOT_OF_SINK, *(name for name in WITHOUT_MEANING if name.startswith("ssl.")))
}
_CASE = {name.lower(): name for name in (*WITHOUT_MEANING, *_NOT_OF_SINK)}


def with_defaults(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the given options, and those of `defaults` that are given under no name.

    The keys of `defaults` are our names.
    """
    told = {_SOURCE.by_name.get(name.lower()) for name in given}
    return {**{name: value for name, value in defaults.items() if name not in told}, **given}


def verifying(tls: Tls | None) -> trust.Trust | None:
    """Return how these files have the broker verified; None without TLS. Raises TrustError."""
    if tls is None:
        return None
    return trust.Trust(
        ca=_path(tls.ca_file),
        cert=_path(tls.cert_file),
        key=_path(tls.key_file),
        pins=tls.pins,
        key_password=tls.key_password,
        ciphers=tls.ciphers,
        names={"ca": "caFile", "cert": "certFile", "key": "keyFile"},
    )


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None


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
    Raises OptionError.
    """
    told, remarks = _sorted(given, _SOURCE, _UNUSED)
    return told.settings(streaming, remarks)


def parse_sink(given: Mapping[str, str]) -> SinkSettings:
    """Return the settings of the sink that these options make. Raises OptionError."""
    ours = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    told, remarks = _sorted(ours, _SINK, _UNUSED_BY_SINK)
    return told.sink_settings(remarks)


def _sorted(
    given: Mapping[str, str], known: _Names, unused: Mapping[str, str]
) -> tuple[_Told, tuple[str, ...]]:
    """Return the options by our names, and remarks on those without a meaning."""
    told: dict[str, str] = {}
    names: dict[str, str] = {}
    remarks = []
    for key, value in given.items():
        low = key.lower()
        if low in unused:
            remarks.append(f"{_CASE[low]} = {value!r}: {unused[low]}")
            continue
        if low not in known.by_name:
            raise OptionError(_unknown(key, known, unused))
        name = known.by_name[low]
        if told.get(name, value) != value:
            raise OptionError(
                f"{names[name]} and {known.spelt[low]}: two values for one option, {name}"
            )
        told[name] = value
        names[name] = known.spelt[low]
    return _Told(told, names), tuple(remarks)


def _unknown(key: str, names: _Names, unused: Mapping[str, str]) -> str:
    if names is _SINK and key.lower() in _SOURCE.by_name:
        return f"{key}: an option of the source; the sink has {', '.join(names.ours)}"
    known = {**names.spelt, **{low: _CASE[low] for low in unused}}
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(names.ours)}"
    return f"{key}: no such option; {hint}"


class _Told:
    """The values of the options by our names, and the names under which they were given."""

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
            raise self._bad("brokerUrl", f"MQTT over WebSocket is not supported; {wanted}")
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
        user, password = self._credentials(user, password)
        version = self._version()
        client_id = self._client_id(23 if version == 3 else 65535)
        tls_files = self._tls(tls)
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
            session_expiry=self._expiry(version),
            version=version,
            tls=tls_files,
            max_offsets=max_offsets or None,
            min_partitions=self._number("minPartitions", 0, 1, 10_000),
            log_limit=self._number("logLimit", LOG_LIMIT, 1 << 20, MOST),
            quiet=self._number("quietMs", QUIET, 1, 86_400_000),
            remarks=remarks,
        )

    def sink_settings(self, remarks: tuple[str, ...]) -> SinkSettings:
        host, port, tls, user, password = self._address()
        if host is None:
            raise OptionError("brokerUrl is missing: tcp://host:port, or the option host")
        topic = self._told.get("topic")
        if topic is not None:
            try:
                checked_name(topic)
            except ValueError as error:
                raise self._bad("topic", str(error)) from error
        user, password = self._credentials(user, password)
        version = self._version()
        on_bad_row = self._told.get("onBadRow", "skip")
        if on_bad_row not in ("skip", "fail"):
            raise self._bad("onBadRow", "skip or fail")
        bad_rows = self._told.get("badRows")
        if bad_rows is not None and on_bad_row == "fail":
            raise self._bad("badRows", "needs onBadRow = skip")
        if bad_rows is not None and ("://" in bad_rows or not bad_rows):
            raise self._bad("badRows", "a folder on the machine of the driver")
        return SinkSettings(
            host=host,
            port=port,
            topic=topic,
            qos=self._number("qos", QOS, 0, 2),
            retain=self._flag("retain", False),
            client_id=self._client_id(12 if version == 3 else 65000),
            username=user,
            password=password,
            keep_alive=self._number("keepAlive", KEEP_ALIVE, 0, 65535),
            timeout=self._number("connectionTimeout", TIMEOUT, 0, 65535) or 65535,
            patience=self._number("patience", PATIENCE, 0, 65535),
            version=version,
            tls=self._tls(tls),
            skip=on_bad_row == "skip",
            bad_rows=None if bad_rows is None else Path(bad_rows).expanduser().absolute(),
            remarks=remarks,
        )

    def _credentials(
        self, user: str | None, password: str | None
    ) -> tuple[str | None, str | None]:
        """User and password; by default those of the URL."""
        user = self._told.get("username", user)
        password = self._told.get("password", password)
        if password is not None and user is None:
            raise OptionError("username is missing: MQTT has no password without one")
        return user, password

    def _version(self) -> int:
        version = self._told.get("mqttVersion", "4").strip()
        if version not in VERSIONS:
            raise self._bad("mqttVersion", "5, 4 (3.1.1), 3 (3.1) or 0 (the default, 4)")
        return VERSIONS[version]

    def _client_id(self, most: int) -> str:
        client_id = self._told.get("clientId", "")
        if "clientId" in self._told and not 1 <= len(client_id.encode()) <= most:
            raise self._bad("clientId", f"1 to {most} bytes")
        return client_id

    def _tls(self, tls: bool) -> Tls | None:
        files = Tls(
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
        if files.key_file and not files.cert_file:
            raise OptionError("certFile is missing: keyFile is given")
        return files if tls else None

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
