"""Options of format("mqtt"): what they mean, and what is said about a bad one."""

from pathlib import Path

import pytest

from flatmq_tools.pipeline.options import OptionError, of_trust, parse, parse_sink, with_defaults
from flatmq_tools.trust import given

BASIC = {"brokerUrl": "tcp://broker:1884", "topic": "a/#"}
OF_BAHIR = {
    "path": "tcp://b:1883", "topic": "t", "clientId": "some-client", "QoS": "2",
    "cleanSession": "true", "localStorage": "/log", "username": "al", "password": "pw",
    "connectionTimeout": "7", "keepAlive": "9", "mqttVersion": "3",
}  # fmt: skip
WITH_USER = {"brokerUrl": "tcp://al%40x:s3%2Fc@b", "topic": "t"}
PIN = "A" * 43 + "="
JKS = "trust.jks"  # a key store of Java
FIVE = {**BASIC, "mqttVersion": "5"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (BASIC, {"host": "broker", "port": 1884, "tls": False, "filters": ("a/#",), "qos": 1,
                 "clean_session": False, "keep_alive": 60, "connection_timeout": 30,
                 "max_offsets_per_trigger": None, "remarks": (), "mqtt_version": 4}),
        (OF_BAHIR, {"client_id": "some-client", "qos": 2, "clean_session": True,
                    "mqtt_version": 3, "username": "al", "password": "pw", "keep_alive": 9,
                    "local_storage": Path("/log"), "connection_timeout": 7}),
        (WITH_USER, {"username": "al@x", "password": "s3/c"}),
        ({**WITH_USER, "username": "bob"}, {"username": "bob"}),
        ({"host": "b", "filters": "a/#, b/+"}, {"filters": ("a/#", "b/+")}),
        ({"host": "b", "filters": '["a,b", "c"]'}, {"filters": ("a,b", "c")}),
        ({"host": "b", "filters": "$share/group/a/#"}, {"filters": ("$share/group/a/#",)}),
        ({**FIVE, "sessionExpiry": "86400"}, {"mqtt_version": 5, "session_expiry": 86_400}),
        ({**FIVE, "SESSIONEXPIRY": "4294967295"}, {"session_expiry": 0xFFFFFFFF}),
        (FIVE, {"session_expiry": None}),
        *(
            ({"path": url, "topic": "t"}, {"host": host, "port": port})
            for url, host, port in (
                ("tcp://b", "b", 1883), ("b:1900", "b", 1900), ("mqtt://[::1]:1", "::1", 1),
                ("ssl://b", "b", 8883), ("mqtts://b:9/", "b", 9),
            )
        ),
        *(
            ({**BASIC, "mqttVersion": text}, {"mqtt_version": version})
            for text, version in (("0", 4), ("4", 4), ("3.1.1", 4), ("3.1", 3))
        ),
    ],
)  # fmt: skip
def test_what_options_mean(given: dict[str, str], expected: dict[str, object]) -> None:
    settings = parse(given)
    assert {name: getattr(settings, name) for name in expected} == expected
    secure = any(str(url).startswith(("ssl", "mqtts")) for url in given.values())
    assert settings.tls == secure
    assert settings.password is None or settings.password not in repr(settings)


def test_the_same_options_have_the_same_log_and_others_another() -> None:
    other = {**BASIC, "topic": "b/#"}
    assert parse(BASIC).local_storage == parse(BASIC).local_storage != parse(other).local_storage


