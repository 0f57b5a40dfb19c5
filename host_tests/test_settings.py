"""The settings of a board, and the errors for mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatmq_tools import settings

EXAMPLE = {"device": {"name": "", "interval": 60}, "wifi": {"ssid": "", "password": ""}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "settings.example.json").write_text(json.dumps(EXAMPLE))
    return tmp_path


def test_the_example_where_there_is_no_other(folder: Path) -> None:
    assert settings.load((), folder) == EXAMPLE


def test_own_settings_go_before_the_example(folder: Path) -> None:
    (folder / "settings.json").write_text('{"wifi": {"ssid": "home"}}')
    assert settings.load((), folder) == {"wifi": {"ssid": "home"}}


def test_set_goes_before_all(folder: Path) -> None:
    (folder / "settings.json").write_text('{"wifi": {"ssid": "home"}}')
    assert settings.load(["wifi.ssid=cabin", "device.interval=5"], folder) == {
        "wifi": {"ssid": "cabin"},
        "device": {"interval": 5},
    }


@pytest.mark.parametrize("text", ["home", "", "12345678", "true", "a=b", "p{ass"])
def test_a_password_is_text_whatever_it_looks_like(text: str, folder: Path) -> None:
    assert settings.load([f"wifi.password={text}"], folder)["wifi"]["password"] == text


@pytest.mark.parametrize("text", ["soon", "true", "1.5", ""])
def test_a_number_must_be_one(text: str, folder: Path) -> None:
    with pytest.raises(settings.SettingsError, match=r"must be like 60"):
        settings.load([f"device.interval={text}"], folder)


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("true", True), ('"5"', "5"), ("x", "x")])
def test_without_an_example_it_is_json_where_it_can_be(
    text: str, value: object, tmp_path: Path
) -> None:
    assert settings.load([f"a.b={text}"], tmp_path) == {"a": {"b": value}}


@pytest.mark.parametrize("override", ["wifi.sid=home", "wifi=home", "ssid=home"])
def test_a_slip_is_told_the_keys_there_are(override: str, folder: Path) -> None:
    with pytest.raises(settings.SettingsError, match=rf"{override}: no such .*are .*wifi\.ssid"):
        settings.load([override], folder)


@pytest.mark.parametrize("override", ["wifi.ssid", "=home"])
def test_a_set_without_key_or_value(override: str, folder: Path) -> None:
    with pytest.raises(settings.SettingsError, match="must be KEY=VALUE"):
        settings.load([override], folder)


def test_a_text_in_the_place_of_a_table(folder: Path) -> None:
    (folder / "settings.json").write_text('{"wifi": "home"}')
    with pytest.raises(settings.SettingsError, match="wifi is not a table"):
        settings.load(["wifi.ssid=cabin"], folder)


@pytest.mark.parametrize(("text", "told"), [("{", "not JSON"), ("[]", "must be an object")])
def test_a_file_that_is_no_settings(text: str, told: str, folder: Path) -> None:
    (folder / "settings.json").write_text(text)
    with pytest.raises(settings.SettingsError, match=rf"settings\.json: {told}"):
        settings.load((), folder)


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
