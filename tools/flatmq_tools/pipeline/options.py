"""The options of `format("mqtt")` and their meaning. Needs no Spark.

Each option is a field of a class, and has its name, as in keepAlive. The names that Apache Bahir's
source had for it are taken too, as are those of its options that have no meaning here.
"""

import base64
import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from flatmq.rare import checks
from flatmq.wire import is_filter

from ..trust import Trust, TrustError, pins

_MOST = (1 << 63) - 1
_SCHEMES = {"tcp": False, "mqtt": False, "ssl": True, "tls": True, "mqtts": True}
VERSIONS = {"0": 4, "5": 5, "5.0": 5, "4": 4, "3.1.1": 4, "3": 3, "3.1": 3}
"""The version in CONNECT, by what mqttVersion may be."""
_YES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class OptionError(ValueError):
    """An option is unknown, missing, or has a value that is not allowed.

    The text names the option, the value and what is allowed; for an unknown option, the
    nearest name.
    """


# Readers of a text: each raises ValueError with what is allowed.


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"\s*[+-]?\d{1,20}\s*", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return read


def _timeout(text: str) -> int:
    return _whole(0, 65_535)(text) or 65_535


def _one_of(values: Mapping[str, Any], rule: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text.strip().lower() not in values:
            raise ValueError(rule)
        return values[text.strip().lower()]

    return read


_flag = _one_of(_YES, "true or false")


def _url(text: str) -> SplitResult:
    wanted = "tcp://host:port or ssl://host:port, with a port of 1 to 65535"
    try:
        parts = urlsplit(text if "://" in text else f"tcp://{text}")
        port = parts.port
    except ValueError as error:
        raise ValueError(wanted) from error
    if parts.scheme in ("ws", "wss"):
        raise ValueError(f"MQTT over WebSocket is not supported; {wanted}")
    bad = parts.path.strip("/") or parts.query or parts.fragment or port == 0
    if bad or parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError(wanted)
    return parts


def _host(text: str) -> str:
    if not re.fullmatch(r"[^\s/:]+|[0-9A-Fa-f:.%]+", text):
        raise ValueError("a name or an address, without scheme and port")
    return text


def _pem(name: str) -> Path:
    try:
        with Path(name).open("rb") as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    if b"-----BEGIN " not in head:
        raise ValueError(
            "not a file in PEM; of a Java key store `keytool -importkeystore -deststoretype "
            "PKCS12` and then `openssl pkcs12 -nodes` make one"
        )
    return Path(name)


def _filters(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a JSON array: {error}") from error
    else:
        found = [one.strip() for one in text.split(",")]
    for one in found:
        raw = one.encode() if isinstance(one, str) else b""
        if len(raw) > 65535 or not is_filter(raw, 0, len(raw)):
            raise ValueError(
                f'{one!r} is no topic filter: 1 to 65,535 bytes, "+" and "#" as a whole '
                'level, "#" as the last'
            )
    if not found:
        raise ValueError("at least one topic filter")
    return tuple(found)


def _folder(text: str) -> Path:
    name = text.removeprefix("file://")
    if not text or "://" in name:
        raise ValueError("a folder on the machine of the driver")
    return Path(name).expanduser().absolute()


def _topic(text: str) -> str:
    checks.name(text)
    return text


_Text = Annotated[str | None, str]
_Pem = Annotated[Path | None, _pem]


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The options for a connection, which source and sink share.

    An option is a field with the function that reads its text, and further names.
    """

    broker_url: Annotated[SplitResult | None, _url, "path"] = field(default=None, repr=False)
    host: Annotated[str | None, _host] = None
    """None: nothing is received, what the log has is read (`read` only)."""
    port: Annotated[int, _whole(1, 65535)] = 0
    """By default 1883, with TLS 8883."""
    username: Annotated[_Text, "user"] = None
    password: _Text = field(default=None, repr=False)
    qos: Annotated[int, _whole(0, 2)] = 1
    client_id: Annotated[str, str] = ""
    keep_alive: Annotated[int, _whole(0, 65_535)] = 60
    """s"""
    connection_timeout: Annotated[int, _timeout] = 30
    """s"""
    mqtt_version: Annotated[
        int, _one_of(VERSIONS, "5, 4 (3.1.1), 3 (3.1) or 0 (the default, 4)")
    ] = 4
    """4 for MQTT 3.1.1, 3 for 3.1, 5 for MQTT 5"""
    tls: Annotated[bool, _flag, "ssl"] = False
    ca_file: Annotated[_Pem, "ssl.trust.store"] = None
    cert_file: Annotated[_Pem, "ssl.key.store"] = None
    key_file: _Pem = None
    key_password: Annotated[_Text, "ssl.key.store.password"] = field(default=None, repr=False)
    ciphers: Annotated[_Text, "ssl.ciphers"] = None
    pin: Annotated[tuple[bytes, ...], lambda text: pins(text, "pin")] = ()
    remarks: tuple[str, ...] = ()
    """On options that were given and have no meaning here."""

    @property
    def trust(self) -> Trust | None:
        """The way to verify the broker; None without TLS."""
        if not self.tls:
            return None
        names = {"ca": "caFile", "cert": "certFile", "key": "keyFile"}
        return Trust(
            self.ca_file, self.cert_file, self.key_file, self.pin, self.key_password,
            self.ciphers, names,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Settings(Connection):
    """The options of one source."""

    filters: Annotated[tuple[str, ...], _filters, "topic", "filter"] = ()
    clean_session: Annotated[bool, _flag] = False
    session_expiry: Annotated[int | None, _whole(0, 0xFFFFFFFF)] = None
    """s for which the broker keeps the session, in MQTT 5; None: forever"""
    local_storage: Annotated[Path, _folder, "log"]
    """Of the log."""
    log_limit: Annotated[int, _whole(1 << 20, _MOST)] = 4 << 30
    """bytes"""
    max_offsets_per_trigger: Annotated[int | None, _whole(1, _MOST), "maxRowsPerTrigger"] = None
    """Messages in a batch; None: all that there are."""
    min_partitions: Annotated[int, _whole(1, 10_000)] = 0
    """0: as many as the processors can use."""
    quiet_ms: Annotated[int, _whole(1, 86_400_000)] = 2_000
    """ms without a message after which `read` has received all."""


@dataclass(frozen=True, kw_only=True)
class SinkSettings(Connection):
    """The options of one sink: what `writeStream.format("mqtt")` has."""

    topic: Annotated[str | None, _topic] = None
    """The topic name of all rows; None: each row has one in its column topic."""
    retain: Annotated[bool, _flag] = False
    """Of rows without a column retain, or with null in it."""
    patience: Annotated[int, _whole(0, 65_535)] = 120
    """s without a connection or an acknowledgement after which a batch fails; 0: never"""
    on_bad_row: Annotated[str, _one_of({"skip": "skip", "fail": "fail"}, "skip or fail")] = "skip"
    """skip: a batch goes on without the rows that cannot be published; fail: the query ends."""
    bad_rows: Annotated[Path | None, _folder] = None
    """The folder in which these are kept; None: they are only counted and reported."""


class _Option(NamedTuple):
    """A name of an option, the name of ours, the field, and the function that reads its text."""

    name: str
    ours: str
    field: str
    read: Callable[[str], Any]


def _options(kind: type[Connection]) -> Iterator[_Option]:
    for one in fields(kind):
        if hasattr(one.type, "__metadata__"):
            read, *more = one.type.__metadata__
            head, *rest = one.name.split("_")
            ours = head + "".join(word.capitalize() for word in rest)
            yield from (_Option(name, ours, one.name, read) for name in (ours, *more))


_KNOWN: dict[type[Connection], dict[str, _Option]] = {
    kind: {option.name.lower(): option for option in _options(kind)}
    for kind in (Settings, SinkSettings)
}

_PLAIN = "configures Bahir's client, and there is nothing like it here"
_WITHOUT_MEANING = {
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
_UNUSED: dict[type[Connection], dict[str, str]] = {
    Settings: {name: f"no effect, {why}" for name, why in _WITHOUT_MEANING.items()},
    SinkSettings: dict.fromkeys(
        (*_WITHOUT_MEANING, "localStorage", "cleanSession"), "no effect on the sink"
    ),
}
_OF_SPARK = ("checkpointlocation", "queryname")  # options of its own, which it hands the sink


def with_defaults(given: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the given options, and those of `defaults` that are given under no name.

    The keys of `defaults` are our names.
    """
    known = _KNOWN[Settings]
    found = {known[name.lower()].ours for name in given if name.lower() in known}
    return {**{name: text for name, text in defaults.items() if name not in found}, **given}


def of_trust(how: Trust | None) -> dict[str, str]:
    """The options that say the same."""
    if how is None:
        return {}
    files = {"caFile": how.ca, "certFile": how.cert, "keyFile": how.key}
    found = {name: str(file) for name, file in files.items() if file}
    if how.pins:
        found["pin"] = ",".join(base64.b64encode(pin).decode() for pin in how.pins)
    return {"tls": "true", **found}


def parse(given: Mapping[str, str], *, streaming: bool = True) -> Settings:
    """The settings that these options make; upper and lower case are the same in their names.

    `streaming` False is for `read`, which needs no broker where localStorage names a log.
    Raises OptionError.
    """
    found = _Given(Settings, given)
    values = found.values
    found.connect(23 if values["mqtt_version"] == 3 else 65535)
    host, filters = values["host"], values["filters"]
    if host is None and (streaming or "local_storage" not in found.names):
        raise OptionError("brokerUrl is missing: tcp://host:port, or the option host")
    if host is not None and not filters:
        raise OptionError("topic is missing: a topic filter, or filters for several")
    if values["session_expiry"] is not None and values["mqtt_version"] != 5:
        raise found.bad("session_expiry", "needs mqttVersion 5")
    if values["session_expiry"] is not None and values["clean_session"]:
        raise found.bad("session_expiry", "with cleanSession the broker keeps nothing")
    if "local_storage" not in found.names:
        # The same in each run, or what the broker and the log keep for the query would be lost.
        known = (host, values["port"], values["username"], filters, values["client_id"])
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        name = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]
        values["local_storage"] = state / "flatmq" / "mqtt" / name
    return Settings(**values)


def parse_sink(given: Mapping[str, str]) -> SinkSettings:
    """Return the settings of the sink that these options make. Raises OptionError."""
    ours = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    found = _Given(SinkSettings, ours)
    values = found.values
    found.connect(12 if values["mqtt_version"] == 3 else 65000)
    if values["host"] is None:
        raise OptionError("brokerUrl is missing: tcp://host:port, or the option host")
    if values["bad_rows"] is not None and values["on_bad_row"] == "fail":
        raise found.bad("bad_rows", "needs onBadRow = skip")
    return SinkSettings(**values)


class _Given:
    """The values of a connection's fields, and the names under which options were given."""

    def __init__(self, kind: type[Connection], given: Mapping[str, str]) -> None:
        self.names: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        self.values: dict[str, Any] = {one.name: one.default for one in fields(kind)}
        unused = {name.lower(): f"{name} = {{!r}}: {why}" for name, why in _UNUSED[kind].items()}
        remarks = []
        for key, text in given.items():
            if key.lower() in unused:
                remarks.append(unused[key.lower()].format(text))
                continue
            option = _KNOWN[kind].get(key.lower())
            if option is None:
                raise OptionError(_unknown(key, kind))
            name = option.field
            if self._texts.get(name, text) != text:
                raise OptionError(
                    f"{self.names[name]} and {option.name}: two values for one option, "
                    f"{option.ours}"
                )
            self.names[name], self._texts[name] = option.name, text
            try:
                self.values[name] = option.read(text)
            except TrustError as error:
                raise OptionError(str(error)) from error
            except ValueError as error:
                raise self.bad(name, str(error)) from error
        self.values["remarks"] = tuple(remarks)

    def bad(self, name: str, rule: str) -> OptionError:
        """Return an error that names the option, its value and the rule."""
        text = "***" if name.endswith("password") else repr(self._texts[name])
        return OptionError(f"{self.names[name]} = {text}: {rule}")

    def connect(self, longest: int) -> None:
        """Take the address from the URL, and check what belongs together.

        `longest` is the maximum size of a client identifier.
        """
        values = self.values
        url = values["broker_url"]
        if url is not None:
            for name in ("host", "port"):
                if name in self.names:
                    raise OptionError(
                        f"{self.names['broker_url']} and {self.names[name]}: give one of them"
                    )
            if _SCHEMES[url.scheme] and "tls" in self.names and not values["tls"]:
                raise self.bad("tls", f"the URL says {url.scheme}://")
            values |= {"host": url.hostname, "port": url.port}
            values["tls"] = values["tls"] or _SCHEMES[url.scheme]
            for name in ("username", "password"):
                if name not in self.names and getattr(url, name) is not None:
                    values[name] = unquote(getattr(url, name))
        values["port"] = values["port"] or (8883 if values["tls"] else 1883)
        if values["password"] is not None and values["username"] is None:
            raise OptionError("username is missing: MQTT has no password without one")
        if "client_id" in self.names and not 1 <= len(values["client_id"].encode()) <= longest:
            raise self.bad("client_id", f"1 to {longest} bytes")
        for name in ("ca_file", "cert_file", "key_file", "key_password", "ciphers", "pin"):
            if name in self.names and not values["tls"]:
                raise OptionError(f"{self.names[name]}: needs TLS: ssl:// or tls = true")
        if values["key_file"] is not None and values["cert_file"] is None:
            raise OptionError("certFile is missing: keyFile is given")


def _unknown(key: str, kind: type[Connection]) -> str:
    ours = ", ".join(dict.fromkeys(option.ours for option in _KNOWN[kind].values()))
    if kind is SinkSettings and key.lower() in _KNOWN[Settings]:
        return f"{key}: an option of the source; the sink has {ours}"
    known = {low: option.name for low, option in _KNOWN[kind].items()}
    known |= {name.lower(): name for name in _UNUSED[kind]}
    near = difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[near[0]]}?" if near else f"there are {ours}"
    return f"{key}: no such option; {hint}"