# Options beside BASIC, and what the error says.
WRONG = [
    ({"tpic": "x"}, r"tpic: no such option; did you mean topic\?"),
    ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
    ({"zzz": "1"}, "zzz: no such option.* brokerUrl"),
    ({"qos": "3"}, "qos = '3': .*from 0 to 2"),
    ({"QoS": "one"}, "qos = 'one': .*from 0 to 2"),
    ({"keepAlive": "65536"}, "keepAlive = '65536': .* 65535"),
    ({"cleanSession": "maybe"}, "cleanSession = 'maybe': true or false"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger = '0': .*from 1"),
    ({"logLimit": "5"}, "logLimit = '5': .*1048576"),
    ({"mqttVersion": "6"}, r"mqttVersion = '6': 5, .*3\.1\.1"),
    ({"sessionExpiry": "60"}, "sessionExpiry = '60': needs mqttVersion 5"),
    ({"mqttVersion": "5", "sessionExpiry": "-1"}, "sessionExpiry = '-1': .*4294967295"),
    (
        {"mqttVersion": "5", "sessionExpiry": "1", "cleanSession": "true"},
        "sessionExpiry = '1': .*cleanSession",
    ),
    ({"clientId": ""}, "clientId = '': .*65535"),
    ({"mqttVersion": "3.1", "clientId": "x" * 24}, "clientId = .*23"),
    ({"filters": "b"}, "topic.*filters.*two values"),
    ({"topic": "a/#/b"}, "topic = 'a/#/b': .*topic filter"),
    ({"topic": "[1]"}, "topic = .*1.*topic filter"),
    ({"topic": "[]"}, "topic = .*at least one"),
    ({"brokerUrl": "ws://b"}, "brokerUrl = 'ws://b': .*WebSocket"),
    ({"brokerUrl": "tcp://b:99999"}, "brokerUrl = 'tcp://b:99999': .*65535"),
    ({"brokerUrl": "b:0"}, "brokerUrl = .*65535"),
    ({"host": "b"}, "brokerUrl and host"),
    ({"brokerUrl": "ssl://b", "tls": "false"}, "tls = .*ssl://"),
    ({"brokerUrl": "ssl://b", "pin": "AAAA"}, "pin must be the SHA-256 of a public key"),
    ({"brokerUrl": "ssl://b", "ssl.trust.store": JKS}, r"ssl\.trust\.store.*keytool"),
    ({"caFile": "x.pem"}, "caFile = .*No such file"),
    ({"localStorage": "s3://bucket"}, "localStorage = 's3://bucket': .*driver"),
    ({"password": "pw"}, "username is missing"),
    ({"brokerUrl": None}, "brokerUrl is missing"),
    ({"topic": None}, "topic is missing"),
]
# All options of a sink.
WRONG_OF_SINK = [
    ({}, "brokerUrl is missing"),
    ({"host": "b", "topic": "a/#"}, "topic = 'a/#': topic name b'a/#': wildcards are not"),
    ({"host": "b", "patience": "-1"}, "patience = '-1': a whole number from 0 to 65535"),
    ({"host": "b", "onBadRow": "stop"}, "onBadRow = 'stop': skip or fail"),
    ({"host": "b", "badRows": "x", "onBadRow": "fail"}, "badRows = 'x': needs onBadRow"),
    ({"host": "b", "badRows": "s3://x"}, "badRows = 's3://x': a folder on the machine of th"),
    ({"host": "b", "password": "x"}, "username is missing"),
    ({"host": "b", "mqttVersion": "3.1", "clientId": "x" * 13}, "clientId = .*: 1 to 12 byt"),
    ({"host": "b", "caFile": "/none"}, "caFile = '/none': cannot be read"),
    ({"host": "b", "pin": PIN}, "pin: needs TLS"),
    ({"host": "b", "logLimit": "9"}, "logLimit: an option of the source; the sink has bro"),
    ({"host": "b", "retian": "true"}, r"retian: no such option; did you mean retain\?"),
]


def test_what_is_wrong_is_named_with_its_value_and_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(JKS).write_bytes(b"\xfe\xed\xfe\xed")
    for wrong, text in WRONG:
        options = {name: value for name, value in {**BASIC, **wrong}.items() if value is not None}
        with pytest.raises(OptionError, match=text):
            parse(options)
    for wrong, text in WRONG_OF_SINK:
        with pytest.raises(OptionError, match=text):
            parse_sink(wrong)


def test_read_needs_no_broker_where_there_is_a_log(tmp_path: Path) -> None:
    there = {"localStorage": str(tmp_path)}
    assert parse(there, streaming=False).host is None


def test_a_default_gives_way_to_what_is_given_by_any_of_its_names() -> None:
    ours = {"localStorage": "/ours", "maxOffsetsPerTrigger": "9"}
    other = {**BASIC, "LOG": "/theirs", "maxRowsPerTrigger": "5"}
    for options, expected in ((other, (Path("/theirs"), 5)), (BASIC, (Path("/ours"), 9))):
        settings = parse(with_defaults(options, ours))
        assert (settings.local_storage, settings.max_offsets_per_trigger) == expected


def test_the_options_of_a_command_are_options_of_the_source(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----")
    trust = of_trust(given(True, file, file, file, [PIN, f"sha256/{PIN}"]))
    settings = parse({"brokerUrl": "broker", "topic": "t", **trust})
    assert settings.port == 8883
    trust = settings.trust
    assert (trust.ca, trust.cert, trust.key, trust.pins) == (file, file, file, (bytes(32),) * 2)
    assert of_trust(None) == {}


def test_the_options_of_the_sink() -> None:
    settings = parse_sink({"path": "tcp://al:pw@b:1884", "CHECKPOINTLOCATION": "/c", "QoS": "2"})
    assert (settings.host, settings.port, settings.username) == ("b", 1884, "al")
    assert (settings.qos, settings.retain, settings.on_bad_row) == (2, False, "skip")
    assert (settings.topic, settings.bad_rows, settings.remarks) == (None, None, ())
    assert settings.patience == 120
    assert "pw" not in repr(settings)
    longest = {**BASIC, "topic": "t", "connectionTimeout": "0"}
    for parsed in (parse(longest), parse_sink(longest)):
        assert parsed.connection_timeout == 65_535  # of the client
    of_bahir = parse_sink({"brokerUrl": "b", "persistence": "memory", "cleanSession": "true"})
    assert of_bahir.remarks == (
        "persistence = 'memory': no effect on the sink",
        "cleanSession = 'true': no effect on the sink",
    )
