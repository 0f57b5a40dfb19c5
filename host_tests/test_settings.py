"""The settings of a board, and the errors for mistakes in them."""

import json
from pathlib import Path

import pytest

from flatmq_tools import board_tls, settings
from flatmq_tools.errors import ToolError
from flatmq_tools.ota import package
from flatmq_tools.trust import TrustError

EXAMPLE = {
    "device": {"name": "", "interval": 60},
    "wifi": {"ssid": "", "password": ""},
    "broker": {"host": "", "port": 1883},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "settings.example.json").write_text(json.dumps(EXAMPLE))
    return tmp_path


def test_set_goes_before_own_settings_and_these_before_the_example(folder: Path) -> None:
    assert settings.load((), folder) == EXAMPLE
    (folder / "settings.json").write_text('{"wifi": {"ssid": "home"}}')
    assert settings.load((), folder) == {"wifi": {"ssid": "home"}}
    assert settings.load(["wifi.ssid=cabin", "device.interval=5"], folder) == {
        "wifi": {"ssid": "cabin"},
        "device": {"interval": 5},
    }


@pytest.mark.parametrize("text", ["home", "", "12345678", "true", "a=b", "p{ass"])
def test_a_password_is_text_whatever_it_looks_like(text: str, folder: Path) -> None:
    assert settings.load([f"wifi.password={text}"], folder)["wifi"]["password"] == text


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("true", True), ('"5"', "5"), ("x", "x")])
def test_without_an_example_it_is_json_where_it_can_be(
    text: str, value: object, tmp_path: Path
) -> None:
    assert settings.load([f"a.b={text}"], tmp_path) == {"a": {"b": value}}


@pytest.mark.parametrize(
    ("override", "file", "error"),
    [
        *((f"device.interval={text}", None, "must be like 60") for text in ("soon", "1.5", "")),
        *((f"{text}=home", None, rf"{text}=home: no such .*are .*wifi\.ssid")
          for text in ("wifi.sid", "wifi", "ssid")),
        *((f"broker.host={text}", None, "broker.host must have neither scheme nor port, not")
          for text in ("mqtt://192.168.1.10", "192.168.1.10:1883")),
        (None, '{"broker": {"host": "mqtt://me:secret@x"}}', "broker.host must have .*, not 'x'"),
        *((f"broker.port={text}", None, "broker.port must be 1 to 65535, not")
          for text in ("0", "65536")),
        ("wifi.ssid", None, "must be KEY=VALUE"),
        ("=home", None, "must be KEY=VALUE"),
        ("wifi.ssid=cabin", '{"wifi": "home"}', "wifi is not a table"),
        (None, "{", r"settings\.json: not JSON"),
        (None, "[]", r"settings\.json: must be an object"),
        (None, "[" * 100_000, r"settings\.json: not JSON"),
    ],
)  # fmt: skip
def test_a_slip_is_an_error_that_says_what_there_is(
    override: str | None, file: str | None, error: str, folder: Path
) -> None:
    if file:
        (folder / "settings.json").write_text(file)
    with pytest.raises(ToolError, match=error):
        settings.load([override] if override else (), folder)


def test_an_address_of_ipv6_is_a_host(folder: Path) -> None:
    assert settings.load(["broker.host=fd00::1"], folder)["broker"]["host"] == "fd00::1"


def test_files_are_relative_to_where_they_are_named(folder: Path) -> None:
    table = {"ca": "", "cert": "mine/a.pem", "key": "/keys/a.key"}
    (folder / "settings.example.json").write_text(json.dumps({"broker": {"tls": table}}))
    (folder / "settings.json").write_text(json.dumps({"broker": {"tls": table}}))
    assert settings.load(["broker.tls.ca=ca.pem"], folder)["broker"]["tls"] == {
        "ca": "ca.pem",
        "cert": str(folder / "mine/a.pem"),
        "key": "/keys/a.key",
    }


def test_without_any_file(tmp_path: Path) -> None:
    assert settings.load((), tmp_path) == {}
    assert settings.load(["wifi.ssid=home"], tmp_path) == {"wifi": {"ssid": "home"}}


@pytest.mark.parametrize("broker", [5, None, [], {"tls": 5}, {"tls": None}])
def test_a_table_that_is_none_is_left_to_the_sketch_which_names_it(
    broker: object, folder: Path
) -> None:
    (folder / "settings.json").write_text(json.dumps({"broker": broker}))
    ready = settings.load((), folder)
    assert board_tls.prepare(ready) == ({"broker": broker}, {}, [])


def test_a_pin_that_is_no_text_is_an_error(folder: Path) -> None:
    (folder / "settings.json").write_text('{"broker": {"tls": {"pin": 5}}}')
    with pytest.raises(TrustError, match=r"broker\.tls\.pin must be the SHA-256"):
        board_tls.prepare(settings.load((), folder))


@pytest.mark.parametrize(("device", "ready"), [
    (None, {"parts": "updates"}),
    ({"parts": None}, {"parts": "updates"}),
    ({"parts": " time , ha"}, {"parts": "time,ha,updates"}),
    ({"parts": 5}, {"parts": "5,updates"}),  # which the sketch does not know
    (["time"], ["time"]),
])  # fmt: skip
def test_a_board_with_a_key_takes_updates(device: object, ready: object) -> None:
    slots = package.Slots(Path("key.pub"))
    assert package.settled({"device": device}, slots) == {"device": ready}
